"""`mcp-sandbox validate`: a good server passes everything, and each broken one fails the check that is for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2
import pytest

from sandbox.cli import main
from sandbox.dialect.links import HttpLink, PipeLink
from sandbox.dialect.validate import Asked, Finding, validate
from tests import dialect_servers
from tests.dialect_servers import DEFECTS, DialectServer, asgi

pytestmark = pytest.mark.anyio

ASKED = Asked(tool="echo", arguments={"text": "hello"}, token=True)
HTTP_ONLY = {"etag": ("sends again",), "headers": (), "transport": ()}
PROGRAM = str(Path(dialect_servers.__file__))


async def over_http(defect: str = "", asked: Asked = ASKED, url: str = "http://127.0.0.1:1") -> dict[str, Finding]:
    """Return the findings about a server over HTTP."""
    transport = httpx2.ASGITransport(app=asgi(DialectServer(defect, "secret" if asked.token else "")))
    async with httpx2.AsyncClient(transport=transport) as http:
        found = await validate(HttpLink(url, "secret" if asked.token else "", http), asked)
    return {one.check: one for one in found}


async def over_a_pipe(defect: str = "") -> dict[str, Finding]:
    """Return the findings about a server behind a pipe."""
    async with PipeLink([sys.executable, PROGRAM, defect]) as link:
        return {one.check: one for one in await validate(link, ASKED)}


def outcomes(found: dict[str, Finding], outcome: str) -> set[str]:
    """Return the checks with an outcome."""
    return {name for name, one in found.items() if one.outcome == outcome}


async def test_a_good_server_passes_over_http() -> None:
    """Every check is made and passes."""
    found = await over_http()

    assert {} == {name: one.message for name, one in found.items() if one.outcome != "pass"}
    assert 12 == len(found)


async def test_a_good_server_passes_over_a_pipe() -> None:
    """Every check that means something without HTTP passes; the others say why they were not made."""
    found = await over_a_pipe()

    assert (set(), {"headers", "transport"}) == (outcomes(found, "fail"), outcomes(found, "skip"))


@pytest.mark.parametrize("defect", sorted(DEFECTS))
async def test_each_broken_server_fails_its_check(defect: str) -> None:
    """The check that is for the defect fails, and every failure says what was found."""
    found = await over_http(defect)

    assert "fail" == found[DEFECTS[defect]].outcome, found
    assert all(one.message for one in found.values())


@pytest.mark.parametrize(
    "defect", sorted(name for name, check in DEFECTS.items() if check != "headers" and name != "sends again")
)
async def test_each_broken_server_fails_over_a_pipe_too(defect: str) -> None:
    """What does not depend on HTTP is found behind a pipe as well."""
    assert "fail" == (await over_a_pipe(defect))[DEFECTS[defect]].outcome


async def test_a_token_in_the_clear_is_found() -> None:
    """An address of another machine without TLS fails, and with TLS needs the header that keeps it so."""
    clear = await over_http(url="http://server.example/2025-11")
    tls = await over_http(url="https://server.example/2025-11")

    assert ("fail", "pass") == (clear["transport"].outcome, tls["transport"].outcome)
    assert "Strict-Transport-Security" in tls["headers"].message


async def test_no_tool_is_called_unless_it_is_named() -> None:
    """Without a tool the checks that would call one are not made, and say so."""
    found = await over_http(asked=Asked())

    assert {"call", "async"} == outcomes(found, "skip")
    assert "--call" in found["call"].message


async def test_slowness_is_found() -> None:
    """A median above the bound that a person names fails."""
    found = await over_http(asked=Asked(max_latency=0.0001))

    assert {"latency"} == outcomes(found, "fail")


async def test_a_server_that_says_nothing_fails_everything() -> None:
    """A program that ends at once fails each check that asks it something, and nothing hangs."""
    async with PipeLink([sys.executable, "-c", ""], timeout=10) as link:
        found = {one.check: one for one in await validate(link, ASKED)}

    assert {"handshake", "mismatch", "schema", "unknown", "call", "latency"} <= outcomes(found, "fail")


def test_the_command_tells_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    """A good server gives status 0, a broken one 4 with the finding; JSON has the same."""
    call = ["--call", "echo", "--args", '{"text": "x"}']
    good = main(["validate", *call, "--command", sys.executable, PROGRAM])
    text = capsys.readouterr().out
    bad = main(["validate", *call, "--json", "--command", sys.executable, PROGRAM, "no schema"])
    told = json.loads(capsys.readouterr().out)

    assert (0, 4, False) == (good, bad, told["ok"])
    assert "pass  handshake: 2025-11 agreed" in text
    assert ["schema"] == [one["check"] for one in told["findings"] if one["outcome"] == "fail"]
