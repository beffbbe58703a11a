"""A clumsy or hostile stranger at the command line gets one clear line, the right exit status, and leaves nothing."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.launch.interface import LABEL_OWNER
from tests.engine.drivers import COMMAND
from tests.probe_kit import workspace
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

TEXT = ROOT / "drivers" / "text-mcp"
FILES = ROOT / "drivers" / "filesystem-mcp"
ARGS = ("--args", '{"text":"123456789"}')

DRIVER = """---
name: Hostile
id: hostile-mcp
description: A server that misbehaves.
version: 1.0.0
kind: mcp
server:
  kind: binary
  path: ./hostile
  args: [{how}]
transport: stdio
protocol_version: "2025-11-25"
network:
  egress: []
limits:
  memory_mb: 32
  pids: 8
implements:
  - tool: ./tools/text-crc32/TOOL.md
    version: "^1.0.0"
    metadata: {{ mcp: {{ tool_name: crc32 }} }}
---

# Hostile
"""

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"stranger","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
CALL = (
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"text-crc32","arguments":{"text":"123456789"}}}\n'
)

USAGE, REFUSED, SERVER, PLATFORM, AUDIT = 2, 3, 4, 5, 6


@functools.cache
def program() -> Path:
    """Return the compiled hostile server, or skip where there is no C compiler (CI has one)."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("MCP_SANDBOX_REQUIRE_ENGINE") == "1":
            pytest.fail("a C compiler is needed for the hostile server: install gcc and libc6-dev")
        pytest.skip("no C compiler for the hostile server")
    target = workspace() / "hostile"
    source = ROOT / "tests" / "probes" / "hostile.c"
    subprocess.run([compiler, "-O1", "-static", "-s", "-Wall", "-Wextra", "-o", target, source], check=True)
    return target


def hostile(how: str, scratch: Path) -> Path:
    """Return the folder of a driver whose server misbehaves in one way."""
    folder = scratch / "driver"
    tool = folder / "tools" / "text-crc32"
    tool.mkdir(parents=True)
    (tool / "TOOL.md").write_bytes((TEXT / "tools" / "text-crc32" / "TOOL.md").read_bytes())
    (folder / "DRIVER.md").write_text(DRIVER.format(how=how))
    shutil.copy(program(), folder / "hostile")
    return folder


def remains(pid: int) -> list[str]:
    """Return the containers, networks and volumes whose owner is a process."""
    found = []
    for kind, more in (("container", ["-a"]), ("network", []), ("volume", [])):
        listed = ["docker", kind, "ls", *more, "--filter", f"label={LABEL_OWNER}"]
        shown = subprocess.run(
            [*listed, "--format", f'{{{{.Label "{LABEL_OWNER}"}}}}'], capture_output=True, text=True, check=True
        )
        found += [f"{kind} of {line}" for line in shown.stdout.splitlines() if f":{pid}:" in line]
    return found


def gone(pid: int) -> list[str]:
    """Return what remains of a supervisor once its watchdog has had time."""
    deadline = time.monotonic() + 30
    while remains(pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    return remains(pid)


def start(scratch: Path, command: str, *arguments: str | bytes | Path) -> subprocess.Popen[bytes]:
    """Start a command that records to a trail of its own."""
    argv = [*COMMAND, command, *arguments]
    if command in {"run", "call", "tools"} and "--audit-dir" not in arguments:
        argv += ["--audit-dir", str(scratch / "audit")]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=scratch)


def ended(process: subprocess.Popen[bytes], sent: bytes = b"") -> tuple[int, list[str], str]:
    """Return the exit status, the lines on stderr but for progress, and stdout, once nothing of it remains."""
    try:
        out, err = process.communicate(sent, timeout=90)
    finally:
        process.kill()

    assert [] == gone(process.pid)
    lines = [line for line in err.decode().splitlines() if not line.startswith("mcp-sandbox: ")]
    assert [] == [line for line in lines if "Traceback" in line or "CLI-099" in line or not line.isprintable()]
    return process.returncode, lines, out.decode()


def refused(scratch: Path, command: str, *arguments: str | bytes | Path, sent: bytes = b"") -> tuple[int, str]:
    """Return the exit status and the id of the only line on stderr."""
    status, lines, _ = ended(start(scratch, command, *arguments), sent)

    assert 1 == len(lines), lines
    words = lines[0].replace(":", " ").split()
    return status, next(word for word in words if word[-4:-3] == "-" and word[-3:].isdigit())


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A FIFO that nobody writes to."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    path.unlink()


def test_arguments_that_no_command_understands(tmp_path: Path) -> None:
    """Unknown options, overlong paths, bytes that are not UTF-8 and an empty tenant are the caller's mistakes."""
    assert (USAGE, "CLI-002") == refused(tmp_path, "run", TEXT, "--frobnicate")
    assert (USAGE, "CLI-002") == refused(tmp_path, "check", "a" * 300)
    assert (USAGE, "CLI-003") == refused(tmp_path, "call", TEXT, "text-crc32", "--args", b"\xff")
    assert (USAGE, "CLI-002") == refused(tmp_path, "call", TEXT, "text-crc32", "--tenant", "")


def test_a_tool_name_that_would_rule_the_terminal(tmp_path: Path) -> None:
    """Escape sequences and line breaks of an argument are shown, not carried out."""
    assert (USAGE, "CLI-013") == refused(tmp_path, "call", TEXT, "a\x1b[31m\nCLI-000: all is well")


def test_a_policy_that_never_ends(tmp_path: Path, pipe: Path) -> None:
    """A FIFO or device in place of the operator's ceiling is refused and not waited for."""
    assert (USAGE, "CLI-011") == refused(tmp_path, "run", TEXT, "--policy", pipe)
    assert (USAGE, "CLI-011") == refused(tmp_path, "run", TEXT, "--policy", "/dev/zero")


def test_a_root_that_is_the_audit_trail(tmp_path: Path) -> None:
    """A server cannot be granted the folder that it is recorded in, wherever that lies."""
    audit = tmp_path / "audit"
    audit.mkdir(mode=0o700)

    assert (REFUSED, "PLAN-027") == refused(tmp_path, "call", FILES, "fs-list", "--root", f"/workspace={audit}")


def test_a_root_that_leads_to_private_keys(tmp_path: Path) -> None:
    """A link to a folder that is never mounted is refused as that folder is."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "project").symlink_to(tmp_path / ".ssh")

    assert (REFUSED, "PLAN-024") == refused(
        tmp_path, "call", FILES, "fs-list", "--root", f"/workspace={tmp_path / 'project'}"
    )


def test_an_audit_folder_that_others_can_write(tmp_path: Path) -> None:
    """Nothing starts when the evidence could be changed by others, or cannot be written at all."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    assert (AUDIT, "AUD-001") == refused(tmp_path, "run", TEXT, "--audit-dir", shared)
    assert (AUDIT, "AUD-001") == refused(tmp_path, "run", TEXT, "--audit-dir", "/proc/nowhere")


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a container engine the message says where one was looked for."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    process = start(tmp_path, "run", TEXT)
    _, err = process.communicate(timeout=60)

    assert (PLATFORM, True) == (process.returncode, err.startswith(b"LAUNCH-001: "))
    assert b"/nonexistent" in err


@pytest.mark.parametrize(
    ("how", "status", "id_"),
    [
        ("exits", SERVER, {"LAUNCH-041", "WIRE-055"}),
        ("garbage", SERVER, {"WIRE-041"}),
        ("one-line", SERVER, {"WIRE-001"}),
        ("refuses", SERVER, {"WIRE-050"}),
        ("empty", REFUSED, {"VET-001"}),
    ],
)
def test_a_server_that_never_gets_ready(how: str, status: int, id_: set[str], tmp_path: Path) -> None:
    """A server that dies, babbles, refuses or offers nothing is told apart and removed."""
    got, found = refused(tmp_path, "call", hostile(how, tmp_path), "text-crc32", *ARGS)

    assert (status, True) == (got, found in id_), found


@pytest.mark.parametrize("how", ["dies-in-call", "floods"])
def test_a_server_that_fails_in_the_middle_of_a_call(how: str, tmp_path: Path) -> None:
    """The client gets an answer to its call, and the supervisor ends with the server's fault in one line."""
    process = start(tmp_path, "run", hostile(how, tmp_path))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(INITIALIZE + CALL)
    process.stdin.flush()
    process.stdout.readline()
    answer = process.stdout.readline()
    process.wait(60)
    status, lines, _ = ended(process)

    assert b'"id":2' in answer
    assert (SERVER, 1) == (status, len(lines))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda one: one.name)
def test_a_signal_while_a_server_that_ignores_signals_is_called(number: signal.Signals, tmp_path: Path) -> None:
    """However the supervisor is ended, a server that ignores every signal is gone with it."""
    process = start(tmp_path, "run", hostile("stays", tmp_path))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    process.stdout.readline()
    served = remains(process.pid)
    process.send_signal(number)
    process.wait(60)
    status, lines, _ = ended(process)

    assert (1, []) == (len(served), lines)
    assert status == (-number if number == signal.SIGKILL else 128 + number)


def test_a_client_that_sends_garbage_and_initializes_twice(tmp_path: Path) -> None:
    """Each mistake is answered, and the call between them still works."""
    sent = b"hello\n\xff\n" + INITIALIZE + INITIALIZE.replace(b'"id":1', b'"id":7') + CALL
    status, lines, out = ended(start(tmp_path, "run", TEXT), sent)

    assert (0, []) == (status, lines)
    assert ("WIRE-010" in out, "SESS-002" in out, "cbf43926" in out) == (True, True, True)


def test_a_parent_that_closes_every_standard_descriptor(tmp_path: Path) -> None:
    """Without stdin, stdout and stderr no file of ours takes their place, such as the trail that of stdout."""
    audit = tmp_path / "audit"
    line = f'exec "$@" call {TEXT} text-crc32 --args \'{{"text":"canary"}}\' --audit-dir {audit} <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", line, "sh", *COMMAND], check=False, timeout=90)
    verified = subprocess.run(
        [*COMMAND, "audit", "verify", "--audit-dir", str(audit)], check=False, timeout=60, capture_output=True
    )

    assert (0, 0) == (done.returncode, verified.returncode)
    assert verified.stdout.startswith(b"intact")


def test_an_output_that_is_full(tmp_path: Path) -> None:
    """A result that cannot be written is a failure, also when everything else went well."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "check", str(TEXT)], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60, cwd=tmp_path
        )

    assert PLATFORM == done.returncode
    assert b"No space left on device" in done.stderr
    assert 1 == len(done.stderr.splitlines())
