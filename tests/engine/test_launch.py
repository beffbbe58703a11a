"""Plans become running servers on a real engine, and every failure leaves nothing behind."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import AuditUnavailable, PlanRefused, PlatformError, SandboxError, ServerFault
from sandbox.events import Scope, Trace
from sandbox.launch import translate
from sandbox.launch.docker import DockerBackend
from sandbox.launch.interface import LABEL_PLAN, LABEL_ROLE, LABEL_RUN, ExitStatus, Usage
from sandbox.limits import MIB
from sandbox.plan.model import EnvEntry, LimitPlan, Mount, NetworkPlan, SandboxPlan, Tmpfs
from sandbox.testing.memory import MemoryRecorder
from tests.probe_kit import backend_for, probe_image, probe_plan, sandboxed, scope, with_label

pytestmark = [pytest.mark.engine, pytest.mark.anyio]


async def left(backend: DockerBackend) -> list[str]:
    """Return what of a backend's run exists."""
    return await with_label(f"{LABEL_RUN}={backend.run_id}")


def limits(**parts: Any) -> LimitPlan:
    """Return the test bounds with parts replaced."""
    return dataclasses.replace(probe_plan().limits, **parts)


# --- starting ---------------------------------------------------------------------------------------------------------
async def test_a_plan_runs_and_answers() -> None:
    """The program starts with exactly its arguments, its variables and its folder."""
    plan = probe_plan(
        env=(EnvEntry("PATH", "/bin"), EnvEntry("EMPTY"), EnvEntry("TEXT", "a=b c\n'\"$(id)")), workdir="/data"
    )
    async with sandboxed(plan) as probe:
        env = (await probe.ask("env"))["env"]
        cwd = (await probe.ask("cwd"))["cwd"]

    assert {"PATH=/bin", "EMPTY=", "TEXT=a=b c\n'\"$(id)"} == set(env) - {"HOME=/"}
    assert "/data" == cwd


async def test_intent_is_recorded_before_and_outcome_after() -> None:
    """The record of a life is: about to create, created, about to stop, stopped."""
    async with sandboxed() as probe:
        recorder = probe.recorder
    assert recorder is not None

    expected = [(name, phase) for name in ("launch.create", "launch.stop") for phase in ("intent", "outcome")]
    assert expected == recorder.phases()


async def test_the_container_is_labelled_for_reaping() -> None:
    """Run, owner, plan and role stand on the container."""
    async with backend_for() as backend:
        plan = probe_plan()
        async with sandboxed(plan, backend) as probe:
            labels = (await backend.engine.inspect(probe.container))["Config"]["Labels"]

    assert (backend.run_id, plan.digest(), "server") == (labels[LABEL_RUN], labels[LABEL_PLAN], labels[LABEL_ROLE])


async def test_a_secret_reaches_the_environment_and_no_record() -> None:
    """A secret's value is in the process's environment and in no recorded fact."""
    plan = probe_plan(env=(EnvEntry("TOKEN", secret="api-token"),))
    recorder = MemoryRecorder()
    async with backend_for() as backend:
        instance = await backend.launch(plan, Scope(recorder, Trace.new()), {"api-token": "s3cret-value"})
        described = await backend.engine.inspect(instance.id)
        await instance.stop(0)
        instance.stream.close()

    assert "TOKEN=s3cret-value" in described["Config"]["Env"]
    assert "s3cret-value" not in repr(recorder.facts)


@pytest.mark.claim("P-LAUNCH-03")
async def test_an_image_cannot_weaken_the_plan() -> None:
    """ENTRYPOINT, CMD, USER, WORKDIR, ENV, HEALTHCHECK and STOPSIGNAL of an image have no effect (probe D06)."""
    image = probe_image(
        {
            "Entrypoint": ["/probe", "stubborn"],
            "Cmd": ["exit", "3"],
            "User": "0:0",
            "WorkingDir": "/var",
            "Env": ["LD_PRELOAD=/evil.so", "NODE_OPTIONS=--require /evil.js", "PATH=/evil"],
            "Healthcheck": {"Test": ["CMD", "/probe", "exit", "0"], "Interval": 1_000_000_000},
            "StopSignal": "SIGURG",
            "ExposedPorts": {"80/tcp": {}},
            "OnBuild": ["RUN id"],
            "Shell": ["/evil", "-c"],
            "Labels": {LABEL_RUN: "forged", "io.mcp-sandbox.owner": "forged"},
        }
    )
    async with backend_for() as backend, sandboxed(probe_plan(image_id=image), backend) as probe:
        env = set((await probe.ask("env"))["env"])
        status = await probe.status()
        cwd = (await probe.ask("cwd"))["cwd"]
        described = await backend.engine.inspect(probe.container)

    assert {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"} == env
    assert ("65532", "/") == (status["Uid"].split()[0], cwd)
    assert (None, backend.run_id) == (described["State"].get("Health"), described["Config"]["Labels"][LABEL_RUN])


@pytest.mark.claim("P-LAUNCH-03")
async def test_a_volume_of_an_image_is_refused_and_nothing_is_made() -> None:
    """A VOLUME would be writable disk of the host without bound (probe D06)."""
    async with backend_for() as backend:
        with pytest.raises(PlanRefused) as caught:
            await backend.launch(probe_plan(image_id=probe_image({"Volumes": {"/data": {}}})), scope(), {})

        assert ("LAUNCH-011", []) == (caught.value.id, await left(backend))


async def test_a_covered_volume_becomes_the_planned_tmpfs() -> None:
    """A tmpfs of the plan over an image's VOLUME leaves no volume in the engine."""
    plan = probe_plan(
        image_id=probe_image({"Volumes": {"/data": {}}}), tmpfs=(Tmpfs("/tmp", MIB, 64), Tmpfs("/data", MIB, 64))
    )
    async with sandboxed(plan) as probe:
        filled = await probe.ask("fill", "/data/x", 4 * MIB)

    assert ("ENOSPC", True) == (filled["errno"], filled["written"] <= MIB)


async def test_mounts_are_as_planned(tmp_path: Path) -> None:
    """A read-only root reads, a writable one writes, each at its place and nowhere else."""
    tmp_path.chmod(0o755)
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "in" / "note").write_text("hello")
    mounts = (Mount(f"{tmp_path}/in", "/data", writable=False), Mount(f"{tmp_path}/out", "/var/out", writable=True))
    async with sandboxed(probe_plan(mounts=mounts)) as probe:
        read = await probe.read("/data/note")
        refused = await probe.ask("fill", "/data/new", 10)
        written = await probe.ask("fill", "/var/out/new", 10)

    assert (("OK", "hello"), "EROFS", "OK") == (read, refused["errno"], written["errno"])
    assert (False, True) == ((tmp_path / "in" / "new").exists(), (tmp_path / "out" / "new").exists())


# --- refusals: nothing is left ----------------------------------------------------------------------------------------
async def refusal(
    plan: SandboxPlan, secrets: dict[str, str] | None = None
) -> tuple[SandboxError, list[str], list[Any]]:
    """Return the error of a launch, what it left, and what it recorded."""
    recorder = MemoryRecorder()
    async with backend_for() as backend:
        with pytest.raises(SandboxError) as caught:
            await backend.launch(plan, Scope(recorder, Trace.new()), secrets or {})
        return caught.value, await left(backend), recorder.phases()


@pytest.mark.parametrize(
    ("overrides", "kind", "expected"),
    [
        ({"image_id": "sha256:" + "1" * 64}, PlatformError, "LAUNCH-010"),
        ({"runtime": "no-such-runtime"}, PlatformError, "LAUNCH-021"),
        ({"mounts": (Mount("/nonexistent/x", "/data", writable=False),)}, PlatformError, "LAUNCH-022"),
        ({"mounts": (Mount("/etc/hostname", "/data", writable=False),)}, PlatformError, "LAUNCH-023"),
        ({"limits": {"nofile": 1 << 30}}, PlatformError, "LAUNCH-026"),
        ({"limits": {"memory_bytes": 1 << 20}}, PlatformError, "LAUNCH-027"),
        ({"limits": {"cpus": 4096.0}}, PlatformError, "LAUNCH-027"),
        ({"limits": {"pids": -1}}, PlatformError, "LAUNCH-030"),
        ({"user": "nobody-here"}, PlatformError, "LAUNCH-033"),
        ({"argv": ("/nope",), "init": False}, ServerFault, "LAUNCH-040"),
        ({"argv": ("/etc",), "init": False}, ServerFault, "LAUNCH-040"),
        ({"argv": ("no space left on device",), "init": False}, ServerFault, "LAUNCH-040"),
        ({"workdir": "/proc/self/fd/7"}, PlatformError, "LAUNCH-023"),
        ({"argv": ()}, PlanRefused, "LAUNCH-015"),
        ({"server_kind": "remote"}, PlanRefused, "LAUNCH-015"),
        ({"seccomp_digest": "sha256:" + "0" * 64}, PlanRefused, "LAUNCH-013"),
        ({"network": NetworkPlan("broker")}, PlanRefused, "LAUNCH-014"),
        ({"env": (EnvEntry("A", secret="none"),)}, PlanRefused, "LAUNCH-016"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_launch_that_fails_is_sorted_and_leaves_nothing(
    overrides: dict[str, Any], kind: type[SandboxError], expected: str
) -> None:
    """Whatever stops a launch has an id and a culprit, and no container remains."""
    if "limits" in overrides:
        overrides = {"limits": limits(**overrides["limits"])}
    error, remains, _ = await refusal(probe_plan(**overrides))

    assert (expected, True, []) == (error.id, isinstance(error, kind), remains)


async def test_a_program_that_ends_at_once_is_the_servers_fault() -> None:
    """A server that is gone before it is handed out is reported with its status, and removed."""
    async with backend_for() as backend:
        try:
            instance = await backend.launch(probe_plan(argv=("/probe", "exit", "7")), scope(), {})
        except ServerFault as fault:
            assert ("LAUNCH-041", True, []) == (fault.id, "status 7" in fault.message, await left(backend))  # noqa: PT017 - either outcome is right
        else:  # handed out before it ended: its client sees the end of the stream, and the status is told
            assert ExitStatus(7) == await instance.wait()
            instance.stream.close()


async def test_without_an_intent_there_is_no_container() -> None:
    """When the intent cannot be recorded durably the effect does not happen."""
    recorder = MemoryRecorder(fails_at=frozenset({"launch.create/intent"}))
    async with backend_for() as backend:
        with pytest.raises(AuditUnavailable):
            await backend.launch(probe_plan(), Scope(recorder, Trace.new()), {})

        assert [] == await left(backend)


async def test_without_an_outcome_the_container_is_removed() -> None:
    """A start that cannot be recorded is undone."""
    recorder = MemoryRecorder(fails_at=frozenset({"launch.create/outcome"}))
    async with backend_for() as backend:
        with pytest.raises(AuditUnavailable):
            await backend.launch(probe_plan(), Scope(recorder, Trace.new()), {})

        assert [] == await left(backend)


@pytest.mark.parametrize("after", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2])
async def test_a_cancelled_launch_leaves_nothing(after: float) -> None:
    """A client that goes away during a start, at any moment, leaves no container."""
    async with backend_for() as backend:
        task = asyncio.create_task(backend.launch(probe_plan(), scope(), {}))
        await asyncio.sleep(after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            instance = await task
            await instance.stop(0)
            instance.stream.close()
        await backend.close()

        assert [] == await left(backend)


# --- a life -----------------------------------------------------------------------------------------------------------
async def test_the_exit_status_is_told() -> None:
    """The server's own exit is a value, not an error."""
    async with sandboxed() as probe:
        await probe.ask("exit", 7)

        assert ExitStatus(7) == await probe.instance.wait()


async def test_an_out_of_memory_kill_is_told() -> None:
    """A server that the kernel kills for memory is told from one that ends by itself (probe R02)."""
    plan = probe_plan(argv=("/probe",), init=False, limits=limits(memory_bytes=32 * MIB))
    async with sandboxed(plan) as probe:
        hogged = await probe.ask("hog", 128 * MIB)
        await probe.ask("exit", 0)
        status = await probe.instance.wait()

    assert (9, True) == (hogged["signal"], status.oom_killed)


@pytest.mark.claim("P-LAUNCH-07")
async def test_a_server_that_ignores_everything_is_killed_within_its_grace() -> None:
    """Closed stdin and SIGTERM may be ignored, SIGKILL not; grandchildren in their own session go too (probe R08)."""
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(argv=("/probe", "stubborn")), scope(), {})
        pid = (await backend.engine.inspect(instance.id))["State"]["Pid"]
        cgroup = Path(f"/proc/{pid}/cgroup").read_text().splitlines()[0].rpartition(":")[2]
        started = time.monotonic()
        status = await instance.stop(1.0)
        took = time.monotonic() - started
        instance.stream.close()
        holders = [path for path in Path("/proc").glob("[0-9]*/cgroup") if cgroup in read(path)]

        assert (137, [], []) == (status.code, holders, await left(backend))
    assert took < 1.0 + 10


def read(path: Path) -> str:
    """Return a file of /proc, empty when its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


async def test_a_server_that_leaves_at_the_end_of_its_input_is_not_killed() -> None:
    """A well-behaved server ends by itself with its own status."""
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(), scope(), {})
        status = await instance.stop(10)
        instance.stream.close()

    assert ExitStatus(0) == status


async def test_stopping_twice_is_stopping_once() -> None:
    """Concurrent and repeated stops agree, also when the container was removed behind our back."""
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(), scope(), {})
        await backend.engine.remove(instance.id)
        first, second = await asyncio.gather(instance.stop(0.2), instance.stop(0.2))
        third = await instance.stop(0)
        instance.stream.close()

    assert first == second == third


async def test_a_frozen_server_does_nothing_until_it_is_thawed() -> None:
    """A paused instance uses no processor time and answers afterwards; it can also be stopped while frozen."""
    async with backend_for() as backend:
        async with sandboxed(probe_plan(), backend) as probe:
            await probe.instance.pause()
            await probe.send("cwd")
            frozen = [(await probe.instance.usage()).cpu_seconds for _ in range(2)]
            await probe.instance.unpause()
            answer = await probe.answer()
            await probe.instance.pause()

        assert (0, "/", []) == (frozen[1] - frozen[0], answer["cwd"], await left(backend))


async def test_figures_are_plausible() -> None:
    """Memory, its peak, processor time and processes are reported from the cgroup."""
    async with sandboxed() as probe:
        await probe.ask("hog", 8 * MIB)
        figures = await probe.instance.usage()

    assert 0 < figures.memory_bytes < 128 * MIB
    assert 8 * MIB < (figures.memory_peak_bytes or 16 * MIB) <= 128 * MIB
    assert (True, 2) == (0 < figures.cpu_seconds < 60, figures.pids)


async def test_a_server_that_ends_while_it_is_measured_has_no_figures() -> None:
    """Whenever its end falls between question and answer, who asks gets figures or none, never an error of ours."""
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(), scope(), {})
        control = await instance.usage()
        asked = [asyncio.create_task(instance.usage()) for _ in range(8)]
        await asyncio.sleep(0.1)
        await backend.engine.kill(instance.id, "SIGKILL")
        found = await asyncio.gather(*asked)
        await instance.wait()
        after = await instance.usage()
        await instance.stop(0)
        instance.stream.close()

        assert control.memory_bytes
        assert [] == [one for one in found if not one.memory_bytes and one != Usage()]
        assert (Usage(), []) == (after, await left(backend))


@pytest.mark.claim("P-LAUNCH-07")
async def test_a_lifetime_ends() -> None:
    """An instance does not outlive its planned lifetime, whoever holds it."""
    recorder = MemoryRecorder()
    async with backend_for() as backend:
        plan = probe_plan(limits=limits(lifetime=0.3))
        instance = await backend.launch(plan, Scope(recorder, Trace.new()), {})
        status = await asyncio.wait_for(instance.wait(), 30)
        instance.stream.close()

    assert (137, 1) == (status.code, len(recorder.named("launch.expired")))


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_a_life_on_uvloop() -> None:
    """The backend behaves the same on the loop that the product runs on."""
    async with sandboxed() as probe:
        await probe.instance.pause()
        await probe.instance.unpause()
        big = await probe.ask("cat", "/probe", 1 << 19)
        await probe.ask("exit", 7)
        status = await probe.instance.wait()

    assert ("OK", ExitStatus(7)) == (big["errno"], status)


async def test_closing_says_what_could_not_be_recorded() -> None:
    """When the end of a server cannot be recorded it ends all the same, and the failure is told."""
    recorder = MemoryRecorder(fails_at=frozenset({"launch.stop"}))
    async with backend_for() as backend:
        instance = await backend.launch(probe_plan(), Scope(recorder, Trace.new()), {})
        with pytest.raises(AuditUnavailable):
            await backend.close()
        instance.stream.close()

        assert [] == await left(backend)


async def test_many_start_and_stop_at_once() -> None:
    """Concurrent lives do not mix: each answers with its own variable, and nothing remains (probe R10)."""

    async def life(number: int) -> str:
        plan = probe_plan(env=(EnvEntry("NUMBER", str(number)),))
        async with sandboxed(plan, backend) as probe:
            return next(entry for entry in (await probe.ask("env"))["env"] if entry.startswith("NUMBER"))

    async with backend_for() as backend:
        found = await asyncio.gather(*(life(number) for number in range(8)))

        assert ([f"NUMBER={number}" for number in range(8)], []) == (found, await left(backend))


async def test_closing_the_backend_stops_everything() -> None:
    """What was started and forgotten ends with its backend."""
    async with backend_for() as backend:
        instances = [await backend.launch(probe_plan(), scope(), {}) for _ in range(2)]
        for instance in instances:
            instance.stream.close()
        await backend.close()

        assert [] == await left(backend)


async def test_a_request_is_what_was_translated() -> None:
    """The backend adds nothing to the translated request: what the engine was sent is what the plan became."""
    sent: list[dict[str, Any]] = []
    async with backend_for() as backend:
        create = backend.engine.create

        async def keeping(body: dict[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
            sent.append(body)
            return await create(body, name)

        backend.engine.create = keeping
        plan = probe_plan()
        async with sandboxed(plan, backend):
            pass

    body = sent[0]
    profile = body["HostConfig"]["SecurityOpt"][1].removeprefix("seccomp=")
    assert body == translate.create_request(plan, translate.Joined(), body["Labels"], {}, profile)
