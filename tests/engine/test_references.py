"""References and prompts of a real server, asked for on the client's wire through ``mcp-sandbox run``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drivers import EXAMPLES, run_argv

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

EVERYTHING = next(example for example in EXAMPLES if example.name == "everything-mcp")
OPENING: list[dict[str, Any]] = [
    {
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "reader", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
]


def asked(scratch: Path, *requests: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers to requests of one session, in their order; stdin closes when all are there."""
    sent = [*OPENING, *({"id": index + 1, "method": name, "params": one} for index, (name, one) in enumerate(requests))]
    with subprocess.Popen(
        run_argv(EVERYTHING, scratch), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for message in sent:
            run.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        run.stdin.flush()
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) <= len(requests):
            line = run.stdout.readline()
            assert line, "the session ended early"
            message = json.loads(line)
            if "id" in message and "method" not in message:
                answers[message["id"]] = message
        run.stdin.close()
        run.wait(60)
    return [answers[index + 1] for index in range(len(requests))]


def read(uri: str) -> tuple[str, dict[str, Any]]:
    """Return a request that reads a resource."""
    return "resources/read", {"uri": uri}


@pytest.mark.claim("P-URI-06")
def test_a_reference_is_resolved_by_the_real_server_and_an_escape_is_not(tmp_path: Path) -> None:
    """The reference answers what the URI answers; another kind, an undeclared URI and an escape answer nothing."""
    by_reference, by_uri, other, undeclared, escape, templates = asked(
        tmp_path,
        read("mcp_everything:demo://resource/dynamic/text/1"),
        read("demo://resource/dynamic/text/1"),
        read("mcp_other:demo://resource/dynamic/text/1"),
        read("mcp_everything:demo://resource/dynamic/blob/1"),
        read("mcp_everything:demo://resource/dynamic/text/..%2f..%2fstatic"),
        ("resources/templates/list", {}),
    )

    assert "result" in by_reference, by_reference
    assert by_uri["result"]["contents"][0]["uri"] == by_reference["result"]["contents"][0]["uri"]
    assert "text" in by_reference["result"]["contents"][0]
    for refused in (other, undeclared, escape):
        assert "error" in refused
    listed = {one["uriTemplate"]: one.get("_meta", {}) for one in templates["result"]["resourceTemplates"]}
    references = {meta.get("mcp-sandbox/ref") for meta in listed.values()}
    assert "mcp_everything:demo://resource/dynamic/text/{resourceId}" in references


def test_only_declared_prompts_are_offered_and_got(tmp_path: Path) -> None:
    """The server has more prompts than the driver declares; those are neither listed nor got."""
    listed, got, hidden = asked(
        tmp_path,
        ("prompts/list", {}),
        ("prompts/get", {"name": "simple-prompt"}),
        ("prompts/get", {"name": "resource-prompt"}),
    )

    assert {"simple-prompt", "args-prompt"} == {one["name"] for one in listed["result"]["prompts"]}
    assert got["result"]["messages"]
    assert "error" in hidden
