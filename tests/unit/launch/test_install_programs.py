"""Programs of the host, downloads and docker images: checked before anything is started."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images import elf
from sandbox.launch.images.elf import Elf
from sandbox.launch.install import download
from sandbox.launch.install.docker import docker_facts, facts_of, names_content, own_image, resolve_image
from sandbox.launch.install.hostfile import base_of, place, read, shebang
from sandbox.launch.install.shop import Offer
from tests.image_kit import FakeEngine

OFFER = Offer("base", "amd64", frozenset({"node"}), {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.34"), "libm.so.6": ()})
ID = "sha256:" + "1" * 64


def test_missing_libraries_are_named() -> None:
    """A library, and a symbol version of one, are looked for before the loader does."""
    program = Elf("amd64", needs=("libc.so.6", "libgone.so.1"), versions={"libc.so.6": ("GLIBC_2.34", "GLIBC_2.38")})

    assert ("libgone.so.1", "libc.so.6 with GLIBC_2.38") == elf.missing(program, OFFER.libraries)
    assert () == elf.missing(Elf("amd64", needs=("libm.so.6",), versions={"libm.so.6": ("GLIBC_9",)}), OFFER.libraries)


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x7fELF", b"\x7fELF" + b"\xff" * 200, b"\x7fELF\x02\x01\x01" + bytes(57)]
)
def test_damaged_program_is_no_elf(data: bytes) -> None:
    """Any bytes give the facts or one error, nothing else."""
    try:
        found = elf.read(data)
    except elf.NotElf:
        return

    assert () == found.needs


def test_program_of_this_host_is_read() -> None:
    """The interpreter, the libraries and the versions of a real program are found."""
    found = elf.read(Path(shutil.which("ls") or "/bin/ls").read_bytes())

    assert "libc.so.6" in found.needs
    assert found.interpreter.startswith("/lib")


def test_program_of_a_newer_host_is_refused_by_name(tmp_path: Path) -> None:
    """The message names each library that the image lacks."""
    with pytest.raises(InstallRefused) as caught:
        place(Path("/bin/ls").read_bytes(), "ls", OFFER, "/bin/ls")

    assert "INST-073" == caught.value.id
    assert "libselinux.so.1" in caught.value.message


def test_program_for_another_machine_is_refused() -> None:
    """A program for another processor is told apart from a damaged one."""
    with pytest.raises(InstallRefused) as caught:
        place(Path("/bin/ls").read_bytes(), "ls", Offer("base", "arm64", frozenset(), {}), "/bin/ls")

    assert "INST-072" == caught.value.id
    assert "amd64" in caught.value.message


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler on this host")
def test_static_program_needs_nothing(tmp_path: Path) -> None:
    """A static program runs on the barest image."""
    (tmp_path / "x.c").write_text("int main(void){return 0;}")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "x", tmp_path / "x.c"], check=True)

    built = place((tmp_path / "x").read_bytes(), "x", Offer("base", "amd64", frozenset(), {}), "x")

    assert ("/app/bin/x",) == built.argv
    assert 0o755 == built.tree.entries["app/bin/x"].mode


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"#!/usr/bin/env node\n", "node"),
        (b"#! /usr/bin/node --x\n", "node"),
        (b"#!/usr/bin/env -S A=1 python3 -u\n", "python3"),
        (b"#!\n", ""),
        (b"#!/usr/bin/env\n", ""),
        (b"x", ""),
    ],
)
def test_interpreter_of_a_script(data: bytes, expected: str) -> None:
    """The first line is read as the kernel and env do."""
    assert expected == shebang(data)


@pytest.mark.parametrize(
    ("data", "expected"), [(b"#!/usr/bin/python3\n", "python"), (b"#!node\n", "node"), (b"\x7fELF", "base")]
)
def test_image_of_a_program(data: bytes, expected: str) -> None:
    """A script lies on the image of its interpreter."""
    assert expected == base_of(data)


def test_script_for_a_shell_is_refused() -> None:
    """There is no shell, and the message says so."""
    with pytest.raises(InstallRefused) as caught:
        place(b"#!/bin/sh\n", "run.sh", OFFER, "run.sh")

    assert "INST-073" == caught.value.id
    assert "`sh`" in caught.value.message


def test_script_is_started_by_its_interpreter() -> None:
    """A script of an interpreter that is there is started by its full path."""
    assert ("/usr/bin/node", "/app/bin/s_v.js") == place(b"#!/usr/bin/env node\n", "s v.js", OFFER, "s").argv


def test_only_regular_files_are_programs(tmp_path: Path) -> None:
    """A pipe does not hang the install, a folder and a missing file are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()

    for name in ("pipe", "empty", "none", "."):
        with pytest.raises(InstallRefused) as caught:
            read(tmp_path / name)

        assert "INST-071" == caught.value.id


# --- docker
DESCRIBED = {
    "Id": ID,
    "RepoDigests": ["z.example/x@sha256:" + "9" * 64, "a.example/x@sha256:" + "8" * 64],
    "Config": {
        "Entrypoint": ["/srv"],
        "Cmd": ["--stdio"],
        "Env": ["A=1=2", "B"],
        "User": "root",
        "Volumes": {"/data": {}},
        "Healthcheck": {"Test": ["CMD", "true"]},
        "OnBuild": ["RUN x"],
        "WorkingDir": "/w",
        "Labels": {"x": "y"},
    },
}


def test_wishes_of_an_image_are_noted_and_not_granted() -> None:
    """USER, VOLUME and HEALTHCHECK are in what was declared and nowhere else."""
    found = facts_of(DESCRIBED, "x:1", pinned=True)

    assert (("/srv", "--stdio"), {"A": "1=2", "B": ""}, "/w") == (found.argv, dict(found.env), found.workdir)
    assert {"User", "Volumes", "Healthcheck", "OnBuild"} == set(found.declared)


def test_image_without_a_program_is_refused() -> None:
    """An image that names no program is not guessed about."""
    with pytest.raises(InstallRefused) as caught:
        facts_of({"Id": ID, "Config": {}}, "x:1", pinned=True)

    assert "INST-062" == caught.value.id


def test_tag_is_pinned_to_what_it_is_now() -> None:
    """The lock holds the id, and the digest that it can be fetched by elsewhere."""
    engine = FakeEngine()
    engine.images[ID], engine.names["x:1"] = DESCRIBED, ID

    assert {"id": ID, "digest": "sha256:" + "8" * 64} == resolve_image("x:1", engine, pull=False)


def test_moved_tag_does_not_change_what_runs() -> None:
    """A tag that was moved is not looked at: the pinned id is run, or nothing."""
    engine = FakeEngine()
    engine.images["sha256:" + "2" * 64] = DESCRIBED | {"Id": "sha256:" + "2" * 64}
    engine.names["x:1"] = "sha256:" + "2" * 64

    with pytest.raises(InstallRefused) as caught:
        docker_facts("x:1", {"id": ID}, engine, pull=True)

    assert "INST-060" == caught.value.id


def test_image_is_fetched_only_by_digest_and_only_when_allowed() -> None:
    """Nothing is fetched by tag, and nothing at all when the operator does not let it."""
    engine = FakeEngine()
    for reference, pull in [("x:1", True), ("x@sha256:" + "8" * 64, False)]:
        with pytest.raises(InstallRefused):
            resolve_image(reference, engine, pull=pull)

    assert [] == engine.pulled


def test_other_image_under_the_digest_is_refused() -> None:
    """An image that a registry gives for the pinned digest must have the pinned id."""
    engine = FakeEngine()
    reference = "r.example:5000/x@sha256:" + "8" * 64
    engine.names[reference] = "other"
    engine.images["other"] = DESCRIBED | {"Id": "sha256:" + "2" * 64}

    with pytest.raises(InstallRefused) as caught:
        docker_facts("r.example:5000/x:1", {"id": ID, "digest": "sha256:" + "8" * 64}, engine, pull=True)

    assert "INST-061" == caught.value.id
    assert [reference] == engine.pulled


@pytest.mark.parametrize(
    ("reference", "own", "fixed"),
    [
        ("mcp-sandbox/signing-server:1", "signing-server", True),
        ("mcp-sandbox/signing-server:2", "", False),
        ("mcp-sandbox/base", "base", True),
        ("mcp-sandbox/none:1", "", False),
        ("evil/mcp-sandbox/base", "", False),
        ("x:1", "", False),
        (ID, "", True),
        (f"x@{ID}", "", True),
    ],
)
def test_reference_that_cannot_move(reference: str, own: str, fixed: bool) -> None:
    """An id, a digest, and an image of ours cannot come to mean something else."""
    assert (own, fixed) == (own_image(reference), names_content(reference))


# --- download
def archive(kind: str, **files: bytes) -> bytes:
    """Return an archive with files by name."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as target:
            for name, data in files.items():
                target.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode=f"w{kind}") as target:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                target.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["", ":gz", ":xz", ":bz2", "zip"])
def test_one_file_is_taken_out_of_an_archive(kind: str, tmp_path: Path) -> None:
    """Every common form gives the same file."""
    (tmp_path / "d").write_bytes(archive(kind, tool=b"#!/usr/bin/env node\n", other=b"x"))

    assert b"#!/usr/bin/env node\n" == download.extract(tmp_path / "d", "tool", tmp_path)


@pytest.mark.parametrize(("data", "expected"), [(b"plain", b"plain"), (gzip.compress(b"packed"), b"packed")])
def test_single_file_is_itself(data: bytes, expected: bytes, tmp_path: Path) -> None:
    """A program that is not in an archive is taken as it is, unpacked when it is compressed."""
    (tmp_path / "d").write_bytes(data)

    assert expected == download.extract(tmp_path / "d", "", tmp_path)


def test_absent_member_is_refused(tmp_path: Path) -> None:
    """The message names what to correct."""
    (tmp_path / "d").write_bytes(archive("", tool=b"x"))

    with pytest.raises(InstallRefused) as caught:
        download.extract(tmp_path / "d", "bin/tool", tmp_path)

    assert "INST-085" == caught.value.id


def test_compression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to more than the bound is stopped while it is unpacked."""
    monkeypatch.setattr(download, "MAX_UNPACKED_BYTES", 1024 * 1024)
    (tmp_path / "d").write_bytes(gzip.compress(bytes(16 * 1024 * 1024)))

    with pytest.raises(InstallRefused) as caught:
        download.extract(tmp_path / "d", "", tmp_path)

    assert "INST-082" == caught.value.id
    assert (tmp_path / "d.plain").stat().st_size <= 1024 * 1024


def test_cut_archive_is_refused(tmp_path: Path) -> None:
    """Half a file is an error, not half a program."""
    (tmp_path / "d").write_bytes(gzip.compress(os.urandom(100_000))[:50_000])

    with pytest.raises(InstallRefused) as caught:
        download.extract(tmp_path / "d", "", tmp_path)

    assert "INST-025" == caught.value.id


@pytest.mark.parametrize("address", ["http://h.example/x", "ftp://h.example/x", "file:///etc/passwd", "x"])
def test_download_without_tls_is_refused(address: str, tmp_path: Path) -> None:
    """Only https, before any connection."""
    with pytest.raises(InstallRefused) as caught:
        download.fetch(address, hashlib.sha256().hexdigest(), tmp_path / "d", b"")

    assert "INST-081" == caught.value.id
    assert not (tmp_path / "d").exists()


def test_unreachable_download_is_a_platform_error(tmp_path: Path) -> None:
    """A server that does not answer is not the driver's fault, and leaves nothing."""
    with pytest.raises(PlatformError) as caught:
        download.fetch("https://127.0.0.1:1/x", "0" * 64, tmp_path / "d", b"")

    assert "INST-084" == caught.value.id
    assert not (tmp_path / "d").exists()
