"""Secrets from every source to a real server, and nothing of them anywhere else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.drivers import COMMAND
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

KEY = "c4nary-signing-key-0123456789"
SLUG = "signing-key"


def sign(folder: Path, scratch: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Call the signing server with a configuration of this test's own."""
    argv = [
        *COMMAND,
        "call",
        str(folder),
        "text-sign",
        "--args",
        '{"text": "a"}',
        "--audit-dir",
        str(scratch / "audit"),
    ]
    plain = {name: text for name, text in os.environ.items() if name != "SIGNING_KEY"}
    environ = {**plain, "XDG_CONFIG_HOME": str(scratch / "config"), **env}
    return subprocess.run(argv, capture_output=True, text=True, env=environ, check=False, cwd=ROOT)


def configure(scratch: Path, slug: str, source: str) -> None:
    """Write the operator's secrets.toml."""
    folder = scratch / "config" / "mcp-sandbox"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "secrets.toml").write_text(f'["{slug}"]\n{source}\n')


@pytest.mark.parametrize("kind", ["env", "file", "keyring", "command"])
def test_every_source_gives_the_same_signature(kind: str, tmp_path: Path) -> None:
    """The server has the key whichever source it comes from; the trail, the output and the messages never do."""
    if kind == "keyring":
        pytest.importorskip("keyring")
    control = sign(ROOT / "drivers" / "signing-mcp", tmp_path, SIGNING_KEY=KEY)
    private = tmp_path / "key"
    private.write_text(KEY + "\n")
    private.chmod(0o600)
    ring = tmp_path / "ring.json"
    ring.write_text(json.dumps({"sign": {"alice": KEY}}))
    sources = {
        "env": 'env = "OTHER_NAME"',
        "file": f'file = "{private}"',
        "keyring": 'keyring = "sign/alice"',
        "command": f'command = ["cat", "{private}"]',
    }
    configure(tmp_path, SLUG, sources[kind])
    env = {
        "PYTHON_KEYRING_BACKEND": "tests.keyring_of_tests.FileKeyring",
        "TEST_KEYRING": str(ring),
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))),
    }
    done = sign(ROOT / "drivers" / "signing-mcp", tmp_path, OTHER_NAME=KEY if kind == "env" else "", **env)

    assert 0 == control.returncode, control.stderr
    assert (0, control.stdout) == (done.returncode, done.stdout), done.stderr
    trail = "".join(path.read_text() for path in (tmp_path / "audit" / "segments").glob("*.jsonl"))
    assert KEY not in trail + done.stdout + done.stderr


@pytest.mark.parametrize("source", ['env = "NOT_SET"', 'file = "/nonexistent"', 'command = ["false"]'])
def test_a_source_that_fails_stops_the_start(source: str, tmp_path: Path) -> None:
    """The operator's entry counts: there is no falling back to the variable."""
    configure(tmp_path, SLUG, source)
    done = sign(ROOT / "drivers" / "signing-mcp", tmp_path, SIGNING_KEY=KEY)

    assert 3 == done.returncode
    assert "SEC-00" in done.stderr
    assert KEY not in done.stderr


def variant(tmp_path: Path, slug: str, exposures: str = "") -> Path:
    """Return a copy of the signing driver with another slug, and other exposures."""
    folder = tmp_path / "signing-mcp"
    shutil.copytree(ROOT / "drivers" / "signing-mcp", folder)
    manifest = folder / "DRIVER.md"
    manifest.write_text(manifest.read_text().replace("${secrets.SIGNING_KEY}", f"${{secrets.{slug}}}"))
    secrets = folder / "SECRETS.md"
    secrets.write_text(secrets.read_text().replace("slug: signing-key", f"slug: {slug}\n{exposures}".rstrip()))
    return folder


def test_a_slug_of_a_group_reaches_the_server(tmp_path: Path) -> None:
    """A slug with `/` is a name like any other."""
    folder = variant(tmp_path, "team/signing-key")
    configure(tmp_path, "team/signing-key", 'env = "OTHER_NAME"')
    control = sign(ROOT / "drivers" / "signing-mcp", tmp_path / "control", SIGNING_KEY=KEY)
    done = sign(folder, tmp_path, OTHER_NAME=KEY)

    assert (0, control.stdout) == (done.returncode, done.stdout), done.stderr


def held(value: str) -> list[Path]:
    """Return the files in memory that hold a value."""
    places = {os.environ.get("XDG_RUNTIME_DIR") or "/dev/shm", "/dev/shm"}
    found = []
    for place in places:
        for path in Path(place).glob("mcp-sandbox-*/*/*"):
            with contextlib.suppress(OSError):
                if value in path.read_text(errors="replace"):
                    found.append(path)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_secret_file_goes_with_its_supervisor(number: signal.Signals, tmp_path: Path) -> None:
    """The file exists while the server runs, in a folder of its user's own, and goes however the supervisor ends."""
    value = f"{KEY}-{os.urandom(6).hex()}"
    folder = variant(tmp_path, SLUG, "    exposures: [{kind: file, path: /run/secrets/signing-key}]")
    argv = [sys.executable, "-m", "sandbox", "run", str(folder), "--audit-dir", str(tmp_path / "audit")]
    environ = {**os.environ, "SIGNING_KEY": value, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, cwd=ROOT
    )
    try:
        files = until(lambda: held(value), 60)
        modes = {oct(files[0].stat().st_mode & 0o777), oct(files[0].parent.stat().st_mode & 0o777)}
        process.send_signal(number)
        process.wait(60)
        left = until(lambda: not held(value), 60)
    finally:
        process.kill()
        process.communicate()

    assert {"0o444", "0o700"} == modes
    assert left


def until(probe, seconds: float):  # type: ignore[no-untyped-def]
    """Return what a probe gives once it is true, or after some time."""
    end = time.monotonic() + seconds
    while not (found := probe()) and time.monotonic() < end:
        time.sleep(0.1)
    return found
