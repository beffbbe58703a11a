"""Versions that are not served any more: what git and the gateway's notes remember, and what the register tells."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import PlatformError
from sandbox.registry.catalog import Catalog
from sandbox.registry.entity import ServerEntity, moment_of
from sandbox.registry.history.gitlog import Revision, revisions
from sandbox.registry.history.notes import Told, remember
from sandbox.registry.history.releases import Release, committed
from sandbox.registry.order import descending
from sandbox.registry.project import OFFICIAL
from tests.unit.registry.test_register import BASE, entity

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
CLEAN = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.com",
}  # fmt: skip


def git(top: Path, *argv: str, day: int = 1) -> str:
    """Run git as the author of a repository."""
    date = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"2026-01-{day:02}T10:00:00+02:00")
    done = subprocess.run(["git", *argv], cwd=top, env={**CLEAN, **date}, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def driver_md(version: str, description: str = "It does things.") -> str:
    """Return a manifest of a version."""
    return f"---\nname: Driver {version}\nid: d\ndescription: {description}\nversion: {version}\n---\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a driver folder in a work tree: 1.0.0, a changed lock, 1.1.0, 2.0.0."""
    folder = tmp_path / "work" / "drivers" / "d"
    folder.mkdir(parents=True)
    git(tmp_path / "work", "init", "-q", "-b", "main")
    steps = [("DRIVER.md", driver_md("1.0.0")), ("driver.lock", "{}"), ("DRIVER.md", driver_md("1.1.0"))]
    for day, (name, text) in enumerate([*steps, ("DRIVER.md", driver_md("2.0.0"))], 1):
        (folder / name).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "x", day=day)
    return folder


def old(folder: Path, now: datetime = NOW) -> dict[str, Release]:
    """Return what git knows of a driver folder."""
    return committed(revisions(folder, ("DRIVER.md", "driver.lock")), now)


def test_versions_come_from_commits(repository: Path) -> None:
    """A version is as old as the first commit that has it, and changed with the last, the lock's commits too."""
    found = old(repository)

    assert {
        "1.0.0": ("2026-01-01T08:00:00Z", "2026-01-02T08:00:00Z"),
        "1.1.0": ("2026-01-03T08:00:00Z", "2026-01-03T08:00:00Z"),
        "2.0.0": ("2026-01-04T08:00:00Z", "2026-01-04T08:00:00Z"),
    } == {version: (one.published, one.updated) for version, one in found.items()}
    assert "Driver 1.1.0" == found["1.1.0"].title


@pytest.mark.parametrize("form", ["packed", "detached", "worktree", "shallow", "sha256"])
def test_other_forms_of_repositories_are_read(repository: Path, tmp_path: Path, form: str) -> None:
    """Packed branches and objects, no branch, a second work tree, a shallow clone, long object names."""
    top = tmp_path / "work"
    if form == "packed":
        git(top, "gc", "-q")
        git(top, "pack-refs", "--all")
    elif form == "detached":
        git(top, "checkout", "-q", "HEAD~1")
    elif form == "worktree":
        git(top, "worktree", "add", "-q", str(tmp_path / "second"))
        repository = tmp_path / "second" / "drivers" / "d"
    elif form == "shallow":
        git(tmp_path, "clone", "-q", "--depth", "2", f"file://{top}", "shallow")
        repository = tmp_path / "shallow" / "drivers" / "d"
    else:
        long = tmp_path / "long"
        long.mkdir()
        git(long, "init", "-q", "--object-format=sha256")
        (long / "DRIVER.md").write_text(driver_md("1.1.0"))
        git(long, "add", "-A")
        git(long, "commit", "-q", "-m", "x")
        repository = long

    assert "1.1.0" in old(repository)


def test_a_folder_outside_of_git_has_no_history(tmp_path: Path) -> None:
    """That is no error."""
    assert [] == revisions(tmp_path, ("DRIVER.md",))


@pytest.mark.claim("P-REG-02")
def test_what_a_repository_configures_is_never_run(repository: Path, tmp_path: Path) -> None:
    """Pagers, signature programs, monitors, hooks, replacements and a promisor remote that fetches: none starts."""
    mark = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $@" >> {mark}\n')
    evil.chmod(0o755)
    top = tmp_path / "work"
    missing = git(top, "rev-parse", "HEAD~1:drivers/d/DRIVER.md")
    for key in ("core.pager", "core.fsmonitor", "gpg.program", "core.sshCommand", "diff.external", "core.editor"):
        git(top, "config", key, str(evil))
    for key, value in {
        "log.showSignature": "true", "core.hooksPath": str(tmp_path), "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "far", "remote.far.promisor": "true", "remote.far.url": str(tmp_path / "far"),
        "remote.far.uploadpack": str(evil),
    }.items():  # fmt: skip
        git(top, "config", key, value)
    (top / ".git" / "objects" / missing[:2] / missing[2:]).unlink()

    # The same question asked as usual starts the program: the trap works.
    subprocess.run(["git", "cat-file", "-p", missing], cwd=top, env=CLEAN, capture_output=True, check=False, timeout=30)
    assert mark.exists()
    mark.unlink()
    found = old(repository)

    assert not mark.exists()
    assert {"2.0.0", "1.0.0"} <= set(found)


@pytest.mark.parametrize("how", ["symlink", "fifo", "zero", "outside", "long", "newline"])
@pytest.mark.claim("P-REG-02")
def test_a_repository_cannot_make_us_wait_or_read_elsewhere(tmp_path: Path, how: str) -> None:
    """A link for ``.git``, a FIFO or device for HEAD, a branch outside, a line without end: no history, no harm."""
    folder = tmp_path / "d"
    dot = folder / ".git"
    (dot / "objects").mkdir(parents=True)
    (folder / "DRIVER.md").write_text(driver_md("1.0.0"))
    if how == "symlink":
        dot.rename(tmp_path / "elsewhere")
        dot.symlink_to(tmp_path / "elsewhere")
    elif how == "fifo":
        os.mkfifo(dot / "HEAD")
    elif how == "zero":
        (dot / "HEAD").symlink_to("/dev/zero")
    else:
        text = {"outside": "ref: refs/heads/../../../secret", "long": "ref: " + "x" * 5000, "newline": "ref: a\nb"}
        (dot / "HEAD").write_text(text[how])
        (folder / "secret").write_text("0" * 40)

    assert [] == revisions(folder, ("DRIVER.md",))


def test_our_own_repository_is_left_as_it_is(repository: Path, tmp_path: Path) -> None:
    """Reading changes nothing: no index refresh, no lock, no new object."""

    def state() -> dict[str, tuple[int, int]]:
        files = sorted((tmp_path / "work").rglob("*"))
        return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in files}

    before = state()
    old(repository)

    assert before == state()


def test_dates_and_texts_of_commits_are_bounded() -> None:
    """A commit from the future counts as now; manifests that cannot be read are passed over."""
    later = NOW + timedelta(days=900)
    files = [b"---\nversion: 1.0.0\nname: x\n---\n", b"\xff", b"---\nversion: [1]\n---\n", b"---\nversion: 1.0\n---\n"]
    found = committed([Revision(later, {"DRIVER.md": one}) for one in files], NOW)

    assert {"1.0.0": "2026-06-01T12:00:00Z"} == {version: one.updated for version, one in found.items()}


# --- notes ---------------------------------------------------------------------------------------------------------
def served(version: str = "1.0.0", **parts: Any) -> ServerEntity:
    """Return an open server of a version."""
    return entity("x", **{"version": version, "auth": "none", "visibility": "public", **parts})


def tell(told: Told) -> dict[str, tuple[str, str]]:
    """Return status and message by version."""
    return {one.version: (one.status, one.status_message) for one in (*told.served, *told.past)}


def test_each_version_that_was_served_is_remembered(tmp_path: Path) -> None:
    """An older one is deprecated, one that was withdrawn is deleted, and who comes back is active again."""
    place = tmp_path / "state" / "register.json"
    days = [NOW + timedelta(days=day) for day in range(5)]
    remember(place, [served("1.0.0")], {}, days[0])
    up = remember(place, [served("1.1.0")], {}, days[1])
    down = remember(place, [served("1.0.0")], {}, days[2])
    none = remember(place, [], {}, days[3])
    again = remember(place, [served("1.1.0")], {}, days[4])

    assert {"1.0.0": ("deprecated", "the endpoint serves 1.1.0"), "1.1.0": ("active", "")} == tell(up)
    assert {"1.0.0": ("active", ""), "1.1.0": ("deleted", "withdrawn; the endpoint serves 1.0.0")} == tell(down)
    assert {"deleted"} == {status for status, _ in tell(none).values()}
    assert {"1.0.0": "deprecated", "1.1.0": "active"} == {version: one[0] for version, one in tell(again).items()}
    assert 0o600 == stat.S_IMODE(place.stat().st_mode)


def test_a_change_of_status_is_an_update() -> None:
    """Who asks for what changed since a moment hears of what was withdrawn or deleted, and only then of that."""
    catalog = Catalog((served("1.0.0"),), BASE, (served("0.9.0", status="deleted", updated="2026-05-01T00:00:00Z"),))

    def versions(**query: str) -> list[str]:
        return [one["server"]["version"] for one in catalog.page(query)["servers"]]

    assert ["1.0.0"] == versions()
    assert ["1.0.0", "0.9.0"] == versions(include_deleted="true")
    assert ["0.9.0"] == versions(updated_since="2026-04-01T00:00:00Z")
    assert catalog.version("com.example/x", "0.9.0") is None
    assert "deleted" == (catalog.version("com.example/x", "0.9.0", deleted=True) or {})["_meta"][OFFICIAL]["status"]


def test_statuses_are_dated(tmp_path: Path) -> None:
    """``updatedAt`` moves with the status and with what is told, and with nothing else."""
    place = tmp_path / "register.json"
    first = remember(place, [served("1.0.0")], {}, NOW).served[0]
    same = remember(place, [served("1.0.0")], {}, NOW + timedelta(days=1)).served[0]
    changed = remember(place, [served("1.0.0", description="Other.")], {}, NOW + timedelta(days=2)).served[0]
    (past,) = remember(place, [served("2.0.0")], {}, NOW + timedelta(days=3)).past

    assert first == same
    assert "2026-06-03T12:00:00Z" == changed.updated
    assert ("2026-06-04T12:00:00Z", "2026-06-04T12:00:00Z") == (past.updated, past.status_changed)
    assert first.published == past.published


def test_git_and_notes_are_one_history(repository: Path, tmp_path: Path) -> None:
    """Commits give the dates; the register lists every version once, the served one as the latest."""
    place = tmp_path / "register.json"
    told = remember(place, [served("2.0.0")], {"com.example/x": old(repository)}, NOW)
    catalog = Catalog(told.served, BASE, told.past)
    versions = (catalog.versions("com.example/x") or {})["servers"]

    assert ["2.0.0", "1.1.0", "1.0.0"] == [one["server"]["version"] for one in versions]
    official = [one["_meta"][OFFICIAL] for one in versions]
    assert [True, False, False] == [one["isLatest"] for one in official]
    assert ["active", "deprecated", "deprecated"] == [one["status"] for one in official]
    assert "2026-01-04T08:00:00Z" == official[0]["publishedAt"]
    assert "2.0.0" == (catalog.version("com.example/x", "latest") or {})["server"]["version"]


@pytest.mark.claim("P-REG-01")
def test_what_became_private_has_no_public_past(tmp_path: Path) -> None:
    """Visibility is the present one's for every version."""
    place = tmp_path / "register.json"
    remember(place, [served("1.0.0")], {}, NOW)
    hidden = served("1.1.0", auth="bearer", visibility="internal")
    told = remember(place, [hidden], {}, NOW)
    gone = remember(place, [], {}, NOW)

    for one in (told, gone):
        catalog = Catalog(one.served, BASE, one.past)
        assert [] == catalog.listed(deleted=True) == catalog.listed("user", deleted=True)
        assert 2 == len(catalog.listed("admin", deleted=True))


@pytest.mark.parametrize("content", [b"{", b'{"form":2}', b'{"servers":{"a":1}}', b"\xff"])
def test_notes_that_are_not_ours_are_told_and_kept(tmp_path: Path, content: bytes) -> None:
    """A file that cannot be understood is never overwritten."""
    place = tmp_path / "register.json"
    place.write_bytes(content)

    with pytest.raises(PlatformError, match="REG-010"):
        remember(place, [served()], {}, NOW)
    assert content == place.read_bytes()


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """Notes are a file of ours or nothing."""
    (tmp_path / "target").write_text("{}")
    (tmp_path / "register.json").symlink_to(tmp_path / "target")

    with pytest.raises(PlatformError, match="REG-010"):
        remember(tmp_path / "register.json", [served()], {}, NOW)
    assert "{}" == (tmp_path / "target").read_text()


VERSIONS = st.sampled_from([f"{major}.{minor}.0" for major in range(3) for minor in range(3)] + ["1.0.0-rc.1"])


@given(st.lists(VERSIONS, min_size=1, max_size=8), st.sets(VERSIONS))
def test_what_is_served_is_the_latest_whatever_was_before(steps: list[str], in_git: set[str]) -> None:
    """Whatever came and went: one latest version, the served one; nothing newer is offered; nothing is listed twice."""
    known = {one: Release(one, "t", "d.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z") for one in in_git}
    told, releases = Told(()), dict(known)
    for day, version in enumerate(steps):
        told = remember(None, [served(version)], {"com.example/x": releases}, NOW + timedelta(days=day))
        for one in (*told.served, *told.past):
            fields = ("version", "title", "description", "published", "updated", "status")
            more = {"message": one.status_message, "changed": one.status_changed}
            releases[one.version] = Release(**{name: getattr(one, name) for name in fields}, **more)
    catalog = Catalog(told.served, BASE, told.past)
    every = catalog.listed(deleted=True)

    assert [steps[-1]] == [one.version for one in every if catalog.is_latest(one)]
    assert steps[-1] == (catalog.version("com.example/x", "latest") or {})["server"]["version"]
    assert {*steps, *in_git} == {one.version for one in every}
    assert len(every) == len({one.version for one in every})
    shown = [one.version for one in catalog.listed()]
    assert steps[-1] == min(shown, key=descending)
    assert all(moment_of(one.updated) and one.published <= one.updated for one in every)


@given(
    st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(1, 7)
)
def test_a_cursor_holds_while_drivers_come_and_go(stay: set[int], leave: set[int], come: set[int], size: int) -> None:
    """Whatever is added or removed between two pages: what stays is met exactly once."""

    def catalog(numbers: set[int]) -> Catalog:
        made = [entity(f"n{one:02}", auth="none", visibility="public") for one in sorted(numbers)]
        return Catalog(tuple(made), BASE)

    before, after = catalog(stay | leave), catalog(stay | (come - leave))
    page, seen, cursor = before, [], ""
    for turn in range(100):
        found = page.page({"limit": str(size), "cursor": cursor})
        seen += [one["server"]["name"] for one in found["servers"]]
        cursor = found["metadata"].get("nextCursor", "")
        if not cursor:
            break
        page = after if turn % 2 == 0 else before

    assert len(seen) == len(set(seen))
    assert {f"com.example/n{one:02}" for one in stay} <= set(seen)


def test_entries_of_the_past_have_no_tools() -> None:
    """What an endpoint does not serve is not advertised with it."""
    told = remember(
        None, [dataclasses.replace(served("2.0.0"), tools=("a",))],
        {"com.example/x": {"1.0.0": Release("1.0.0", "T", "D.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")}}, NOW,
    )  # fmt: skip

    assert (("a",), ()) == (told.served[0].tools, told.past[0].tools)
    assert ("T", "D.") == (told.past[0].title, told.past[0].description)
