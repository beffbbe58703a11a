"""What is inferred of a server's words and end: folders that exist here, limits within the ceiling, and no more."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.cli.learned import Tried, failures, folders, limits
from sandbox.limits import MIB
from sandbox.plan.model import Mount
from sandbox.policy.ceiling import load_ceiling
from sandbox.resources import shipped
from sandbox.testing.plans import baseline_plan

BOUNDS = load_ceiling(shipped("policies", "default.toml").read_bytes(), "default.toml").bounds
PLAN = baseline_plan()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Error: ENOENT: no such file or directory, open '/srv/a b.txt'", [("/srv/a b.txt", "ENOENT")]),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/srv/x'", [("/srv/x", "[Errno 2]")]),
        ("OSError: [Errno 30] Read-only file system: '/srv/x'", [("/srv/x", "[Errno 30]")]),
        ("cat: /srv/x: Permission denied", [("/srv/x", "permission denied")]),
        ("open /srv/x: no such file or directory", [("/srv/x", "no such file or directory")]),
        ("all is well with /srv/x", []),
        ("ENOENT " * 10_000 + "'relative'", []),
    ],
)
def test_paths_are_read_from_what_programs_print(text: str, found: list[tuple[str, str]]) -> None:
    """Node, Python, shells and Go; nothing else is taken for a path."""
    assert failures([text]) == found


@pytest.fixture
def place() -> Iterator[Path]:
    """A file in a folder of this host that no image has."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        file = Path(folder).resolve() / "file"
        file.touch()
        yield file


def test_a_folder_is_proposed_when_it_exists_here_and_is_not_the_images_own(place: Path) -> None:
    """What exists is proposed once; what does not is noted; folders of the image and granted ones are neither."""
    here = str(place)
    texts = [
        f"ENOENT: no such file, open '{here}'",
        f"ENOENT: no such file, open '{here}'",
        "ENOENT: no such file, open '/nowhere/at/all'",
        "ENOENT: no such file, open '/etc/ssl/x'",
        "ENOENT: no such file, open '/granted/x'",
        "EROFS: read-only file system, open '/granted/y'",
        "ENOENT: no such file, open '/'",
    ]
    plan = replace(PLAN, mounts=(Mount("/srv", "/granted", writable=False),))
    grants, notes = folders(texts, plan)

    assert grants == [(here, "read")]
    assert [note.split()[0] for note in notes] == ["/nowhere/at/all", "/granted/y"]


def test_a_write_asks_for_the_folder(place: Path) -> None:
    """A file that could not be made needs its folder, not itself."""
    folder = str(place.parent)

    assert folders([f"[Errno 30] Read-only file system: '{folder}/new.txt'"], PLAN)[0] == [(folder, "write")]


@pytest.mark.parametrize(
    ("tried", "proposed"),
    [
        (Tried(), {}),
        (Tried(oom_killed=True), {"memory_mb": 2 * PLAN.limits.memory_bytes // MIB}),
        (Tried(memory_peak=PLAN.limits.memory_bytes), {"memory_mb": 2 * PLAN.limits.memory_bytes // MIB}),
        (Tried(memory_peak=PLAN.limits.memory_bytes // 2), {}),
        (Tried(texts=["RuntimeError: can't start new thread"]), {"pids": 2 * PLAN.limits.pids}),
        (Tried(texts=["EMFILE: too many open files"]), {"nofile": 2 * PLAN.limits.nofile}),
        (Tried(errors=["WIRE-043"]), {"timeout_ms": int(2000 * PLAN.limits.call_timeout)}),
    ],
)
def test_a_limit_that_was_hit_is_doubled(tried: Tried, proposed: dict[str, int]) -> None:
    """Only what was hit, in the unit of its field."""
    assert limits(PLAN, BOUNDS, tried) == (proposed, [])


def test_a_limit_at_the_operators_ceiling_is_noted_and_not_proposed() -> None:
    """A driver cannot be proposed what the operator refuses."""
    plan = replace(PLAN, limits=replace(PLAN.limits, memory_bytes=int(BOUNDS["memory"].max)))
    values, notes = limits(plan, BOUNDS, Tried(oom_killed=True))

    assert values == {}
    assert "ceiling" in notes[0]
