"""The gateway does what its OpenAPI document says, whoever asks and however badly."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from sandbox.registry import pages
from sandbox.registry.openapi import document
from tests.register_lab import register_lab
from tests.shared import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
URL = "https://mcp.example.com"
EXAMPLES = 5
"""Generated cases of each operation in the fuzzing phase; the coverage phase makes its own number."""


async def schemathesis(url: str, folder: Path, *argv: str) -> tuple[int, str]:
    """Run schemathesis in a process of its own, and return its status and what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST", "HYPOTHESIS"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url, "--checks", "all",
        "--no-color", "--generation-deterministic", "--workers", "1", "--max-examples", str(EXAMPLES), *argv,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**clean, "SCHEMATHESIS_HOOKS": "tests.openapi_rules", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.parametrize(
    ("who", "phases"), [("stranger", "examples,coverage,fuzzing,stateful"), ("admin", "examples,coverage")]
)
async def test_schemathesis_finds_nothing_in_register_and_discovery(tmp_path: Path, who: str, phases: str) -> None:
    """Every phase and every check, for a stranger and for an operator."""
    async with register_lab(tmp_path) as stage:
        token = stage.token(audience=stage.url, scope="mcp-sandbox:admin")
        more = ("-H", f"Authorization: Bearer {token}") if who == "admin" else ()
        status, said = await schemathesis(
            stage.url, tmp_path, "--exclude-path-regex", "^/mcp", "--phases", phases, *more
        )

    assert 0 == status, said[-4000:]
    assert re.search(r"Tested: 1[0-9]", said), said[-2000:]


async def test_schemathesis_finds_nothing_at_the_mcp_endpoints(tmp_path: Path) -> None:
    """All checks but one: that a well-formed JSON-RPC message is always taken is not so, and OpenAPI cannot say why."""
    async with register_lab(tmp_path) as stage:
        without = ("--exclude-checks", "positive_data_acceptance", "--phases", "coverage,fuzzing")
        status, said = await schemathesis(stage.url, tmp_path, "--include-path-regex", "^/mcp", *without)

    assert 0 == status, said[-4000:]
    assert "Tested: 6" in said, said[-2000:]


async def test_schemathesis_would_find_a_wrong_answer(tmp_path: Path) -> None:
    """The same run fails when one answer is not as the document says."""
    async with register_lab(tmp_path) as stage:
        inner: Any = stage.app.gateway.pages

        async def lying(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                if message["type"] == "http.response.body" and scope["path"] == "/healthz":
                    message = {**message, "body": message["body"].replace(b'"ok"', b'"no"')}
                await send(message)

            await inner(scope, receive, sending)

        stage.app.gateway.pages = lying
        status, said = await schemathesis(stage.url, tmp_path, "--include-path", "/healthz", "--phases", "coverage")

    assert 1 == status
    assert "Response violates schema" in said


def routes() -> set[str]:
    """Return the paths that the pages match, with ``*`` for what may be anything."""
    found: set[str] = set()
    for name in ("_told", "_own"):
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(pages.Pages, name))))
        for case in (one for one in ast.walk(tree) if isinstance(one, ast.match_case)):
            assert isinstance(case.pattern, ast.MatchSequence)
            parts = [one.value.value if isinstance(one, ast.MatchValue) else "*" for one in case.pattern.patterns]  # type: ignore[attr-defined]
            found.add("/" + "/".join(parts))
    return found


async def test_every_route_stands_in_the_document() -> None:
    """What the pages answer is documented, and the other way round."""
    written = {re.sub(r"\{[^}]+\}", "*", path) for path in document(URL)["paths"]}
    written = {path for path in written if not path.startswith(("/mcp", "/.well-known/oauth"))}
    below = {path for path in written if path.startswith("/v0.1/servers/")}

    assert written - below == routes() - {"/v0.1/servers/*"}
    assert 2 == len(below)


async def test_the_document_is_whole() -> None:
    """Every reference leads somewhere, every schema is one, every operation has an id of its own."""
    whole = document(URL)
    for name in re.findall(r'"\$ref": ?"#/([^"]+)"', orjson.dumps(whole).decode().replace('":"', '": "')):
        place: Any = whole
        for part in name.split("/"):
            place = place[part]
    for schema in whole["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    operations = [one for path in whole["paths"].values() for one in path.values() if isinstance(one, dict)]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids))
    assert [{"url": URL}] == whole["servers"]
