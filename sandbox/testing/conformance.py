"""What any container backend must show before it may be called one: one small row for each promise.

A row launches what it needs through the backend's public interface and looks at the sandbox from inside, with a Python
program; so it needs a plan whose image has Python 3, and nothing else. Docker's backend passes it in this repository's
tests; whoever writes another backend runs the same rows::

    findings = await backend_conformance(Rig(backend, plan))
    assert [] == [finding for finding in findings if finding.problem]
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import AuditUnavailable, SandboxError
from sandbox.events import Scope, Trace
from sandbox.launch.interface import Backend, ExitStatus, Instance
from sandbox.limits import MIB
from sandbox.plan.model import EnvEntry, LimitPlan, SandboxPlan
from sandbox.testing.memory import MemoryRecorder

HEADER: Final = 8
"""Bytes of the engine's frame header."""

ANSWER_SECONDS: Final = 60.0
"""For one answer of the program inside; a loaded host starts Python slowly."""

KILL_SECONDS: Final = 15.0
"""What removal may take on top of a grace, on a loaded host."""

FLOOD_BYTES: Final = 64 * MIB
"""What a server writes that nobody reads: more than every buffer on the way together."""

SIGKILL: Final = 9
"""Number of the signal that ends what the kernel takes memory from."""

PROGRAM: Final = """
import ctypes, errno, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def outcome(result):
    return "OK" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
def attempt(work):
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "OK"
def write(path):
    with open(path, "wb") as file:
        file.write(b"x")
def hog(size):
    pid = os.fork()
    if pid == 0:
        data = bytearray(size)
        for at in range(0, size, 4096):
            data[at] = 1
        os._exit(0)
    return os.waitpid(pid, 0)[1] & 127
def forks(most):
    children = []
    try:
        for _ in range(most):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
        return len(children)
    except OSError:
        return len(children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()
def flood(size):
    piece = b"y" * 65536
    for _ in range(size // len(piece)):
        os.write(1, piece)
for line in sys.stdin:
    asked = json.loads(line)
    answer = eval(asked)
    print(json.dumps(answer), flush=True)
"""
"""The program inside: evaluates one expression for each line, with a few helpers at hand."""


@dataclass(frozen=True, slots=True)
class Rig:
    """What a conformance run works with.

    Attributes:
        backend: under test.
        plan: a baseline plan whose image has Python 3; its program is replaced.
        python: path of Python inside.
    """

    backend: Backend
    plan: SandboxPlan
    python: str = "/usr/bin/python3"

    def server(self, **parts: Any) -> SandboxPlan:
        """Return the plan with the program of this module, and parts replaced."""
        return dataclasses.replace(self.plan, argv=(self.python, "-I", "-u", "-c", PROGRAM), **parts)

    def limits(self, **parts: Any) -> LimitPlan:
        """Return the plan's limits with parts replaced."""
        return dataclasses.replace(self.plan.limits, **parts)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one row found; ``problem`` is empty when the promise holds."""

    id: str
    promise: str
    problem: str


class Session:
    """A running server that evaluates expressions."""

    def __init__(self, instance: Instance, recorder: MemoryRecorder) -> None:
        if instance.stream is None:
            raise TypeError("a stdio plan must come with a stream")
        self.instance = instance
        self.recorder = recorder
        self.stream: socket.socket = instance.stream
        self._raw = b""
        self._out = b""

    async def tell(self, expression: str) -> None:
        """Send an expression whose answer is not waited for."""
        await asyncio.get_running_loop().sock_sendall(self.stream, json.dumps(expression).encode() + b"\n")

    async def ask(self, expression: str) -> Any:
        """Return the value of an expression inside."""
        await self.tell(expression)
        async with asyncio.timeout(ANSWER_SECONDS):
            while b"\n" not in self._out:
                await self._receive()
        line, _, self._out = self._out.partition(b"\n")
        return json.loads(line)

    async def _receive(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self.stream, 1 << 16)
        if not data:
            raise ConnectionError("the server ended")
        self._raw += data
        while len(self._raw) >= HEADER:
            size = int.from_bytes(self._raw[4:HEADER], "big")
            if len(self._raw) < HEADER + size:
                return
            if self._raw[0] == 1:
                self._out += self._raw[HEADER : HEADER + size]
            self._raw = self._raw[HEADER + size :]


@contextlib.asynccontextmanager
async def session(rig: Rig, **parts: Any) -> AsyncIterator[Session]:
    """Yield a running server, stopped afterwards."""
    recorder = MemoryRecorder()
    instance = await rig.backend.launch(rig.server(**parts), Scope(recorder, Trace.new()), {})
    try:
        yield Session(instance, recorder)
    finally:
        await instance.stop(0)
        if instance.stream is not None:
            instance.stream.close()


Row = Callable[[Rig], Awaitable[str]]
"""Returns what is wrong, or nothing."""

_ROWS: Final[dict[str, tuple[str, Row]]] = {}


def _row(name: str, promise: str) -> Callable[[Row], Row]:
    def register(check: Row) -> Row:
        _ROWS[name] = (promise, check)
        return check

    return register


def rows() -> tuple[str, ...]:
    """Return the ids of all rows."""
    return tuple(_ROWS)


async def backend_conformance(rig: Rig, only: Iterable[str] | None = None) -> list[Finding]:
    """Run every row, or some, and return what each found.

    Args:
        rig: backend and plan.
        only: ids of rows; all when left out.
    """
    findings = []
    for name in rows() if only is None else only:
        promise, check = _ROWS[name]
        try:
            problem = await check(rig)
        except (SandboxError, OSError, TimeoutError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        findings.append(Finding(name, promise, problem))
    return findings


def _expect(name: str, expected: Any, found: Any) -> str:
    return "" if expected == found else f"{name}: expected {expected!r}, found {found!r}"


async def _value(rig: Rig, expression: str, **parts: Any) -> Any:
    async with session(rig, **parts) as inside:
        return await inside.ask(expression)


# --- isolation --------------------------------------------------------------------------------------------------------
@_row("no-network", "without egress there is no interface but lo, and nothing can be reached")
async def _no_network(rig: Rig) -> str:
    found = await _value(rig, "sorted(line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:])")
    if found != ["lo"]:
        return f"interfaces {found}"
    outcome = await _value(rig, "attempt(lambda: socket.create_connection(('198.51.100.1', 80), 2))")
    return "" if outcome != "OK" else "a connection was made"


@_row("read-only-root", "the file system is read-only but for planned mounts and /tmp")
async def _read_only_root(rig: Rig) -> str:
    places = ("/x", "/usr/x", "/etc/x", "/var/x", "/proc/sys/kernel/core_pattern", "/sys/power/state")
    found = await _value(rig, f"[attempt(lambda: write(path)) for path in {places!r}]")
    return "" if "OK" not in found else f"written: {dict(zip(places, found, strict=True))}"


@_row("no-capabilities", "all five capability sets are empty, for good")
async def _no_capabilities(rig: Rig) -> str:
    found = await _value(rig, "[line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]")
    return _expect("capabilities", ["0" * 16] * 5, found)


@_row("not-root", "the server's user is the planned one and cannot be changed")
async def _not_root(rig: Rig) -> str:
    uid, _, gid = rig.plan.user.partition(":")
    found = await _value(rig, "[*os.getresuid(), *os.getresgid(), attempt(lambda: os.setuid(0))]")
    return _expect("ids and setuid(0)", [int(uid)] * 3 + [int(gid)] * 3 + ["EPERM"], found)


@_row("filtered-calls", "no new privileges, a filter of system calls, no tracing and no namespaces")
async def _filtered_calls(rig: Rig) -> str:
    lines = "{line.split()[0]: line.split()[1] for line in open('/proc/self/status') if line[:4] in ('NoNe', 'Secc')}"
    status = await _value(rig, lines)
    if (status.get("NoNewPrivs:"), status.get("Seccomp:")) != ("1", "2"):
        return f"status {status}"
    calls = (
        "[outcome(libc.ptrace(0, 0, 0, 0)), outcome(libc.unshare(0x10000000)), outcome(libc.mount(0, b'/', 0, 0, 0))]"
    )
    return _expect("ptrace, unshare, mount", ["EPERM"] * 3, await _value(rig, calls))


@_row("bounded-scratch", "scratch space is bounded in bytes and holds no programs")
async def _bounded_scratch(rig: Rig) -> str:
    size = rig.plan.tmpfs[0].size_bytes
    found = await _value(
        rig, "[os.statvfs('/tmp').f_frsize * os.statvfs('/tmp').f_blocks, os.statvfs('/tmp').f_flag & 14]"
    )
    return _expect("size and nosuid, nodev, noexec", [size, 14], found)


@_row("own-processes", "only the server's own processes are visible")
async def _own_processes(rig: Rig) -> str:
    found = await _value(rig, "len([name for name in os.listdir('/proc') if name.isdigit()])")
    return "" if found <= 2 else f"{found} processes"  # noqa: PLR2004 - an init and the server


@_row("planned-variables", "the environment is the planned one")
async def _planned_variables(rig: Rig) -> str:
    env = (EnvEntry("PATH", "/usr/bin"), EnvEntry("HOME", "/tmp"), EnvEntry("ODD", "a=b\n'\"$(id)"))  # noqa: S108 - inside
    found = await _value(rig, "{k: v for k, v in os.environ.items() if k != 'LC_CTYPE'}", env=env)
    return _expect("variables", {entry.name: entry.value for entry in env}, found)


@_row("no-engine", "no container engine is reachable from inside")
async def _no_engine(rig: Rig) -> str:
    places = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
    return _expect("sockets", [], await _value(rig, f"[path for path in {places!r} if os.path.exists(path)]"))


@_row("bounded-processes", "processes and threads are bounded")
async def _bounded_processes(rig: Rig) -> str:
    made = await _value(rig, "forks(200)", limits=rig.limits(pids=32))
    return "" if 0 < made < 32 else f"{made} processes with a bound of 32"  # noqa: PLR2004 - the bound


@_row("bounded-memory", "memory beyond the bound ends what takes it, and nothing else")
async def _bounded_memory(rig: Rig) -> str:
    async with session(rig, limits=rig.limits(memory_bytes=64 * MIB)) as inside:
        return _expect("signal", SIGKILL, await inside.ask(f"hog({256 * MIB})")) or _expect(
            "survivor", 1, await inside.ask("1")
        )


# --- life -------------------------------------------------------------------------------------------------------------
@_row("recorded", "intent is recorded before an effect and its outcome after it")
async def _recorded(rig: Rig) -> str:
    async with session(rig) as inside:
        recorder = inside.recorder
    expected = [(name, phase) for name in ("launch.create", "launch.stop") for phase in ("intent", "outcome")]
    return _expect("record", expected, recorder.phases())


@_row("unrecordable", "a launch that cannot be recorded does not happen")
async def _unrecordable(rig: Rig) -> str:
    for phase in ("intent", "outcome"):
        recorder = MemoryRecorder(fails_at=frozenset({f"launch.create/{phase}"}))
        try:
            instance = await rig.backend.launch(rig.server(), Scope(recorder, Trace.new()), {})
        except AuditUnavailable:
            continue
        await instance.stop(0)
        return f"it was launched without its {phase}"
    return ""


@_row("exit-status", "the server's own end is told as a value")
async def _exit_status(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.tell("os._exit(7)")
        return _expect("status", ExitStatus(7), await asyncio.wait_for(inside.instance.wait(), ANSWER_SECONDS))


@_row("end-of-input", "a server that leaves at the end of its input is not killed")
async def _end_of_input(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.ask("1")
        return _expect("status", 0, (await inside.instance.stop(ANSWER_SECONDS)).code)


@_row("killed", "a server that ignores everything is gone within its grace")
async def _killed(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.ask("1")
        await inside.tell("stubborn()")
        async with asyncio.timeout(1.0 + KILL_SECONDS):
            return _expect("status", 137, (await inside.instance.stop(1.0)).code)


@_row("stopped-once", "stopping twice, or at once, is stopping once")
async def _stopped_once(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.ask("1")
        first, second = await asyncio.gather(inside.instance.stop(2.0), inside.instance.stop(2.0))
        return _expect("status", [first] * 2, [second, await inside.instance.stop(0)])


@_row("frozen", "a frozen server does nothing until it is thawed")
async def _frozen(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.ask("1")
        await inside.instance.pause()
        asking = asyncio.ensure_future(inside.ask("2"))
        done, _ = await asyncio.wait([asking], timeout=0.3)
        await inside.instance.unpause()
        return "it answered while frozen" if done else _expect("answer", 2, await asking)


@_row("backpressure", "output that nobody reads stops the server instead of filling memory")
async def _backpressure(rig: Rig) -> str:
    async with session(rig) as inside:
        await inside.ask("1")
        await inside.tell(f"flood({FLOOD_BYTES})")
        await asyncio.sleep(1.0)
        done, _ = await asyncio.wait([asyncio.ensure_future(inside.instance.wait())], timeout=0.1)
        inside.stream.shutdown(socket.SHUT_WR)
        return "" if not done else "it wrote everything though nobody read"


@_row("no-image", "an image that is not present is refused, never pulled")
async def _no_image(rig: Rig) -> str:
    absent = "sha256:" + "1" * 64
    if await rig.backend.image(absent) is not None:
        return "it claims to have an image that does not exist"
    try:
        instance = await rig.backend.launch(rig.server(image_id=absent), Scope(MemoryRecorder(), Trace.new()), {})
    except SandboxError:
        return ""
    await instance.stop(0)
    return "it launched an image that does not exist"
