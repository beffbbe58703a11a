"""A container that is created otherwise than planned, in any field, never reaches a client.

Each mutation changes one field between the plan and the engine, as a bug, a plugin or an engine that ignores options
would. It is detected twice: by the engine's own description, and, for whatever the kernel can tell, against an engine
that lies and repeats what it was asked.
"""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import PlatformError, ReadbackMismatch
from sandbox.launch.engine import Engine
from sandbox.launch.interface import LABEL_RUN
from sandbox.limits import MIB
from sandbox.plan.model import Mount
from tests.conftest import ENGINE_SOCKET
from tests.probe_kit import PREFIX, backend_for, probe_plan, sandboxed, scope, with_label

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-02")]

Body = dict[str, Any]

VOLUME = f"{PREFIX}-mutation"
CGROUPS = Path("/sys/fs/cgroup")


def host(**values: Any) -> Callable[[Body], None]:
    """Return a mutation of host options."""
    return lambda body: body["HostConfig"].update(values)


def config(**values: Any) -> Callable[[Body], None]:
    """Return a mutation of container options."""
    return lambda body: body.update(values)


def mount(**values: Any) -> Callable[[Body], None]:
    """Return a mutation of the planned bind."""
    return lambda body: body["HostConfig"]["Mounts"][0].update(values)


def unlimited(name: str) -> Callable[[Body], None]:
    """Return a mutation that leaves out one process limit."""

    def mutate(body: Body) -> None:
        kept = [item for item in body["HostConfig"]["Ulimits"] if item["Name"] != name]
        body["HostConfig"]["Ulimits"] = kept

    return mutate


# name → (mutation, whether the kernel shows it even if the engine lies)
MUTATIONS: dict[str, tuple[Callable[[Body], None], bool]] = {
    "privileged": (host(Privileged=True), True),
    "capability added": (host(CapAdd=["NET_ADMIN"]), True),
    "capabilities kept": (host(CapDrop=[]), True),
    "capability kept in the bounding set": (host(CapDrop=["ALL"], CapAdd=["CHOWN"]), True),
    "seccomp unconfined": (host(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]), True),
    "seccomp of the engine": (host(SecurityOpt=["no-new-privileges"]), False),
    # Without it runc loads the filter before it drops root, and our profile lets nobody change ids: hence both.
    "new privileges": (host(SecurityOpt=["seccomp=unconfined"]), True),
    "writable root": (host(ReadonlyRootfs=False), True),
    "user root": (config(User="0:0"), True),
    "group root": (config(User="65532:0"), True),
    "supplementary group": (host(GroupAdd=["0"]), True),
    "host pid namespace": (host(PidMode="host"), True),
    "host ipc namespace": (host(IpcMode="host"), True),
    "shareable ipc namespace": (host(IpcMode="shareable"), False),
    "host uts namespace": (lambda body: (body.pop("Hostname"), host(UTSMode="host")(body)), True),
    "host cgroup namespace": (host(CgroupnsMode="host"), True),
    "host network": (lambda body: (body.pop("Hostname"), host(NetworkMode="host")(body)), True),
    "bridge network": (host(NetworkMode="bridge"), False),
    "no memory limit": (host(Memory=0, MemorySwap=0), True),
    "more memory": (host(Memory=256 * MIB, MemorySwap=256 * MIB), True),
    "swap": (host(MemorySwap=-1), True),
    "no pids limit": (host(PidsLimit=-1), True),
    "more pids": (host(PidsLimit=65), True),
    "no cpu limit": (host(NanoCpus=0), True),
    "more cpu": (host(NanoCpus=2_000_000_000), True),
    "no descriptor limit": (unlimited("nofile"), True),
    "no file size limit": (unlimited("fsize"), True),
    "no core limit": (unlimited("core"), True),
    "no oom kill": (host(OomKillDisable=True), False),
    "oom score": (host(OomScoreAdj=500), False),
    "device": (
        host(Devices=[{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]),
        False,
    ),
    "device rule": (host(DeviceCgroupRules=["c 1:1 rwm"]), False),
    "root bind": (host(Binds=["/:/var:ro"]), True),
    "engine socket": (host(Binds=[f"{ENGINE_SOCKET}:/var/docker.sock:ro"]), True),
    "anonymous volume": (config(Volumes={"/var": {}}), True),
    "named volume": (host(Binds=[f"{VOLUME}:/var"]), True),
    "bind writable": (mount(ReadOnly=False), True),
    "bind of another folder": (mount(Source="/etc"), True),
    "bind left out": (host(Mounts=[]), True),
    "bind of another propagation": (mount(BindOptions={"Propagation": "rprivate", "NonRecursive": True}), False),
    "bind recursive": (mount(BindOptions={"Propagation": "private", "NonRecursive": False}), True),
    "tmpfs without bound": (host(Tmpfs={"/tmp": "rw,noexec,nosuid,nodev"}), True),
    "tmpfs executable": (host(Tmpfs={"/tmp": f"rw,exec,nosuid,nodev,size={16 * MIB},nr_inodes=1024"}), True),
    "tmpfs left out": (host(Tmpfs={}), True),
    "tmpfs too many": (
        lambda body: body["HostConfig"]["Tmpfs"].update({"/var": f"size={MIB}"}),
        True,
    ),
    "shared memory": (host(ShmSize=1024 * MIB), True),
    "nothing masked": (host(MaskedPaths=[]), True),
    "nothing read-only": (host(ReadonlyPaths=[]), True),
    "one mask left out": (lambda body: body["HostConfig"]["MaskedPaths"].remove("/proc/keys"), True),
    "log on disk": (host(LogConfig={"Type": "json-file", "Config": {}}), False),
    "restart": (host(RestartPolicy={"Name": "always"}), False),
    "automatic removal": (host(AutoRemove=True), False),
    "no init": (host(Init=False), False),
    "sysctl": (host(Sysctls={"kernel.msgmax": "1"}), False),
    "extra host": (host(ExtraHosts=["metadata:169.254.169.254"]), False),
    "resolver": (host(Dns=["198.51.100.53"]), False),
    "terminal": (config(Tty=True), False),
    "health check": (config(Healthcheck={"Test": ["CMD", "/probe", "exit", "0"]}), False),
    "other program": (config(Entrypoint=["/probe", "sleep"]), False),
    "arguments": (config(Cmd=["sleep"]), False),
    "variable": (lambda body: body["Env"].append("LD_PRELOAD=/evil.so"), False),
    "folder": (config(WorkingDir="/var"), False),
    "stop signal": (config(StopSignal="SIGWINCH"), False),
    "published port": (host(PublishAllPorts=True), False),
    "cgroup parent": (host(CgroupParent=f"/{PREFIX}"), False),
}


class Mutating(Engine):
    """An engine that is asked for something other than what was planned."""

    def __init__(self, mutation: Callable[[Body], Any], *, lies: bool) -> None:
        super().__init__(ENGINE_SOCKET)
        self.mutation = mutation
        self.lies = lies
        self.asked: Body = {}

    async def create(self, body: Mapping[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
        """Change the request on its way."""
        self.asked = copy.deepcopy(dict(body))
        changed = copy.deepcopy(self.asked)
        self.mutation(changed)
        assert changed != self.asked
        return await super().create(changed, name)

    async def inspect(self, container: str) -> dict[str, Any]:
        """Tell the truth, or repeat what was asked."""
        found = await super().inspect(container)
        if self.lies:
            asked = {name: value for name, value in self.asked.items() if name != "HostConfig"}
            found["Config"] = asked
            found["HostConfig"] = self.asked["HostConfig"]
            found["Path"], found["Args"] = asked["Entrypoint"][0], [*asked["Entrypoint"][1:], *asked["Cmd"]]
            found["Mounts"] = [
                {
                    "Type": "bind",
                    "Source": item["Source"],
                    "Destination": item["Target"],
                    "RW": not item["ReadOnly"],
                    "Propagation": item["BindOptions"]["Propagation"],
                }
                for item in self.asked["HostConfig"]["Mounts"]
            ]
            found["NetworkSettings"] = {"Networks": {"none": {}}}
        return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder to bind, with a mount of its own below it where this process may make one."""
    tmp_path.chmod(0o755)
    (tmp_path / "root" / "inner").mkdir(parents=True)
    return tmp_path / "root"


async def launch(engine: Engine, folder: Path) -> tuple[ReadbackMismatch, list[str]]:
    """Return the mismatch of a launch over a mutating engine, and what it left."""
    plan = probe_plan(mounts=(Mount(str(folder), "/data", writable=False),))
    async with backend_for() as backend:
        backend.engine = engine
        with pytest.raises(PlatformError) as caught:
            await backend.launch(plan, scope(), {})
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")
    await engine.remove_volume(VOLUME)
    for made in CGROUPS.glob(f"*/{PREFIX}"):
        made.rmdir()
    assert isinstance(caught.value, ReadbackMismatch), caught.value
    return caught.value, remains


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_container_made_otherwise_is_refused_by_the_engines_word(name: str, root: Path) -> None:
    """One field that differs from the plan stops the launch, and the container is gone."""
    mutation, _ = MUTATIONS[name]
    error, remains = await launch(Mutating(mutation, lies=False), root)

    assert ("LAUNCH-030", [], True) == (error.id, remains, len(error.differences) > 0)


@pytest.mark.parametrize("name", [name for name, (_, visible) in MUTATIONS.items() if visible])
async def test_a_container_made_otherwise_is_refused_by_the_kernels_word(
    name: str, root: Path, request: pytest.FixtureRequest
) -> None:
    """An engine that repeats what it was asked and does something else is caught by the running process."""
    if name == "bind recursive":
        request.getfixturevalue("inner_mount")
    mutation, _ = MUTATIONS[name]
    error, remains = await launch(Mutating(mutation, lies=True), root)

    fields = [item.field for item in error.differences]
    assert ([], True) == (remains, bool(fields))
    assert [] == [field for field in fields if not field.startswith(("kernel.", "namespaces"))]


@pytest.fixture
def inner_mount(root: Path) -> Any:
    """A file system mounted below the folder, as a user's own may be."""
    import subprocess

    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system for this test")
    subprocess.run(["mount", "-t", "tmpfs", PREFIX, str(root / "inner")], check=True)
    yield root / "inner"
    subprocess.run(["umount", str(root / "inner")], check=True)


@pytest.mark.claim("P-LAUNCH-04")
async def test_a_mount_below_a_read_only_root_is_not_there(inner_mount: Path) -> None:
    """A file system that is mounted below a read-only root does not come along (it would stay writable)."""
    (inner_mount / "secret").write_text("x")
    plan = probe_plan(mounts=(Mount(str(inner_mount.parent), "/data", writable=False),))
    async with sandboxed(plan) as probe:
        names = (await probe.ask("ls", "/data/inner"))["names"]
        written = await probe.ask("fill", "/data/inner/x", 1)

    assert ([], "EROFS", ["secret"]) == (names, written["errno"], [path.name for path in inner_mount.iterdir()])


async def test_a_root_that_is_swapped_for_a_link_is_found(tmp_path: Path) -> None:
    """A folder that becomes a link to another place between plan and start is not handed out (probe F07, D04)."""
    tmp_path.chmod(0o755)
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("x")

    def swap(body: Body) -> None:
        body["Labels"]["swapped"] = "1"
        (tmp_path / "root").rename(tmp_path / "old")
        (tmp_path / "root").symlink_to(tmp_path / "elsewhere")

    error, remains = await launch(Mutating(swap, lies=True), tmp_path / "root")

    assert (["kernel.mounts[/data].source"], []) == ([item.field for item in error.differences], remains)
