"""What a driver, an image or an engine tries on the engine's side (probes D01 to D09)."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.errors import PlanRefused, PlatformError, SandboxError
from sandbox.launch import doctor, seccomp
from sandbox.launch.engine import Engine
from sandbox.launch.interface import LABEL_RUN
from sandbox.plan.model import EnvEntry, Mount
from tests.conftest import ENGINE_SOCKET
from tests.probe_kit import (
    PREFIX,
    backend_for,
    on_host,
    probe_image,
    probe_plan,
    sandboxed,
    scope,
    with_label,
)
from tests.probe_report import report
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-13")]

SOCKETS = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/var/run/docker/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
)


async def test_an_engine_inside() -> None:
    """D01: no engine's socket is inside, and no variable names one."""
    async with sandboxed() as inside, on_host(None) as control:
        found = {(await inside.ask("mode", path))["errno"] for path in SOCKETS}
        names = {entry.partition("=")[0] for entry in (await inside.ask("env"))["env"]}
        free = [path for path in SOCKETS if (await control.ask("mode", path))["errno"] == "OK"]

    assert ({"ENOENT"}, set(), True) == (found, names & {"DOCKER_HOST", "CONTAINER_HOST"}, bool(free))
    report("D01", "no socket, no variable", f"the host has {', '.join(free)}")


async def test_inspect_equals_the_plan() -> None:
    """D02: everything the engine tells of a running container is what was planned."""
    async with backend_for() as backend, sandboxed(probe_plan(), backend) as inside:
        described = await backend.engine.inspect(inside.container)
    host = described["HostConfig"]

    assert (False, [], ["ALL"], True) == (host["Privileged"], host["CapAdd"], host["CapDrop"], host["ReadonlyRootfs"])
    assert ("none", "private", "", "", "private") == tuple(
        host[name] for name in ("NetworkMode", "IpcMode", "PidMode", "UTSMode", "CgroupnsMode")
    )
    assert (True, 64, [], False, "no") == (
        host["Memory"] == host["MemorySwap"] > 0,
        host["PidsLimit"],
        host["Devices"],
        host["PublishAllPorts"],
        host["RestartPolicy"]["Name"],
    )
    assert ["no-new-privileges", f"seccomp={seccomp.load('nonet').text}"] == host["SecurityOpt"]
    report("D02", "equal; every field that is changed on its way is refused (test_readback_mutations.py)")


ODD = ("--privileged", "; rm -rf /", "$(id)", "-v=/:/host", "image --cap-add=ALL", "a\nb", "'\"", "\\", "--", "é")


async def test_injection_through_values() -> None:
    """D03: arguments, variables and names stay what they are; there is no shell and no option parser on the way."""
    env = (EnvEntry("LABEL", 'x","Privileged":true,"y":"'), EnvEntry("OPTION", "--privileged\n-v /:/host"))
    async with backend_for() as backend:
        plan = probe_plan(argv=("/probe", *ODD), env=env, driver_id='x" --privileged', driver_version="../../x\n")
        async with sandboxed(plan, backend) as inside:
            line = (await inside.read("/proc/self/cmdline"))[1].split("\0")[:-1]
            variables = set((await inside.ask("env"))["env"])
            described = await backend.engine.inspect(inside.container)

    assert ["/probe", *ODD] == line
    assert {f"{entry.name}={entry.value}" for entry in env} == variables - {"HOME=/"}
    assert (False, True) == (described["HostConfig"]["Privileged"], described["Name"].startswith("/mcp-sandbox-"))
    report("D03", "every value arrives literally; what a manifest may say is with spec and plan")


@pytest.mark.parametrize("name", ["a:b", "a,ro=false", "a b", "a\\040b", "ä", 'a"b', "a'b", "a;b", "-x"])
async def test_odd_names_of_mounts(name: str, tmp_path: Path) -> None:
    """D04: a root whose name reads like options is mounted as itself, read-only, and nowhere else."""
    tmp_path.chmod(0o755)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "note").write_text(name)
    plan = probe_plan(mounts=(Mount(str(folder), "/data", writable=False),))
    async with sandboxed(plan) as inside:
        read = await inside.read("/data/note")
        written = (await inside.ask("fill", "/data/x", 1))["errno"]

    assert (("OK", name), "EROFS") == (read, written)
    report(
        "D04",
        "odd names (colon, comma, quotes, escapes) mount as themselves; what may be mounted is with the plan",
    )


async def test_a_tag_that_moved() -> None:
    """D05: what runs is the image of the plan's digest, wherever its name points by now."""
    approved, other = probe_image(), probe_image({"Env": ["MOVED=1"]})
    engine = Engine(ENGINE_SOCKET)
    tag = {"repo": f"{PREFIX}/moving", "tag": "1"}
    await engine.call("POST", f"/images/{approved}/tag", what="tag", query=tag)
    plan = probe_plan(image_id=approved, image_named=f"{PREFIX}/moving:1")
    await engine.call("POST", f"/images/{other}/tag", what="tag", query=tag)
    try:
        async with backend_for() as backend, sandboxed(plan, backend) as inside:
            described = await backend.engine.inspect(inside.container)
            pointed = await engine.image(f"{PREFIX}/moving:1")
    finally:
        await engine.call("DELETE", f"/images/{PREFIX}/moving:1", what="untag")

    assert (approved, other) == (described["Image"], pointed["Id"])
    report("D05", "the approved digest runs", "the name points to another image")


async def test_an_images_own_configuration() -> None:
    """D06: USER, ENTRYPOINT, HEALTHCHECK, ENV and the like of an image have no effect; a VOLUME is refused."""
    image = probe_image(
        {"User": "0", "Entrypoint": ["/probe", "exit", "1"], "Healthcheck": {"Test": ["CMD", "/probe"]}}
    )
    async with sandboxed(probe_plan(image_id=image)) as inside:
        status = await inside.status()
    async with backend_for() as backend:
        with pytest.raises(PlanRefused) as caught:
            await backend.launch(probe_plan(image_id=probe_image({"Volumes": {"/x": {}}})), scope(), {})
        volumes = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert ("65532", "LAUNCH-011", []) == (status["Uid"].split()[0], caught.value.id, volumes)
    report("D06", "overridden; VOLUME refused (test_launch.py)")


def test_preflight() -> None:
    """D07: the doctor says machine-readably what this host lacks; a missing control is a failure, not a shrug."""
    checks = {check.id: check for check in doctor.diagnose({"DOCKER_HOST": f"unix://{ENGINE_SOCKET}"})}

    assert {
        "engine.api",
        "seccomp",
        "limits.memory",
        "limits.swap",
        "limits.pids",
        "limits.cpu",
        "cgroup",
        "lsm",
    } <= set(checks)
    assert all(check.fix for check in checks.values() if check.status != "ok")
    lacking = sorted(name for name, check in checks.items() if check.status != "ok")
    report("D07", f"{len(checks)} checks; on this host not ok: {', '.join(lacking)}")


async def test_a_profile_that_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D08: a profile that was changed, is broken, or is not the planned one stops the start."""
    shipped = seccomp.shipped
    broken = tmp_path / "nonet.json"

    def elsewhere(kind: str, *parts: str) -> Path:
        return broken if parts[-1:] == ("nonet.json",) else shipped(kind, *parts)

    plan = probe_plan()
    outcomes = []
    async with backend_for() as backend:
        monkeypatch.setattr(seccomp, "shipped", elsewhere)
        for change in ({"defaultAction": "SCMP_ACT_ALLOW"}, {"defaultErrnoRet": 38}, {"syscalls": [{"names": ["x"]}]}):
            broken.write_text(
                json.dumps({**json.loads(shipped("policies", "seccomp", "nonet.json").read_text()), **change})
            )
            with pytest.raises((PlatformError, PlanRefused)) as caught:
                await backend.launch(plan, scope(), {})
            outcomes.append(caught.value.id)
        broken.write_text("{")
        with pytest.raises((SandboxError, ValueError)):
            await backend.launch(plan, scope(), {})
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert (["LAUNCH-012", "LAUNCH-013", "LAUNCH-012"], []) == (outcomes, remains)
    report("D08", "refused before anything is made; an engine that leaves it out is found by the read-back")


async def test_side_doors() -> None:
    """D09: the backend never executes or copies anything in a running container, and finds it when somebody does."""
    sources = [
        path for path in (ROOT / "sandbox").rglob("*.py") if "images" not in path.parts and "install" not in path.parts
    ]
    used = [
        path.name for path in sources for word in ("/exec", "/archive", "/commit") if f"}}{word}" in path.read_text()
    ]

    assert [] == used
    report("D09", "no exec, no copy, no commit in the launch stage; a running exec is a difference in the read-back")
