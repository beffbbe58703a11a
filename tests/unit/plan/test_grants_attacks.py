"""What a driver could try in order to see or write more of the host than anybody reviewed."""

from __future__ import annotations

import pytest

from sandbox.errors import PlanProblems
from sandbox.plan.manifests import manifests
from sandbox.plan.model import Mount, PathFacts
from sandbox.spec.model import BinaryServer
from tests.planning import FOLDER, driver, folders, host, plan


def ids(paths: dict[str, str | PathFacts], *, write: bool = False, **facts: object) -> set[str]:
    """Return the ids with which a grant of the only path is refused; empty when it is mounted."""
    grants = {path: f"/d/{number}" for number, path in enumerate(paths)}
    spec = driver(write=grants) if write else driver(read=grants)
    try:
        plan(spec, host(paths, **facts))
    except PlanProblems as refusal:
        return {problem.id for problem in refusal.problems}
    return set()


@pytest.mark.claim("P-PLAN-06")
@pytest.mark.parametrize(
    "path",
    [
        "~/.ssh",
        "~/.ssh/id_ed25519",
        "~/.aws/credentials",
        "~/.gnupg",
        "~/.config/gh",
        "~/.kube/config",
        "~/.docker/config.json",
        "~/.mozilla/firefox",
        "~/.bash_history",
        "~/.bashrc",
        "~/.local/state/mcp-sandbox/audit",
        "/home/bob/.ssh",
        "/srv/backup/ada/.ssh",
        "/tmp/ssh-Xy12/agent.77",
        "/data/docker.sock",
        "/srv/x/.git-credentials",
    ],
)
def test_grant_of_a_sensitive_place_is_refused(path: str) -> None:
    """Credentials, histories, start-up files and our own evidence are never mounted, in any home or copy of one."""
    assert ids(folders(path)) == {"PLAN-024"}


@pytest.mark.claim("P-PLAN-06")
@pytest.mark.parametrize("path", ["~", "/home", "/home/bob", "/tmp", "~/.local", "~/.local/share"])
def test_grant_above_a_sensitive_place_is_refused(path: str) -> None:
    """A folder that contains a sensitive place exposes it, so it is refused as well."""
    assert ids(folders(path)) == {"PLAN-025"}


@pytest.mark.parametrize(
    "path",
    ["/", "/proc/1/root", "/sys/kernel", "/dev/shm", "/run/user/1000", "/etc", "/boot", "/var/lib/docker", "/usr/bin"],
)
def test_grant_of_a_place_of_the_system_is_refused(path: str) -> None:
    """The host's root, kernel interfaces, sockets, accounts, programs and engine data are refused twice over."""
    assert ids(folders(path)) in ({"PLAN-023", "PLAN-024"}, {"PLAN-023", "PLAN-025"})


@pytest.mark.claim("P-PLAN-06")
@pytest.mark.parametrize("real", ["/home/ada/.ssh", "/etc", "/var/run/docker.sock", "/home/ada", "/proc"])
def test_link_to_a_sensitive_place_is_refused(real: str) -> None:
    """An innocent name that is a link is judged by where it leads."""
    assert ids({"~/projects/docs": real}) & {"PLAN-024", "PLAN-025"}


def test_link_from_a_sensitive_place_is_refused() -> None:
    """A sensitive name is refused even where it leads to an innocent folder: the link may change."""
    assert ids({"~/.config": "/home/ada/dotfiles"}) == {"PLAN-024"}


def test_sibling_with_the_same_prefix_is_not_in_a_root() -> None:
    """``/srv-private`` does not lie in ``/srv`` (CVE-2025-53110 is this mistake)."""
    assert ids(folders("/srv-private")) == {"PLAN-023"}
    assert ids(folders("/srv/private")) == set()


@pytest.mark.parametrize("path", ["/srv/engine", "/srv/engine/overlay2", "/srv"])
def test_grant_that_reaches_an_engine_is_refused(path: str) -> None:
    """Data and sockets of the engines on this host are refused wherever they lie."""
    assert "PLAN-026" in ids(folders(path), engine_paths=("/srv/engine",))


@pytest.mark.claim("P-PLAN-07")
@pytest.mark.parametrize(
    "path", [".", "./tools", "./tools/read", "./tools/read/TOOL.md", "./DRIVER.md", "./driver.lock", "~/drivers"]
)
def test_server_cannot_be_given_its_own_manifests_to_write(path: str) -> None:
    """A write grant that reaches DRIVER.md, a contract or the lock would let the server change its own limits."""
    real = FOLDER if path == "." else folders(path)[path]

    assert ids({path: real}, write=True) == {"PLAN-027"}
    assert ids({path: real}) == set()


def test_server_cannot_be_given_its_own_program_to_write() -> None:
    """A binary that lies in the driver's folder cannot be replaced by what it runs as."""
    spec = driver(server=BinaryServer(kind="binary", path="./bin/server"), write={"./bin": "/d"})

    with pytest.raises(PlanProblems, match="PLAN-027"):
        plan(spec, host(folders("./bin")))


@pytest.mark.claim("P-PLAN-07")
@pytest.mark.parametrize("path", ["/srv/own", "/srv/own/policies", "/srv"])
def test_server_cannot_be_given_our_files_to_write(path: str) -> None:
    """Policies, package and evidence stay out of reach of every write grant."""
    assert "PLAN-027" in ids(folders(path), write=True, own_paths=("/srv/own",))


@pytest.mark.claim("P-OAU-15")
@pytest.mark.parametrize("path", ["~/p/own/logins", "~/p/own", "~/p"])
def test_a_server_cannot_read_keys_and_logins(path: str) -> None:
    """Logins and keys of the person who runs this are in no sandbox, wherever ``XDG_STATE_HOME`` puts them."""
    assert ids(folders(path), private_paths=("/home/ada/p/own",)) == {"PLAN-070"}
    assert ids(folders(path)) == set()


def test_state_folder_of_a_driver_can_be_written() -> None:
    """The folder that memory servers keep their state in holds no manifest."""
    spec = driver(write={"./data": "/data"})

    assert plan(spec, host(folders("./data"))).mounts == (Mount(f"{FOLDER}/data", "/data", writable=True),)


def test_contracts_outside_the_driver_are_found_where_they_lie() -> None:
    """Manifests are found by what the message names share with the driver's own name."""
    spec = driver()
    origin = spec.bindings[0].origin.model_copy(update={"file": "shared/tools/read/TOOL.md"})
    contract = spec.bindings[0].contract.model_copy(update={"origin": origin})
    moved = spec.model_copy(update={"bindings": (spec.bindings[0].model_copy(update={"contract": contract}),)})

    assert f"{FOLDER}/tools/read/TOOL.md" in manifests(spec)
    assert "/home/ada/drivers/shared/tools/read/TOOL.md" in manifests(moved)


@pytest.mark.parametrize("home", ["/", "", "relative", "//"])
def test_home_that_is_everything_makes_nothing_mountable(home: str) -> None:
    """A service whose HOME is / must not thereby be able to mount the whole host."""
    assert ids(folders("/var/lib/postgresql"), home=home) == {"PLAN-023"}
    assert ids(folders("/srv/data"), home=home) == set()


def test_driver_folder_that_is_everything_makes_nothing_mountable() -> None:
    """A DRIVER.md in / does not make the whole host the driver's own folder."""
    spec = driver(read={"/var/lib/postgresql": "/d"}).model_copy(update={"folder": "/"})

    with pytest.raises(PlanProblems, match="PLAN-023"):
        plan(spec, host(folders("/var/lib/postgresql")))
