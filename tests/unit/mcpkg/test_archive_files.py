"""Packages as files: what is opened, what is found, where it comes from."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

import pytest

from sandbox.cli.packages.common import find_package
from sandbox.cli.packages.make import provenance
from sandbox.errors import InstallRefused, SpecError, UsageError
from sandbox.mcpkg.archive import open_archive
from sandbox.mcpkg.bounds import MAX_ARCHIVE_BYTES
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.create import pack
from sandbox.mcpkg.manifest import read_package
from tests.mcpkg_kit import Item, archive, echo_folder, folder, with_manifest


def test_only_mcpkg_files_are_opened(tmp_path: Path) -> None:
    """The ending is `.mcpkg`; a FIFO, a folder or an absent file is told, and none of them is waited for."""
    good = tmp_path / "a.MCPKG"
    good.write_bytes(with_manifest())
    assert ("manifest.json",) == open_archive(good).names()
    other = tmp_path / "a.zip"
    other.write_bytes(with_manifest())
    os.mkfifo(tmp_path / "fifo.mcpkg")
    (tmp_path / "folder.mcpkg").mkdir()
    for name in ("a.zip", "fifo.mcpkg", "folder.mcpkg", "absent.mcpkg"):
        with pytest.raises(UsageError, match="PKG-009"):
            open_archive(tmp_path / name)


def test_a_package_without_manifest_is_refused(tmp_path: Path) -> None:
    """A manifest in a folder of the archive, or none, is no manifest."""
    for name in (b"echo/manifest.json", b"MANIFEST.JSON"):
        file = tmp_path / "a.mcpkg"
        file.write_bytes(archive([Item(name, b"{}")]))
        with pytest.raises(SpecError, match="PKG-008"):
            read_package(open_archive(file))


def test_a_file_is_not_read_beyond_its_bound(tmp_path: Path) -> None:
    """A file of many gigabytes is refused without reading it."""
    file = tmp_path / "a.mcpkg"
    with file.open("wb") as out:
        out.truncate(1000 * MAX_ARCHIVE_BYTES)
    with pytest.raises(InstallRefused, match="PKG-004"):
        open_archive(file)


def test_a_tool_is_found_by_its_id(tmp_path: Path) -> None:
    """The newest version in a folder of packages, by semantic versioning; damaged files are passed over."""
    for number, version in enumerate(("0.9.0", "0.10.0", "0.10.0-rc.1")):
        source = FolderContents(echo_folder(tmp_path / version, version=version))
        (tmp_path / f"{number}.mcpkg").write_bytes(pack(source))
    (tmp_path / "damaged.mcpkg").write_bytes(b"PK")

    assert tmp_path / "1.mcpkg" == find_package(argparse.Namespace(package=Path("demo.echo"), origin=tmp_path))
    assert tmp_path / "0.mcpkg" == find_package(argparse.Namespace(package=tmp_path / "0.mcpkg", origin=None))
    with pytest.raises(UsageError, match="PKG-009"):
        find_package(argparse.Namespace(package=Path("demo.absent"), origin=tmp_path))


def test_provenance_is_of_the_commit(tmp_path: Path) -> None:
    """Commit, its time and author, and the repository without credentials; twice the same; no hook of git runs."""
    source = folder(echo_folder(tmp_path / "echo"), {"evil.sh": "#!/bin/sh\ntouch evil-ran\n"})
    (source / "evil.sh").chmod(0o755)

    def git(*words: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
        subprocess.run(["git", "-C", str(source), *who, *words], check=True, capture_output=True)

    git("init", "-q")
    with pytest.raises(UsageError, match="PKG-027"):
        provenance(source)
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("remote", "add", "origin", "https://user:token@git.example/a.git")
    git("config", "core.fsmonitor", str(source / "evil.sh"))
    found = json.loads(provenance(source))

    assert {"sourceRepo", "commit", "builtAt", "builtBy"} == set(found)
    assert ("https://git.example/a.git", "a@b.example", 40) == (
        found["sourceRepo"],
        found["builtBy"],
        len(found["commit"]),
    )
    assert provenance(source) == provenance(source)
    assert not list(tmp_path.rglob("evil-ran"))


def test_nothing_that_a_repository_configures_is_run_for_its_provenance(tmp_path: Path) -> None:
    """A signed commit and a configured verifier, which plain git starts, start nothing here."""
    source, ran = folder(echo_folder(tmp_path / "echo"), {}), tmp_path / "evil-ran"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\n")
    evil.chmod(0o755)

    def git(*words: str, given: str = "") -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@b.example")
        run = ["git", "-C", str(source), *who, *words]
        return subprocess.run(run, check=True, capture_output=True, text=True, input=given).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    plain = git("cat-file", "commit", "HEAD")
    head, _, message = plain.partition("\n\n")
    lines = "-----BEGIN PGP SIGNATURE-----\n \n YQ==\n -----END PGP SIGNATURE-----"
    signed = git("hash-object", "-t", "commit", "-w", "--stdin", given=f"{head}\ngpgsig {lines}\n\n{message}\n")
    git("update-ref", "HEAD", signed)
    git("config", "log.showSignature", "true")
    git("config", "gpg.program", str(evil))
    found = json.loads(provenance(source))
    quiet = ran.exists()
    git("log", "-1")

    assert (signed, "a@b.example", False) == (found["commit"], found["builtBy"], quiet)
    assert ran.exists(), "plain git runs it"
