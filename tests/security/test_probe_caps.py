"""What a hostile server tries to become (probes C01 to C08), each beside its control."""

from __future__ import annotations

import pytest

from tests.probe_kit import (
    on_host,
    plain_container,
    probe_binary,
    probe_image,
    probe_plan,
    sandboxed,
    weak_container,
)
from tests.probe_report import report

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.claim("P-LAUNCH-01")]

SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NEWUSER, SIGCHLD = 0x10000000, 17


async def test_capability_sets() -> None:
    """C01: all five sets are empty, the bounding set included."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = await inside.status(), await control.status()

    assert {"0" * 16} == {found[name] for name in SETS}
    assert "0" * 16 != free["CapEff"]
    report("C01", "all zero", f"CapEff {free['CapEff']} in a plain container")


async def test_no_new_privileges() -> None:
    """C02: no program can gain privileges."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = (await inside.status())["NoNewPrivs"], (await control.status())["NoNewPrivs"]

    assert ("1", "0") == (found, free)
    report("C02", "1", "0 in a plain container")


async def test_ids() -> None:
    """C03: user and group are the planned ones, with no group beside."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = await inside.status(), await control.status()
        mapping = " ".join((await inside.read("/proc/self/uid_map"))[1].split())

    assert (["65532"] * 4, ["65532"] * 4) == (found["Uid"].split(), found["Gid"].split())
    assert ({"65532"} >= set(found["Groups"].split()), "0") == (True, free["Uid"].split()[0])
    report("C03", f"65532:65532, no other group; uid_map {mapping}", "0 in a plain container")


@pytest.mark.parametrize(
    "attempt",
    [
        ("setuid", 0),
        ("setgid", 0),
        ("setresuid", 0, 0, 0),
        ("setreuid", 0, 0),
        ("setgroups", 1, "i:0"),
        ("setfsuid", 0),
    ],
    ids=lambda attempt: attempt[0],
)
async def test_become_root(attempt: tuple[object, ...]) -> None:
    """C04: no call changes the user."""
    async with sandboxed() as inside, plain_container() as control:
        found, free = await inside.errno(*attempt), await control.errno(*attempt)

    assert ("EPERM", "OK") == (found, free)
    report(
        "C04", "EPERM for setuid, setgid, setresuid, setreuid, setgroups, setfsuid", "OK as root in a plain container"
    )


async def test_file_capabilities() -> None:
    """C05: a program with file capabilities gains none."""
    image = probe_image(files={"p.cap": probe_binary().read_bytes()})
    async with sandboxed(probe_plan(image_id=image)) as inside, plain_container(image, User="65532") as control:
        found, free = await inside.ask("run", "/p.cap", "caps"), await control.ask("run", "/p.cap", "caps")

    assert (True, "0000000000002000") == (found["out"].strip() in {"EPERM", "0" * 16}, free["out"].strip())
    report("C05", f"{found['out'].strip()} at exec", "cap_net_raw in a plain container")


async def test_open_by_handle() -> None:
    """C06: a file cannot be opened by its handle, past the mount namespace."""
    attempt = ("open_by_handle_at", -1, "z:128", 0)
    async with sandboxed() as inside, on_host() as control:
        found, free = await inside.errno(*attempt), await control.errno(*attempt)

    assert ("EPERM", True) == (found, free != "EPERM")
    report("C06", "EPERM before the call is looked at", f"{free} on the host: reachable")


@pytest.mark.parametrize(
    "attempt",
    [("finit_module", -1, "s:", 0), ("init_module", 0, 0, "s:"), ("delete_module", "s:no-such", 0x800)],
    ids=lambda a: a[0],
)
async def test_load_a_kernel_module(attempt: tuple[object, ...]) -> None:
    """C07: no module is loaded or removed."""
    async with sandboxed() as inside, weak_container() as control:
        found, free = await inside.errno(*attempt), await control.errno(*attempt)

    assert ("EPERM", True) == (found, free != "EPERM")
    report("C07", "EPERM", f"{free} with CAP_SYS_MODULE and no filter: reachable")


@pytest.mark.parametrize(
    "attempt", [("unshare", NEWUSER), ("clone", NEWUSER | SIGCHLD, 0, 0, 0, 0)], ids=lambda a: a[0]
)
async def test_regain_capabilities_in_a_user_namespace(attempt: tuple[object, ...]) -> None:
    """C08: no user namespace, in which one would be root again."""
    async with sandboxed() as inside, on_host() as control:
        found, free = await inside.errno(*attempt), await control.errno(*attempt)

    assert ("EPERM", "OK") == (found, free)
    report("C08", "EPERM", "OK for an unprivileged user of this host")
