"""Paths as text: what is forwarded, what is refused and why; and through the kernel, below a mount's source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import CallRefused, PlatformError
from sandbox.serve.paths import MAX_PATH_BYTES, Checked, Roots, check_path
from sandbox.serve.paths_fs import HostTree, open_beneath
from sandbox.serve.readings import MAX_READINGS, TooManyReadings, climbs, readings

ROOTS = Roots(["/data/a", "/data/a/deep", "/srv/file.txt"])


@pytest.mark.parametrize(
    ("text", "forwarded", "root"),
    [
        ("/data/a", "/data/a", "/data/a"),
        ("/data/a/", "/data/a", "/data/a"),
        ("/data/a/x/", "/data/a/x/", "/data/a"),
        ("/data/a/./x//y", "/data/a/x/y", "/data/a"),
        ("/data/a/deep/x", "/data/a/deep/x", "/data/a/deep"),
        ("/srv/file.txt", "/srv/file.txt", "/srv/file.txt"),
        ("x", "/data/a/work/x", "/data/a"),
        (".", "/data/a/work", "/data/a"),
        ("./~x", "/data/a/work/~x", "/data/a"),
        ("./C:x", "/data/a/work/C:x", "/data/a"),
        ("-x", "/data/a/work/-x", "/data/a"),
    ],
)
def test_what_is_checked_is_what_is_forwarded(text: str, forwarded: str, root: str) -> None:
    """A path comes out absolute and plain, otherwise as it was written."""
    checked = check_path(text, ROOTS, "/data/a/work")

    assert (forwarded, root) == (checked.text, checked.root)
    assert checked.text == check_path(checked.text, ROOTS).text


@pytest.mark.claim("P-URI-01")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "CALL-040"),
        ("a\0b", "CALL-040"),
        ("a\nb", "CALL-040"),
        ("a\x9bb", "CALL-040"),
        ("\ud800", "CALL-040"),
        ("/data/a/" + "x" * MAX_PATH_BYTES, "CALL-040"),
        ("/data/a/..", "CALL-041"),
        ("/data/a/../a/x", "CALL-041"),
        ("//data/a/x", "CALL-041"),
        ("\\\\host\\share", "CALL-041"),
        ("C:\\x", "CALL-041"),
        ("C:x", "CALL-041"),
        ("~/x", "CALL-041"),
        ("~root/x", "CALL-041"),
        ("file:///data/a/x", "CALL-041"),
        ("https://example.com/", "CALL-041"),
        ("/data/a/%2e%2e/x", "CALL-041"),
        ("/data/a/%252e%252e%252fx", "CALL-041"),
        ("/data/a/..%2fx", "CALL-041"),
        ("/data/a/..\\x", "CALL-041"),
        ("/data/a/%c0%ae%c0%ae%c0%afx", "CALL-041"),
        ("/data/a/%u002e%u002e%u2215x", "CALL-041"),
        ("/data/a/．．／x", "CALL-041"),
        ("/data/a/‥/x", "CALL-041"),
        ("/data/a/.\u200b./x", "CALL-041"),
        ("/data/a/.. /x", "CALL-041"),
        ("/data/a/..;/x", "CALL-041"),
        ("/data/a/..%00/x", "CALL-041"),
        ("/data/a/%2Fetc/passwd", "CALL-041"),
        ("/data/a_evil/x", "CALL-042"),
        ("/data", "CALL-042"),
        ("/DATA/a/x", "CALL-042"),
        ("/srv/file.txt.bak", "CALL-042"),
        ("/etc/passwd", "CALL-042"),
    ],
)
def test_what_could_lead_out_is_refused(text: str, expected: str) -> None:
    """Every way out has its refusal; a sibling whose name begins like a root's is outside."""
    with pytest.raises(CallRefused) as caught:
        check_path(text, ROOTS, "/data/a")

    assert expected == caught.value.id


def test_no_roots_allow_no_path() -> None:
    """A plan that grants nothing refuses every path."""
    with pytest.raises(CallRefused):
        check_path("/x", Roots([]))


@pytest.mark.parametrize("path", ["data", "/a/../b", "/a//b", "/a/", "/a/. ./b"])
def test_a_root_that_is_not_plain_is_a_mistake(path: str) -> None:
    """Roots are absolute and written one way."""
    with pytest.raises(ValueError, match="root"):
        Roots([path])


@pytest.mark.parametrize(
    ("text", "forwarded"),
    [("src/x.py", "src/x.py"), ("./a//b/./c", "a/b/c"), (".", "."), ("./-x", "./-x"), ("./~x", "./~x"), ("a-b", "a-b")],
)
def test_relative_names_stay_relative(text: str, forwarded: str) -> None:
    """A name below something else is forwarded relative; what a program could misread keeps its `./`."""
    assert forwarded == check_path(text, ROOTS, style="relative").text


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "../x", "a/../../x", "--output=/x", "%2Fetc/passwd", "%2e%2e/x", "~/x"]
)
def test_relative_names_do_not_leave(text: str) -> None:
    """A relative name is neither absolute, nor an option, nor climbing in any reading."""
    with pytest.raises(CallRefused):
        check_path(text, ROOTS, style="relative")


def test_too_many_readings_refuse() -> None:
    """A name encoded in more layers than anybody needs is refused, not unwrapped for ever."""
    layers = "%25" + "25" * (2 * MAX_READINGS) + "41"

    with pytest.raises(TooManyReadings):
        readings(layers)
    with pytest.raises(CallRefused):
        check_path(f"/data/a/{layers}", ROOTS)


@pytest.mark.parametrize(
    ("text", "up"),
    [
        ("a/../b", True),
        ("..", True),
        (". .", True),
        ("a/.. ./b", True),
        ("...", False),
        ("a../b", False),
        ("..a", False),
        (".", False),
    ],
)
def test_climbing_is_two_dots(text: str, up: bool) -> None:
    """Two dots climb, also with spaces; three are a name."""
    assert up is climbs(text)


def tree(tmp_path: Path) -> Path:
    """Return a mount's source with links that lead out."""
    source = tmp_path / "source"
    for folder in (source / "sub", tmp_path / "outside"):
        folder.mkdir(parents=True)
    (tmp_path / "outside" / "canary").write_text("CANARY")
    (source / "file").write_text("content")
    for link, target in {
        "up": "../outside",
        "abs": str(tmp_path / "outside"),
        "in": "sub",
        "gone": "../outside/new",
    }.items():
        (source / link).symlink_to(target)
    os.mkfifo(source / "fifo")
    return source


@pytest.mark.claim("P-URI-04")
@pytest.mark.parametrize(
    ("below", "allowed"),
    [
        ("file", True),
        ("in", True),
        ("in/new/deep", True),
        ("absent/deep", True),
        ("", True),
        ("up/canary", False),
        ("abs/canary", False),
        ("up/new", False),
        ("gone", False),
        ("gone/x", False),
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, below: str, allowed: bool) -> None:
    """F06: a link to the outside, dangling or not, is refused; links within are followed."""
    checked = Checked(f"/w/{below}", "path", path=f"/w/{below}", root="/w", below=below)
    with HostTree([("/w", str(tree(tmp_path)))]) as host:
        if allowed:
            host.verify(checked)
            return
        with pytest.raises(CallRefused) as caught:
            host.verify(checked)

    assert caught.value.id == "CALL-045"


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    """F21: resolving and opening a FIFO returns at once."""
    checked = Checked("/w/fifo", "path", root="/w", below="fifo")
    with HostTree([("/w", str(tree(tmp_path)))]) as host:
        host.verify(checked)
        os.close(host.open(checked))


def test_a_source_that_cannot_be_opened_is_a_failure_of_the_host(tmp_path: Path) -> None:
    """Without the directory nothing can be judged, and nothing is held open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(PlatformError):
        HostTree([("/w", str(tmp_path)), ("/x", str(tmp_path / "absent"))])

    assert before == len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.claim("P-URI-04")
def test_a_link_that_is_swapped_while_it_is_resolved_never_leads_out(tmp_path: Path) -> None:
    """F07: in 100 000 openings during which a folder turns into a link and back, none reaches the outside.

    The control, resolve and then open, is beaten by the same swapping.
    """
    source = tree(tmp_path)
    (source / "sub" / "canary").write_text("inside")
    (source / "flip").mkdir()
    (source / "flip" / "canary").write_text("inside")
    with subprocess.Popen([sys.executable, "-c", SWAP, os.fspath(source)]) as swapper:
        try:
            escaped = _openings(source, 100_000)
            beaten = _beaten(source, 1_000_000)
        finally:
            swapper.kill()

    assert escaped == 0
    assert beaten > 0


SWAP = """
import os, sys
os.chdir(sys.argv[1])
while True:
    os.rename("flip", "spare")
    os.rename("up", "flip")
    os.rename("flip", "up")
    os.rename("spare", "flip")
"""
"""Exchanges a folder and a link to the outside, in a process of its own, until it is killed."""


def _openings(source: Path, rounds: int) -> int:
    escaped = 0
    top = os.open(source, os.O_PATH)
    for _ in range(rounds):
        try:
            found = open_beneath(top, "flip/canary", os.O_RDONLY)
        except OSError:
            continue
        escaped += os.read(found, 16) == b"CANARY"
        os.close(found)
    os.close(top)
    return escaped


def _beaten(source: Path, most: int) -> int:
    path = source / "flip" / "canary"
    for _ in range(most):
        try:
            if path.resolve().is_relative_to(source) and path.read_bytes() == b"CANARY":
                return 1
        except (OSError, RuntimeError):
            continue
    return 0
