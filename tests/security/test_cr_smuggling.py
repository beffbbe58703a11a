"""Carriage returns decide who executes what: one line for a validator is several for a server that splits at CR."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.slow

PEER = [sys.executable, str(ROOT / "tests" / "peers" / "sdk_server.py")]
THROUGH = [sys.executable, "-m", "sandbox.testing.through", "--version=2025-11-25"]

HIDDEN = '{"jsonrpc":"2.0","id":666,"method":"tools/call","params":{"name":"echo","arguments":{"message":"smuggled"}}}'
SMUGGLER = '{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"a":\r' + HIDDEN + "\r}}}"
"""One LF line, which is one JSON document: a harmless request whose `_meta` holds another message between two CRs."""

OPENING: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]
LAST = {"jsonrpc": "2.0", "id": 3, "method": "ping"}


def answers(command: list[str], line: str) -> dict[Any, dict[str, Any]]:
    """Return what a command answers to an opening, a line and a ping, by id."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    for text in (*map(json.dumps, OPENING), line, json.dumps(LAST)):
        process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()
    found: dict[Any, dict[str, Any]] = {}
    while LAST["id"] not in found and (read := process.stdout.readline()):
        answer = json.loads(read)
        found[answer.get("id")] = answer
    process.stdin.close()
    rest = process.stdout.read()
    process.stdout.close()
    process.wait(60)
    for read in rest.splitlines():
        answer = json.loads(read)
        found[answer.get("id")] = answer
    return found


def test_the_line_is_one_harmless_document() -> None:
    """A validator that reads the line as JSON sees a listing and nothing else."""
    assert "tools/list" == json.loads(SMUGGLER)["method"]


def test_control_a_real_server_executes_the_hidden_call() -> None:
    """Without us the hidden message is executed and answered."""
    found = answers(PEER, SMUGGLER)

    assert "smuggled" == found[666]["result"]["content"][0]["text"]


@pytest.mark.claim("P-WIRE-01")
def test_nothing_is_smuggled_through_us() -> None:
    """The line is refused whole, the hidden call is not executed, and the session goes on."""
    found = answers([*THROUGH, *PEER], SMUGGLER)

    assert 666 not in found
    assert 2 not in found
    assert "WIRE-003" == found[None]["error"]["data"]["id"]
    assert {} == found[3]["result"]


@pytest.mark.claim("P-WIRE-01")
def test_crs_in_values_arrive_as_values() -> None:
    """A CR that is part of a string reaches the server escaped, as the string that it is."""
    message = "a\r" + HIDDEN + "\r\nb"
    call = {"name": "echo", "arguments": {"message": message}}
    found = answers([*THROUGH, *PEER], json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}))

    assert message == found[2]["result"]["content"][0]["text"]
    assert 666 not in found
