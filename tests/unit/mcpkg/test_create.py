"""Packaging a folder: the same files give the same bytes, and what comes out is what a host accepts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused
from sandbox.mcpkg.archive import Archive, open_archive
from sandbox.mcpkg.contents import FolderContents, digests
from sandbox.mcpkg.create import file_name, pack
from tests.mcpkg_kit import ECHO, echo_folder, folder

MORE = {"README.md": "# Echo", "b/z.txt": "z" * 5000, "b/a.txt": "", "ä.txt": "ä"}


@pytest.mark.claim("P-PKG-02")
def test_create_twice_is_byte_identical(tmp_path: Path) -> None:
    """Times, order of writing, umask and place of the folder leave no trace in the package."""
    one = folder(echo_folder(tmp_path / "one"), MORE)
    old = os.umask(0o077)
    try:
        other = folder(tmp_path / "somewhere" / "else", dict(reversed(MORE.items())))
        echo_folder(other)
    finally:
        os.umask(old)
    for path in other.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))

    assert pack(FolderContents(one)) == pack(FolderContents(other))


@pytest.mark.claim("P-PKG-02")
def test_the_command_creates_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    """Two runs of `pkg create`, under different hash seeds and time zones, write one and the same file."""
    source = folder(echo_folder(tmp_path / "echo"), MORE)
    written = []
    for number, zone in enumerate(("UTC", "Asia/Kolkata")):
        out = tmp_path / f"{number}.mcpkg"
        argv = [sys.executable, "-m", "sandbox", "pkg", "create", str(source), "--out", str(out)]
        done = subprocess.run(
            argv, env={**os.environ, "TZ": zone, "PYTHONHASHSEED": str(number)}, capture_output=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        written.append(out.read_bytes())

    assert written[0] == written[1]


def test_what_is_packaged_is_what_was_there(tmp_path: Path) -> None:
    """Every file comes back with its bytes and whether it is a program; other tools read the package too."""
    source = folder(echo_folder(tmp_path / "echo"), MORE)
    (source / "tool").write_bytes(b"\x7fELF")
    (source / "tool").chmod(0o700)
    contents = FolderContents(source)
    file = tmp_path / file_name(ECHO["toolId"], ECHO["version"])
    file.write_bytes(pack(contents))
    opened = open_archive(file)

    assert "demo.echo-0.1.0.mcpkg" == file.name
    assert digests(contents) == digests(opened)
    assert ["tool"] == [name for name in opened.names() if opened.executable(name)]
    with zipfile.ZipFile(file) as other:
        assert other.testzip() is None
        assert opened.names() == tuple(sorted(other.namelist()))


def test_what_an_author_does_not_mean_is_left_out(tmp_path: Path) -> None:
    """Hidden names, byte code and packages stay out and are named; a link is refused rather than followed."""
    source = folder(
        echo_folder(tmp_path / "echo"), {".git/config": "", ".env": "SECRET=1", "old.mcpkg": "", "a.txt": ""}
    )
    contents = FolderContents(source, tidy=True)
    (source / "link").symlink_to("/etc/passwd")

    assert [".env", ".git", "old.mcpkg"] == sorted(contents.left_out)
    assert ("a.txt", "manifest.json", "tests/echo.test.json") == contents.names()
    with pytest.raises(InstallRefused, match="PKG-003"):
        FolderContents(source, tidy=True)


def test_archives_of_other_writers_are_read(tmp_path: Path) -> None:
    """What Python's and Info-ZIP's writers make of plain files is a package."""
    source = folder(echo_folder(tmp_path / "echo"), MORE)
    file = tmp_path / "python.mcpkg"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(source.rglob("*")):
            out.write(path, path.relative_to(source))

    assert digests(FolderContents(source)) == digests(Archive(file.read_bytes(), "x"))
