"""A stronger runtime that a plan names is used, or the launch is refused; it is never replaced (gVisor's runsc)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import PlatformError, ReadbackMismatch
from sandbox.launch.engine import Engine
from sandbox.launch.interface import LABEL_RUN
from tests.conftest import ENGINE_SOCKET
from tests.probe_kit import Inside, backend_for, probe_image, probe_plan, sandboxed, scope, with_label
from tests.second_engine import second_engine

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-08")]

ARGUMENTS = ["--platform=ptrace", "--network=none", "--oci-seccomp"]
RELOAD_SECONDS = 30


@pytest.fixture(scope="module")
def engine_with_runsc() -> Iterator[str]:
    """The socket of an engine that learned of runsc while it ran."""
    path = shutil.which("runsc")
    if path is None:
        pytest.skip("gVisor is not installed: apt-get install runsc")
    with second_engine() as engine:
        engine.configure({"runtimes": {"runsc": {"path": path, "runtimeArgs": ARGUMENTS}}})
        deadline = time.monotonic() + RELOAD_SECONDS
        while "runsc" not in asyncio.run(Engine(engine.socket).info())["Runtimes"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield str(engine.socket)


@pytest.fixture
async def inside(engine_with_runsc: str) -> AsyncIterator[Inside]:
    """A probe under gVisor."""
    async with backend_for(engine_with_runsc) as backend:
        plan = probe_plan(image_id=probe_image(socket_path=engine_with_runsc), runtime="runsc")
        async with sandboxed(plan, backend) as probe:
            yield probe


async def test_a_plan_runs_on_the_runtime_it_names(inside: Inside) -> None:
    """The server talks to gVisor's kernel and not to the host's."""
    _, version = await inside.read("/proc/version")
    host = await asyncio.to_thread(Path("/proc/version").read_text)

    assert (True, False) == (version.startswith("Linux version 4.4.0 "), version == host)


async def test_the_profile_holds_under_gvisor(inside: Inside) -> None:
    """With --oci-seccomp gVisor applies the plan's profile, and the rest of the baseline holds too."""
    status = await inside.status()
    refused = [await inside.errno("ptrace", 0, 0, 0, 0), await inside.errno("unshare", 0x10000000)]
    written = await inside.ask("fill", "/etc/x", 1)
    bounded = await inside.ask("fill", "/tmp/x", 64 << 20)

    assert ("2", "65532", "0" * 16) == (status["Seccomp"], status["Uid"].split()[0], status["CapEff"])
    assert ["EPERM", "EPERM"] == refused
    assert (True, True) == (written["errno"] in {"EROFS", "EACCES"}, bounded["errno"] in {"ENOSPC", "EFBIG"})


async def test_what_cannot_be_seen_is_recorded(inside: Inside) -> None:
    """The server's process is gVisor's own and not visible to this kernel; the record says so."""
    assert inside.recorder is not None
    [outcome] = [fact for fact in inside.recorder.named("launch.create") if fact.phase == "outcome"]

    assert ["process"] == outcome.attrs["unseen"]


async def test_a_runtime_that_is_absent_is_refused() -> None:
    """Asked for and absent is refused, and nothing is made."""
    async with backend_for() as backend:
        with pytest.raises(PlatformError) as caught:
            await backend.launch(probe_plan(runtime="runsc-that-is-absent"), scope(), {})

        assert ("LAUNCH-021", []) == (caught.value.id, await with_label(f"{LABEL_RUN}={backend.run_id}"))


async def test_a_runtime_that_is_replaced_silently_is_found(engine_with_runsc: str) -> None:
    """An engine that runs runc where runsc was planned is caught by the read-back."""

    class Replacing(Engine):
        async def create(self, body: Any, name: str) -> tuple[str, tuple[str, ...]]:
            return await super().create({**body, "HostConfig": {**body["HostConfig"], "Runtime": "runc"}}, name)

    plan = probe_plan(image_id=probe_image(socket_path=engine_with_runsc), runtime="runsc")
    async with backend_for(engine_with_runsc) as backend:
        backend.engine = Replacing(engine_with_runsc)
        with pytest.raises(ReadbackMismatch) as caught:
            await backend.launch(plan, scope(), {})

    assert ["HostConfig.Runtime"] == [item.field for item in caught.value.differences]


async def test_the_usual_runtime_is_not_gvisor() -> None:
    """Positive control: without asking for it, the server sees the host's kernel."""
    assert ENGINE_SOCKET.exists()
    async with sandboxed() as probe:
        _, version = await probe.read("/proc/version")

    assert not version.startswith("Linux version 4.4.0 ")
