"""Servers that misbehave on the wire: each ends in one clear error, in bounded memory, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from sandbox.limits import MAX_LINE_BYTES
from sandbox.testing.hostile import HOSTILE, Hostile, argv
from tests.shared import ROOT

pytestmark = pytest.mark.slow

CALL_TIMEOUT = 2.0
ROOM = 4 * MAX_LINE_BYTES
"""What one line may cost: the line, a copy of it, and its values."""

NAIVE = "import sys\nwhile (line := sys.stdin.buffer.readline()): pass\n"
"""A client that reads lines as most programs do."""

OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


class Memory:
    """The most memory that a process used while it was watched."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._process = psutil.Process(pid)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            try:
                self.peak = max(self.peak, self._process.memory_info().rss)
            except psutil.Error:
                return

    def stop(self) -> int:
        """Return the peak, bytes."""
        self._over.set()
        self._thread.join()
        return self.peak


@dataclass
class Played:
    """What came of a client's calls to a hostile server behind us."""

    first: dict[str, Any] | None = None
    second: dict[str, Any] | None = None
    others: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""
    status: int = 0
    peak: int = 0
    left: list[int] = field(default_factory=list)


class Client:
    """A client of the standard library."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT)
        self.others: list[dict[str, Any]] = []

    def request(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer, ``None`` when the other side is gone."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer
            self.others.append(answer)
        return None


def play(hostile: Hostile) -> Played:
    """Run a hostile server behind us, with a client that makes two calls."""
    through = [
        sys.executable,
        "-m",
        "sandbox.testing.through",
        "--version=2025-11-25",
        f"--call-timeout={CALL_TIMEOUT}",
    ]
    client = Client(through + argv(hostile.name))
    memory = Memory(client.process.pid)
    played = Played(others=client.others)
    client.request(0, "initialize", OPENING)
    played.first = client.request(1, "tools/call", {"name": "act", "arguments": {}})
    if hostile.fatal:
        played.second = client.request(2, "tools/call", {"name": "act", "arguments": {}})
    children = [] if client.process.poll() is not None else psutil.Process(client.process.pid).children(recursive=True)
    _out, err = client.process.communicate(timeout=60)
    played.peak = memory.stop()
    played.stderr, played.status = err.decode(), client.process.returncode
    _gone, alive = psutil.wait_procs(children, timeout=10)
    played.left = [child.pid for child in alive]
    return played


def named(name: str) -> Hostile:
    """Return a row of the table."""
    return next(one for one in HOSTILE if one.name == name)


@pytest.fixture(scope="module")
def honest_peak() -> int:
    """Return the memory that an honest server costs us, bytes."""
    return play(named("banner")).peak


@pytest.mark.claim("P-WIRE-03")
@pytest.mark.parametrize("hostile", [one for one in HOSTILE if one.starts], ids=lambda one: one.name)
def test_a_server_that_misbehaves_before_it_is_served(hostile: Hostile, honest_peak: int) -> None:
    """It is never served: we end with one message and the status of a server fault, and so does it."""
    played = play(hostile)

    assert played.first is None
    assert f"{hostile.ends_with}: " in played.stderr
    assert 1 == played.stderr.count("\n")
    assert 4 == played.status
    assert [] == played.left
    assert played.peak < honest_peak + ROOM


@pytest.mark.claim("P-WIRE-03", "P-WIRE-04")
@pytest.mark.parametrize(
    "hostile", [one for one in HOSTILE if one.ends_with.startswith("WIRE") and not one.starts], ids=lambda one: one.name
)
def test_a_server_that_misbehaves_in_a_call(hostile: Hostile, honest_peak: int) -> None:
    """The call ends in the one clear error, memory stays bounded, and no process remains."""
    played = play(hostile)

    assert played.first is not None
    # Large messages may stay below the rate of a flood on a busy machine; then the call's deadline ends it.
    slow = {"WIRE-043"} if hostile.name == "large-notification-flood" else set()
    assert played.first["error"]["data"]["id"] in {hostile.ends_with, *slow}
    assert -31011 <= played.first["error"]["code"] <= -31010
    if hostile.fatal:
        assert played.second is not None
        assert "error" in played.second
        assert 4 == played.status
    assert [] == played.left
    assert played.peak < honest_peak + ROOM


@pytest.mark.parametrize(
    "hostile", [one for one in HOSTILE if not one.ends_with and not one.starts], ids=lambda one: one.name
)
def test_a_server_that_misbehaves_and_answers(hostile: Hostile, honest_peak: int) -> None:
    """What can be dropped is dropped: the client gets its answer and nothing that is not its own."""
    played = play(hostile)

    assert played.first is not None
    assert "result" in played.first
    assert [] == played.others
    assert [] == played.left
    assert played.peak < honest_peak + ROOM


@pytest.mark.claim("P-WIRE-05")
def test_a_server_cannot_reach_the_clients_model_or_user() -> None:
    """Sampling and elicitation are refused, and the client never hears of them."""
    played = play(named("sampling"))

    assert "-32601,-32602" == played.first["result"]["content"][0]["text"]
    assert [] == played.others


@pytest.mark.claim("P-WIRE-06")
def test_a_server_cannot_pass_for_the_platform() -> None:
    """An error with one of our codes arrives as the server's."""
    played = play(named("borrowed-code"))

    assert -32603 == played.first["error"]["code"]
    assert {"serverCode": -31020} == played.first["error"]["data"]


def test_control_the_same_output_exhausts_a_naive_client() -> None:
    """Without us the line without end is kept whole by a program that reads lines."""
    server = subprocess.Popen(argv("endless-line"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    naive = subprocess.Popen([sys.executable, "-S", "-c", NAIVE], stdin=server.stdout)
    memory = Memory(naive.pid)
    for number, (method, params) in enumerate((("initialize", OPENING), ("tools/call", {"name": "act"}))):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
    patience = time.monotonic() + 60
    while memory.peak < ROOM and time.monotonic() < patience:
        time.sleep(0.01)
    for process in (server, naive):
        process.kill()
        process.wait()
    server.stdin.close()
    server.stdout.close()

    assert memory.stop() > ROOM
