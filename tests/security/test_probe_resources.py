"""What a hostile server tries to exhaust (probes R01 to R11), and what its neighbours notice."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.launch.interface import LABEL_RUN
from sandbox.limits import MIB
from sandbox.plan.model import LimitPlan, Tmpfs
from tests.probe_kit import (
    Answers,
    backend_for,
    call,
    on_host,
    plain_container,
    probe_binary,
    probe_plan,
    sandboxed,
    scope,
    with_label,
)
from tests.probe_report import report

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-12")]


def limits(**parts: Any) -> LimitPlan:
    """Return the test bounds with parts replaced."""
    return dataclasses.replace(probe_plan().limits, **parts)


async def slowest(probe: Answers, seconds: float) -> float:
    """Return the slowest of many questions to a neighbour."""
    worst, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        asked = time.monotonic()
        await probe.ask("cwd")
        worst = max(worst, time.monotonic() - asked)
    return worst


async def test_fork_bomb() -> None:
    """R01: forking ends at the bound, and a neighbour goes on answering."""
    async with sandboxed() as inside, sandboxed() as neighbour, plain_container() as control:
        bomb, worst = await asyncio.gather(inside.ask("forks", 2000), slowest(neighbour, 0.5))
        after = await inside.errno("getpid")
        free = await control.ask("forks", 200)

    assert ("EAGAIN", True, "OK") == (bomb["errno"], bomb["made"] < 64, after)
    assert ("OK", 200) == (free["errno"], free["made"])
    assert worst < 5
    report("R01", "EAGAIN below 64 processes; the neighbour answers", "200 of 200 in a plain container")


@pytest.mark.parametrize("way", ["memory", "tmpfs", "shared memory", "memory file"])
async def test_memory(way: str) -> None:
    """R02: memory in every form counts, and exceeding it kills inside the sandbox only."""
    plan = probe_plan(
        limits=limits(memory_bytes=32 * MIB, fsize_bytes=512 * MIB), tmpfs=(Tmpfs("/tmp", 256 * MIB, 1024),)
    )
    async with sandboxed(plan) as inside, sandboxed() as neighbour, plain_container() as control:
        free = await control.ask("hog", 64 * MIB)
        if way == "memory":
            found = (await inside.ask("hog", 64 * MIB))["signal"]
        elif way == "memory file":
            found = await grown(inside)
        else:
            found = await outcome(inside, "/tmp/x" if way == "tmpfs" else "/dev/shm/x")
        alive = await neighbour.errno("getpid")
        told = (await asyncio.wait_for(inside.instance.wait(), 30)).oom_killed if found == "ended" else True

    assert (0, "OK", True) == (free["status"], alive, told)
    assert found in {9, "signal 9", "ended", "ENOSPC", "ENOMEM"}
    words = {9: "SIGKILL", "signal 9": "SIGKILL", "ended": "the server is killed, recorded as out of memory"}
    report("R02", f"{way}: {words.get(found, found)}", "64 MiB OK in a plain container")


async def grown(probe: Answers) -> str:
    """Return what growing a memory file ends in."""
    steps = (("memfd_create", "s:x", 0), ("ftruncate", "r:0", 64 * MIB), ("fallocate", "r:0", 0, 0, 64 * MIB))
    try:
        return (await probe.errnos(*(call(*step) for step in steps)))[-1]
    except ConnectionError:
        return "ended"


async def outcome(probe: Answers, path: str) -> str:
    """Return what filling a file ends in; the program itself may be killed for it."""
    try:
        return str((await probe.ask("fill", path, 128 * MIB))["errno"])
    except ConnectionError:
        return "ended"


async def test_processor_time() -> None:
    """R03: busy threads get their share and not more."""
    async with sandboxed(probe_plan(limits=limits(cpus=0.5))) as inside, plain_container() as control:
        found = await inside.ask("spin", 4, 4000)
        free = [await control.ask("spin", 4, 1500) for _ in range(3)]  # other work may take the processor meanwhile

    share = found["cpu"] / found["wall"]
    unbounded = max(one["cpu"] / one["wall"] for one in free)
    assert share <= 0.5 * 1.1
    assert unbounded > share
    report("R03", "at most 0.55 of a core where 0.5 is granted, over 4 s", "more in a plain container")


async def test_descriptors() -> None:
    """R04: opening ends at the bound."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = await inside.ask("fds", 5000), await control.ask("fds", 1000)
        raised = await inside.errno("prlimit64", 0, 7, "x:" + "00100000000000000010000000000000", 0)

    assert ("EMFILE", True, "EPERM") == (found["errno"], found["opened"] < 256, raised)
    assert ("OK", 1000) == (free["errno"], free["opened"])
    report("R04", "EMFILE below 256; the bound cannot be raised", "1000 of 1000 in a plain container")


async def test_error_output_leaves_nothing_on_disk() -> None:
    """R06: what is written to stderr is not kept by the engine."""
    async with backend_for() as backend, sandboxed(probe_plan(), backend) as inside:
        await inside.send("flood", 2, 8 * MIB)
        await inside.answer()
        async with asyncio.timeout(60):
            while len(inside.stderr) < 8 * MIB:
                await inside._receive()
        described = await backend.engine.inspect(inside.container)
        folder = Path("/var/lib/docker/containers", inside.container)
        logs = [path.name for path in folder.glob("*.log*")] if folder.exists() else []

    assert ("", "none", []) == (described.get("LogPath", ""), described["HostConfig"]["LogConfig"]["Type"], logs)
    assert 8 * MIB == len(inside.stderr)
    report("R06", "8 MiB pass through and the engine keeps no log")


async def test_ignoring_signals_and_leaving_grandchildren() -> None:
    """R08: a server that ignores everything, with grandchildren in their own sessions, is gone after its grace."""
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(), scope(), {})
        await asyncio.get_running_loop().sock_sendall(instance.stream, b"stubborn\n")
        started = time.monotonic()
        status = await instance.stop(0.5)
        took = time.monotonic() - started
        instance.stream.close()
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")
    async with on_host() as control:
        await control.ask("stubborn")
        control.process.terminate()
        await asyncio.sleep(0.2)
        survives = control.process.returncode is None
        _kill_stubborn_orphans()

    assert (137, [], True) == (status.code, remains, survives)
    assert took < 0.5 + 10
    report(
        "R08", "SIGKILL after the grace; no process, container, network or volume left", "survives SIGTERM on the host"
    )


def _kill_stubborn_orphans() -> None:
    """End the control and its grandchild, which would hold its pipes: all that run this session's probe program."""
    for path in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            if path.readlink() == probe_binary():
                os.kill(int(path.parent.name), signal.SIGKILL)


async def test_the_supervisor_crashes() -> None:
    """R09: shown by tests/engine/test_teardown.py; here, that a container does not outlive its run's label."""
    async with backend_for() as backend:
        async with sandboxed(probe_plan(), backend):
            during = await with_label(f"{LABEL_RUN}={backend.run_id}")
        after = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert (1, 0) == (len(during), len(after))
    report("R09", "the watchdog removes everything after SIGKILL, at every stage of a launch (test_teardown.py)")


@pytest.mark.slow
async def test_a_storm_of_starts_and_stops() -> None:
    """R10: forty lives, eight at a time, in random order, with pauses and crashes: no leak and no mix-up."""
    order = random.Random(7)
    turns = asyncio.Semaphore(8)
    seen: list[str] = []

    async def life(number: int) -> None:
        async with turns, sandboxed(probe_plan(argv=("/probe", f"life-{number}")), backend) as probe:
            await asyncio.sleep(order.random() / 5)
            if order.random() < 0.3:
                await probe.instance.pause()
                await probe.instance.unpause()
            seen.append((await probe.read("/proc/self/cmdline"))[1].split("\0")[1])
            if order.random() < 0.3:
                await probe.ask("exit", number)

    async with backend_for() as backend:
        await asyncio.gather(*(life(number) for number in range(40)))
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert ({f"life-{number}" for number in range(40)}, 40, []) == (set(seen), len(seen), remains)
    report("R10", "40 lives, 8 at a time: each answers as itself, nothing left")
