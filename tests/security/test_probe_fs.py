"""What a hostile server tries with files (probes F01 to F22), inside a real sandbox, each beside its control."""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox.errors import SandboxError
from sandbox.launch.facts import path_facts
from sandbox.launch.interface import LABEL_RUN
from sandbox.limits import MIB
from sandbox.plan.model import Mount, SandboxPlan
from tests.probe_kit import (
    Answers,
    Inside,
    backend_for,
    call,
    on_host,
    plain_container,
    probe_binary,
    probe_image,
    probe_plan,
    sandboxed,
    scope,
    shipped_image,
    weak_container,
    with_label,
)
from tests.probe_report import report

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-10")]

AT_FDCWD = -100
O_WRONLY, O_CREAT, O_PATH = 1, 0o100, 0o10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SHARED = 1, 32, 4096, 16384, 1 << 20
S_IFIFO, S_IFCHR = 0o010000, 0o020000
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
SERVER = 65532


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that belongs to the server's user where this process may arrange that, with a file in it."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)  # pytest's own folders are private, one more of them for each worker
    path = tmp_path / "a"
    path.mkdir()
    (path / "note").write_text("inside")
    path.chmod(0o777)
    (path / "note").chmod(0o666)
    if os.geteuid() == 0:
        for item in (path, path / "note"):
            os.chown(item, SERVER, SERVER)
    return path


def rooted(path: Path, *, writable: bool = True) -> SandboxPlan:
    """Return a plan with one root at /data."""
    return probe_plan(mounts=(Mount(str(path), "/data", writable=writable),))


async def test_write_to_the_root_file_system() -> None:
    """F01: nothing is writable but /tmp and declared roots."""
    places = ("/probe-x", "/usr/x", "/etc/x", "/var/x", "/bin/x")
    async with sandboxed() as inside, plain_container() as control:
        found = {place: (await inside.ask("fill", place, 1))["errno"] for place in places}
        tmp = (await inside.ask("fill", "/tmp/x", 1))["errno"]
        free = {place: (await control.ask("fill", place, 1))["errno"] for place in places}

    assert ({"EROFS"}, "OK") == (set(found.values()), tmp)
    assert {"OK"} == set(free.values())
    report("F01", "EROFS at all five places; /tmp writable", "OK as root in a plain container")


async def test_flags_of_memory_file_systems() -> None:
    """F02: /tmp and /dev/shm are nosuid, nodev, noexec and bounded; /run is not mounted."""
    async with sandboxed() as inside, plain_container() as control:
        mounts = await table(inside)
        free = await table(control)

    for place in ("/tmp", "/dev/shm"):
        assert {"nosuid", "nodev", "noexec"} <= set(mounts[place][0])
        assert any(option.startswith("size=") for option in mounts[place][1])
    assert (False, False) == ("/run" in mounts, "/tmp" in free)
    report("F02", "nosuid,nodev,noexec,size= on /tmp and /dev/shm; no /run", "no tmpfs at /tmp in a plain container")


async def table(probe: Answers) -> dict[str, tuple[list[str], list[str]]]:
    """Return mount point → options of the mount and of its file system."""
    _, text = await probe.read("/proc/self/mountinfo")
    found = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        found[left.split()[4]] = (left.split()[5].split(","), right.split()[2].split(","))
    return found


async def copied_program(probe: Answers, place: str) -> dict[str, object]:
    """Copy the probe program to a place and run it there."""
    await probe.errnos(
        call("open", "s:/probe", 0),
        call("open", f"s:{place}", O_WRONLY | O_CREAT, 0o755),
        call("sendfile", "r:1", "r:0", 0, 1 << 24),
    )
    return await probe.ask("run", place, "euid")


async def test_run_a_program_from_scratch_space() -> None:
    """F03: a program that was written to /tmp is not executed."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = await copied_program(inside, "/tmp/x"), await copied_program(control, "/tmp/x")

    assert ({"status": 126, "signal": 0, "out": "EACCES"}, "0") == (found, free["out"])
    report("F03", "EACCES", "runs in a plain container")


@pytest.mark.parametrize("kind", ["path", "descriptors"])
async def test_climb_out_of_a_root(kind: str, root: Path) -> None:
    """F04: dot-dot leads to the sandbox's own tree, by path and by descriptor, never to the host's."""
    (root.parent / "canary").write_text("host")
    async with sandboxed(rooted(root)) as inside, on_host() as control:
        if kind == "path":
            found = [
                (await inside.read(f"/data/{'../' * depth}{tail}"))[0]
                for depth in (1, 5)
                for tail in ("canary", f".{root.parent}/canary")
            ]
            free = (await control.read(f"{root}/../canary"))[0]
        else:
            found = await climb(inside, "/data")
            free = (await climb(control, str(root)))[-1]
        hostname = (await inside.read("/data/../etc/hostname"))[1].strip()

    assert ({"ENOENT"}, "OK", "sandbox") == (set(found[-4:]) - {"OK"}, free, hostname)
    report(
        "F04",
        "ENOENT by path and through O_PATH descriptors; /etc/hostname is the sandbox's",
        "reads the canary on the host",
    )


async def climb(probe: Answers, start: str) -> list[str]:
    """Return the outcomes of going up by descriptors and opening a file there."""
    return await probe.errnos(
        call("openat", AT_FDCWD, f"s:{start}", O_PATH),
        call("openat", "r:0", "s:..", O_PATH),
        call("openat", "r:1", "s:canary", 0),
    )


async def test_a_sibling_with_the_same_beginning(root: Path) -> None:
    """F05: a folder whose name begins like a root's is not there."""
    sibling = root.with_name("a_evil")
    sibling.mkdir()
    (sibling / "canary").write_text("host")
    async with (
        sandboxed(probe_plan(mounts=(Mount(str(root), "/data/a", writable=True),))) as inside,
        on_host() as control,
    ):
        found = [(await inside.read(path))[0] for path in ("/data/a_evil/canary", "/data/a/../a_evil/canary")]
        free = (await control.read(f"{sibling}/canary"))[0]

    assert (["ENOENT", "ENOENT"], "OK") == (found, free)
    report("F05", "ENOENT; the check of URIs is with calls", "reads the canary on the host")


async def test_a_link_in_a_root_to_a_file_of_the_host(root: Path) -> None:
    """F06: a link that the server makes leads inside the sandbox, also when the host would follow it."""
    (root.parent / "canary").write_text("host")
    async with sandboxed(rooted(root)) as inside, on_host() as control:
        made = [
            await inside.errno("symlink", f"s:{target}", f"s:/data/{name}")
            for target, name in ((f"{root.parent}/canary", "x"), ("/etc/shadow", "y"))
        ]
        found = [(await inside.read(f"/data/{name}"))[0] for name in "xy"]
        free = (await control.read(f"{root}/x"))[0]

    assert (["OK", "OK"], ["ENOENT", "ENOENT"], "OK") == (made, found, free)
    report("F06", "the link is made and leads to ENOENT inside", "the same link reads the canary on the host")


async def test_swap_a_root_for_a_link_while_it_is_mounted(root: Path) -> None:
    """F07: a root that keeps changing into a link to elsewhere is never handed out with what lies elsewhere."""
    elsewhere = root.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "canary").write_text("host")
    code = (
        "import os,sys\na,b,c=sys.argv[1:]\nos.symlink(b, a+'.l')\nwhile True:\n"
        "  os.rename(a, c)\n  os.rename(a+'.l', a)\n  os.rename(a, a+'.l')\n  os.rename(c, a)\n"
    )
    swapper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(root), str(elsewhere), f"{root}.held"
    )
    outcomes = []
    try:
        async with backend_for() as backend:
            for _ in range(12):
                try:
                    async with sandboxed(rooted(root), backend) as inside:
                        outcomes.append("escaped" if (await inside.read("/data/canary"))[0] == "OK" else "right")
                except SandboxError as error:
                    outcomes.append(error.id)
    finally:
        swapper.kill()
        await swapper.wait()

    assert 12 == len(outcomes)
    assert "escaped" not in outcomes
    report(
        "F07", "12 launches during the race: none handed out with the other place (LAUNCH-022, -023 or -030 otherwise)"
    )


async def test_what_the_race_would_give_without_read_back(root: Path) -> None:
    """F07, control: a root that was checked and then swapped shows the other place in a plain container."""
    elsewhere = root.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "canary").write_text("host")
    checked = os.path.realpath(root)
    root.rename(root.with_name("held"))
    root.symlink_to(elsewhere)
    async with plain_container(Binds=[f"{checked}:/data:ro"]) as control:
        free = await control.read("/data/canary")

    assert ("OK", "host") == free
    report("F07", "", "a plain container with the checked path reads the canary")


async def test_hard_links_across_mounts(root: Path) -> None:
    """F08: no file from outside a root gets a second name in it."""
    async with sandboxed(rooted(root)) as inside:
        found = [
            await inside.errno("link", f"s:{path}", "s:/data/x")
            for path in ("/proc/self/exe", "/etc/hosts", "/probe", "/tmp")
        ]

    assert {"EXDEV", "EPERM"} >= set(found)
    assert ["note"] == [path.name for path in root.iterdir()]
    report("F08", "EXDEV or EPERM; the root holds what it held")


CHANGES = {
    "open": ("open", "s:/data/note", O_WRONLY),
    "create": ("open", "s:/data/new", O_WRONLY | O_CREAT, 0o600),
    "utimensat": ("utimensat", AT_FDCWD, "s:/data/note", 0, 0),
    "chmod": ("chmod", "s:/data/note", 0o600),
    "setxattr": ("setxattr", "s:/data/note", "s:user.x", "s:y", 1, 0),
    "rename": ("rename", "s:/data/note", "s:/data/moved"),
    "unlink": ("unlink", "s:/data/note"),
    "mkdir": ("mkdir", "s:/data/dir", 0o700),
    "truncate": ("truncate", "s:/data/note", 0),
    "symlink": ("symlink", "s:/x", "s:/data/link"),
    "link": ("link", "s:/data/note", "s:/data/other"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_change_a_read_only_root(name: str, root: Path) -> None:
    """F09: no way of changing a file works in a read-only root; each works in a writable one."""
    before = (root.stat().st_mtime_ns, root.stat().st_ctime_ns)
    async with sandboxed(rooted(root, writable=False)) as inside:
        found = await inside.errno(*CHANGES[name])
    after = (root.stat().st_mtime_ns, root.stat().st_ctime_ns)
    unchanged = (root / "note").read_text(), [path.name for path in root.iterdir()], after == before
    async with sandboxed(rooted(root)) as control:
        free = await control.errno(*CHANGES[name])

    assert ("EROFS", ("inside", ["note"], True)) == (found, unchanged)
    assert free in ({"OK", "EOPNOTSUPP"} if name == "setxattr" else {"OK"})
    report("F09", "EROFS for eleven ways of changing a file; nothing changed", "each works in a writable root")


async def test_remount_a_read_only_root(root: Path) -> None:
    """F10: a read-only root cannot be made writable."""
    remount = ("mount", 0, "s:/data", 0, MS_REMOUNT | MS_BIND, 0)
    async with sandboxed(rooted(root, writable=False)) as inside, weak_container(Binds=[f"{root}:/data:ro"]) as control:
        found = await inside.errno(*remount), (await inside.ask("fill", "/data/x", 1))["errno"]
        free = await control.errno(*remount)

    assert (("EPERM", "EROFS"), "OK") == (found, free)
    report("F10", "EPERM", "OK with CAP_SYS_ADMIN and no filter")


async def test_bind_over_a_root_and_share_mounts(root: Path) -> None:
    """F11: nothing is mounted from inside, and no mount propagates."""
    bind = ("mount", "s:/etc", "s:/data", 0, MS_BIND, 0)
    share = ("mount", 0, "s:/", 0, MS_REC | MS_SHARED, 0)
    async with sandboxed(rooted(root)) as inside, weak_container(Binds=[f"{root}:/data"]) as control:
        found = [await inside.errno(*bind), await inside.errno(*share)]
        free = [await control.errno(*bind), await control.errno(*share)]
        _, text = await inside.read("/proc/self/mountinfo")

    assert (["EPERM", "EPERM"], ["OK", "OK"], False) == (found, free, "shared:" in text)
    report("F11", "EPERM; no shared mount in mountinfo", "OK with CAP_SYS_ADMIN and no filter")


async def test_a_set_user_id_program() -> None:
    """F12: a set-uid program of an image does not become root."""
    image = probe_image(files={"p.suid": probe_binary().read_bytes()})
    async with sandboxed(probe_plan(image_id=image)) as inside, plain_container(image, User="65532") as control:
        found, free = await inside.ask("run", "/p.suid", "euid"), await control.ask("run", "/p.suid", "euid")

    assert (str(SERVER), "0") == (found["out"], free["out"])
    report("F12", "keeps uid 65532", "becomes uid 0 in a plain container")


async def test_our_images_have_no_set_user_id_program() -> None:
    """F12: the images that servers run on hold no set-uid or set-gid file."""
    code = (
        "import json,os,stat\n"
        "found=[os.path.join(d,f) for d,_,fs in os.walk('/') if not d.startswith('/proc') for f in fs "
        "if os.lstat(os.path.join(d,f)).st_mode & 0o6000 and stat.S_ISREG(os.lstat(os.path.join(d,f)).st_mode)]\n"
        "input()\nprint(json.dumps({'found': found}))\ninput()\n"
    )
    plan = probe_plan(image_id=shipped_image("python"), argv=("/usr/bin/python3", "-I", "-c", code))
    async with sandboxed(plan) as inside:
        found = (await inside.ask("go"))["found"]

    assert [] == found
    report("F12", "none in the python image")


DEVICES = ("mem", "kmsg", "sda", "vda", "kvm", "fuse", "vsock", "net/tun", "port", "loop-control")
USUAL = {
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "pts",
    "shm",
    "mqueue",
    "ptmx",
    "fd",
    "stdin",
    "stdout",
    "stderr",
    "core",
}


async def test_device_nodes() -> None:
    """F13: no device of the host is there, and none can be made."""
    make = ("mknodat", AT_FDCWD, "s:/tmp/mem", S_IFCHR | 0o600, 0x101)
    async with sandboxed() as inside, plain_container() as control:
        found = await inside.errno(*make), {(await inside.read(f"/dev/{name}", 1))[0] for name in DEVICES}
        names = set((await inside.ask("ls", "/dev"))["names"])
        free = await control.errno(*make)

    assert (("EPERM", {"ENOENT"}), set(), "OK") == (found, names - USUAL, free)
    on_this_host = [name for name in DEVICES if Path("/dev", name).exists()]
    report(
        "F13",
        "mknod EPERM, every device ENOENT",
        f"mknod OK in a plain container; here the host has /dev/{', /dev/'.join(on_this_host)}",
    )


async def test_leaked_descriptors() -> None:
    """F14: the server has three pipes and no descriptor that leads to the host."""
    async with sandboxed() as inside:
        names = (await inside.ask("ls", "/proc/self/fd"))["names"]
        targets = [(await inside.ask("link", f"/proc/self/fd/{name}"))["target"] for name in "012"]
        others = [(await inside.ask("ls", f"/proc/{pid}/fd")) for pid in (1, 2)]

    assert {"0", "1", "2"} == set(names) - {"3"}
    assert ["pipe", "pipe", "pipe"] == [target.partition(":")[0] for target in targets]
    assert {"EACCES", "ENOENT", "OK"} >= {item["errno"] for item in others}
    assert all(set(item["names"]) <= {"0", "1", "2"} for item in others)
    report("F14", "descriptors 0, 1, 2 and all of them pipes")


@pytest.mark.parametrize("number", range(6, 13))
async def test_a_working_directory_in_a_descriptor(number: int) -> None:
    """F15: a working directory below /proc/self/fd does not start (CVE-2024-21626), and nothing is left."""
    async with backend_for() as backend:
        with pytest.raises(SandboxError) as caught:
            await backend.launch(probe_plan(workdir=f"/proc/self/fd/{number}"), scope(), {})
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert (True, []) == (caught.value.id.startswith("LAUNCH-"), remains)
    report("F15", "refused for each of 6 to 12, nothing left; plans refuse it before (PLAN-114)")


LINKS = {
    "dev/null": {"dev/null": b"-> /proc/sys/kernel/core_pattern"},
    "dev/pts/0": {"dev/pts/0": b"-> /proc/sys/kernel/core_pattern"},
    "dev/console": {"dev/console": b"-> /proc/sys/kernel/core_pattern"},
    "dev": {"dev": b"-> /proc/sys"},
    "proc": {"proc": b"-> /tmp"},
    "sys": {"sys": b"-> /etc"},
    "tmp": {"tmp": b"-> /etc"},
    "etc": {"etc": b"-> /proc/sys/kernel"},
}


@pytest.mark.parametrize("name", LINKS)
async def test_links_in_an_image_where_the_runtime_mounts(name: str) -> None:
    """F16: an image that brings links for /dev and its like is refused, or its masks hold; the host is unchanged."""
    before = CORE_PATTERN.read_text()
    plan = probe_plan(image_id=probe_image(files=LINKS[name]))
    outcome = "refused"
    async with backend_for() as backend:
        try:
            async with sandboxed(plan, backend) as inside:
                outcome = "masked"
                written = (await inside.ask("fill", "/proc/sys/kernel/core_pattern", 1))["errno"]
                keys = await inside.read("/proc/keys")
                assert (written in {"EROFS", "EACCES"}, keys[1]) == (True, "")
        except SandboxError as error:
            outcome = f"refused ({error.id})"
        remains = await with_label(f"{LABEL_RUN}={backend.run_id}")

    assert (before, []) == (CORE_PATTERN.read_text(), remains)
    report("F16", f"/{name}: {outcome}; core_pattern of the host unchanged")


async def test_overwrite_the_runtime_through_proc_self_exe() -> None:
    """F17: neither the own program nor the runtime behind it can be written (CVE-2019-5736)."""
    programs = [Path(found) for name in ("runc", "docker-init") if (found := shutil.which(name))]
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in programs]
    script = probe_image(files={"script": b"#!/proc/self/exe\n"})
    async with sandboxed(probe_plan(image_id=script)) as inside:
        found = [await inside.errno("open", f"s:{path}", O_WRONLY) for path in ("/proc/self/exe", "/proc/1/exe")]
        ran = await inside.ask("run", "/script")
    after = [hashlib.sha256(path.read_bytes()).hexdigest() for path in programs]

    assert {"EROFS", "EACCES", "ETXTBSY"} >= set(found)
    assert ("ELOOP" in ran["out"] or ran["status"] != 0, before) == (True, after)
    report("F17", f"{' and '.join(sorted(set(found)))}; hashes of runc and docker-init unchanged")


async def test_files_that_identify_the_host() -> None:
    """F18: the host's name, machine id and hardware names are not told."""
    name = os.uname().nodename
    paths = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/proc/sys/kernel/hostname", "/etc/machine-id")
    async with sandboxed() as inside:
        texts = [(await inside.read(path))[1] for path in paths]
        dmi = [
            await inside.read(f"/sys/class/dmi/id/{item}") for item in ("product_name", "sys_vendor", "board_serial")
        ]
        version = (await inside.read("/proc/version"))[1]

    assert "sandbox" == texts[0].strip()
    assert not any(name in text.split() for text in texts)
    assert {""} == {text for _, text in dmi}
    told = "equal to the host's" if version == Path("/proc/version").read_text() else "its own"
    report("F18", f"no host name, machine id or DMI name; /proc/version is {told}", "readable on the host")


async def test_sweep_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """F19: nothing of the supervisor's environment or home is inside."""
    monkeypatch.setenv("CANARY_TOKEN", "s3cret")
    homes = ("/root", "/tmp", "/home", str(Path.home()))
    names = (".ssh", ".aws", ".netrc", ".env", ".docker/config.json", ".config")
    async with sandboxed() as inside, on_host() as control:
        env = (await inside.ask("env"))["env"]
        free = (await control.ask("env"))["env"]
        found = {(await inside.ask("mode", f"{home}/{name}"))["errno"] for home in homes for name in names}
        token = (await inside.ask("mode", "/var/run/secrets/kubernetes.io"))["errno"]

    assert {"PATH", "HOME"} == {entry.partition("=")[0] for entry in env}
    assert ({"ENOENT"}, "ENOENT", True) == (found, token, "CANARY_TOKEN=s3cret" in free)
    report("F19", "two variables, none of the supervisor's; no credential file", "the whole environment on the host")


async def test_a_pipe_in_a_writable_root(root: Path) -> None:
    """F21: a server cannot make a pipe or device in a root, and whoever looks at one does not block."""
    make = ("mknodat", AT_FDCWD, "s:/data/pipe", S_IFIFO | 0o600, 0)
    async with sandboxed(rooted(root)) as inside, on_host() as control:
        found = await inside.errno(*make)
        free = await control.errno("mknodat", AT_FDCWD, f"s:{root}/pipe", S_IFIFO | 0o600, 0)
    kind = path_facts([f"{root}/pipe"], root)[f"{root}/pipe"].kind

    assert ("EPERM", "OK", "other") == (found, free, kind)
    report("F21", "mknod of a FIFO EPERM; paths are looked at without being opened", "OK on the host")


async def test_huge_files_and_many_files(root: Path) -> None:
    """F22: a file, a file system and the number of files are bounded."""
    async with sandboxed(rooted(root)) as inside, on_host() as control:
        sparse = [
            (
                await inside.errnos(
                    call("open", f"s:{path}", O_WRONLY | O_CREAT, 0o600), call("ftruncate", "r:0", 1 << 40)
                )
            )[1]
            for path in ("/tmp/sparse", "/data/sparse")
        ]
        filled = await inside.ask("fill", "/tmp/full", 1 << 30)
        big = await inside.ask("fill", "/data/big", 1 << 30)
        many = await inside.ask("inodes", "/tmp", 100_000)
        free = (
            await control.errnos(
                call("open", f"s:{root}/free", O_WRONLY | O_CREAT, 0o600), call("ftruncate", "r:0", 1 << 40)
            )
        )[1]

    assert (["signal 25", "signal 25"], "OK") == (sparse, free) or (["EFBIG", "EFBIG"], "OK") == (sparse, free)
    assert ("ENOSPC", True) == (filled["errno"], filled["written"] <= 16 * MIB)
    assert ("EFBIG", True) == (big["errno"], big["written"] <= 32 * MIB)
    assert ("ENOSPC", True) == (many["errno"], many["made"] <= 1024)
    report(
        "F22",
        "1 TiB: EFBIG; /tmp: ENOSPC at its size and its number of files; a file in a root: EFBIG at fsize. The sum of "
        "files in a writable root is not bounded (use a root with a quota)",
        "1 TiB OK on the host",
    )


async def test_the_probe_is_alive(root: Path) -> None:
    """Every refusal above comes from a probe that can read what it may."""
    async with sandboxed(rooted(root)) as inside:
        assert isinstance(inside, Inside)
        assert ("OK", "inside") == await inside.read("/data/note")
