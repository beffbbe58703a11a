"""Sign in to a server on stdio with a key, for MCP clients that cannot: start it, prove, and pass everything on.

``mcp-sandbox prove --key FILE --audience NAME -- ssh host mcp-sandbox run --clients clients.toml DRIVER.md`` is what a
client's configuration names as ``command``. The key is an Ed25519 private key, PKCS #8 in PEM, which nobody else may
read (``openssl genpkey -algorithm ed25519``). Nothing is signed for another audience than the one named.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox.cli import options
from sandbox.errors import Refused, UsageError
from sandbox.limits import KIB
from sandbox.serve.identity.proof import pin_of, proof, read_challenge

MAX_KEY_BYTES: Final = 4096
MAX_LINE: Final = 1024
"""Bytes of a challenge; one has about 150."""

TIMEOUT: Final = 60.0
"""Seconds in which the server has to ask; one behind ssh takes its time."""

BLOCK: Final = 64 * KIB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--key", type=options.path, required=True, metavar="FILE", help="Ed25519 private key in PEM")
    parser.add_argument("--audience", metavar="NAME", help="whom to sign in to, as its `--clients` file says")
    parser.add_argument("--show", action="store_true", help="print the public key for the `--clients` file, and end")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="after `--`: what starts the server")


def execute(arguments: argparse.Namespace) -> int:
    """Sign in and pass on until the server ends; return its status."""
    key = load_key(arguments.key)
    if arguments.show:
        print(pin_of(key.public_key()))
        return 0
    if not arguments.command or not arguments.audience:
        raise UsageError("CLI-203", "nobody is named to sign in to", "add `--audience NAME -- COMMAND …`")
    with subprocess.Popen(arguments.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: process.send_signal(number))
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101 - both are pipes
        try:
            asked = read_challenge(_first(process.stdout.fileno()), arguments.audience)
        except Refused:
            process.kill()
            raise
        _all(process.stdin.fileno(), orjson.dumps(proof(asked, key)) + b"\n")
        threading.Thread(target=_forward, args=(0, process.stdin), daemon=True).start()
        _copy(process.stdout.fileno(), sys.stdout.fileno())
        return process.wait()


def load_key(place: Path) -> Ed25519PrivateKey:
    """Return a client's key.

    Raises:
        UsageError: ``CLI-203``, it is no Ed25519 key, or others can read it; ``CLI-011``, it cannot be read.
    """
    raw = options.read_file(place, MAX_KEY_BYTES)
    if place.stat().st_mode & 0o077:
        raise UsageError("CLI-203", f"others may use {place}", f"chmod 600 {place}")
    try:
        key = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        text = f"{place} is no Ed25519 private key without a password"
        raise UsageError("CLI-203", text, "make one with `openssl genpkey -algorithm ed25519`")
    return key


def _first(descriptor: int) -> dict[str, Any]:
    """Return the first line of the server; an empty object when it is no JSON object in time."""
    line, until = bytearray(), time.monotonic() + TIMEOUT
    while len(line) < MAX_LINE:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        byte = os.read(descriptor, 1) if ready else b""
        if not byte or byte == b"\n":
            break
        line += byte
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _forward(source: int, target: Any) -> None:
    """Copy what the client says, then say that it has ended."""
    with contextlib.suppress(OSError):
        _copy(source, target.fileno())
        target.close()


def _copy(source: int, target: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data := os.read(source, BLOCK):
            _all(target, data)


def _all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
