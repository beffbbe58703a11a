"""Arguments that several commands share, and what they become."""

from __future__ import annotations

import argparse
import os
import re
import stat
from pathlib import Path
from typing import Final

from sandbox.errors import UsageError
from sandbox.limits import MAX_MANIFEST_BYTES, MIB

STATE: Final = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "mcp-sandbox"
"""Where this person's audit trail lies (XDG Base Directory)."""

CONFIG: Final = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "mcp-sandbox"
"""Where this person's ``policy.toml`` and ``secrets.toml`` are looked for."""


MAX_PATH: Final = 4095
"""Bytes of a path that Linux accepts: PATH_MAX without its NUL."""

MAX_NAME: Final = 255
"""Bytes of one name in a path: NAME_MAX."""


MAX_SUBJECT: Final = 256
"""Characters of a tenant or user; identity providers give no longer subjects (OpenID Connect Core, section 2: 255)."""


def path(text: str) -> Path:
    """Return a path that the operating system can look up.

    Raises:
        argparse.ArgumentTypeError: it is empty or longer than any path.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    if len(os.fsencode(text)) > MAX_PATH or any(len(os.fsencode(name)) > MAX_NAME for name in text.split("/")):
        raise argparse.ArgumentTypeError(f"longer than any path: {text[:60]}…")
    return Path(text)


def user(text: str) -> str:
    """Return who a call is for, which stands in rules, records and the server's arguments; may be empty.

    Raises:
        argparse.ArgumentTypeError: it is too long, or has characters that do not show.
    """
    if len(text) > MAX_SUBJECT or not text.isprintable() or text != text.strip():
        raise argparse.ArgumentTypeError(f"not at most {MAX_SUBJECT} printable characters: {text[:60]!r}")
    return text


def tenant(text: str) -> str:
    """Return a tenant, which is never empty.

    Raises:
        argparse.ArgumentTypeError: as :func:`user`, or it is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("a tenant is never empty")
    return user(text)


def read_file(place: Path, most: int = MAX_MANIFEST_BYTES) -> bytes:
    """Return what a file of the operator holds, without waiting for a FIFO and without reading a device.

    Raises:
        UsageError: ``CLI-011``, it cannot be read, is no regular file, or is larger than ``most`` bytes.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError("CLI-011", f"{place} is not a regular file", "name a plain file")
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError("CLI-011", f"{place} cannot be read: {error.strerror}", "name an existing file") from None
    if len(data) > most:
        raise UsageError("CLI-011", f"{place} is larger than {most} bytes", "name the right file")
    return data


def add_driver(parser: argparse.ArgumentParser) -> None:
    """Declare the driver, which most commands take."""
    parser.add_argument("driver", type=path, metavar="DRIVER.md", help="the driver's file or its folder")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Declare what re-points or narrows a plan; nothing here widens one."""
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="AT=PATH",
        help="mount PATH where the driver declares AT, such as --root /workspace=~/project",
    )
    parser.add_argument("--memory", type=mebibytes, metavar="SIZE", help="give at most this much: 256, 256M or 1G")
    parser.add_argument("--runtime", default="", help="use this OCI runtime; refused when the engine does not have it")
    parser.add_argument(
        "--policy", type=path, metavar="FILE", help="operator's ceiling (default: the shipped one, or policy.toml)"
    )


def add_audit_options(parser: argparse.ArgumentParser, *, reading: bool = False) -> None:
    """Declare where evidence goes, and, unless it is only read, what recorded means and which values are kept."""
    parser.add_argument(
        "--audit-dir", type=path, default=STATE / "audit", metavar="DIR", help="folder of the audit trail"
    )
    if reading:
        return
    parser.add_argument(
        "--durability",
        choices=("kernel", "disk"),
        default="kernel",
        help="recorded means: the kernel has it (survives a kill), or the disk has it (survives a power cut)",
    )
    parser.add_argument(
        "--key-store", choices=("file", "keyring"), default="file", help="where the private signing key lies"
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="TOOL.ARGUMENT",
        help="keep the values of this argument, to be erased by tenant; nothing is kept by default",
    )


def roots(pairs: list[str]) -> dict[str, str]:
    """Return ``AT → PATH`` of ``--root`` arguments.

    Raises:
        UsageError: ``CLI-010``, not of the form ``AT=PATH``.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        at, equals, path = pair.partition("=")
        if not equals or not at.startswith("/") or not path:
            raise UsageError("CLI-010", f"--root {pair!r} is not AT=PATH", "write --root /workspace=/path/to/folder")
        found[at] = str(Path(path).expanduser().absolute())
    return found


def mebibytes(text: str) -> int:
    """Return a size as MiB: a number of them, or one with the suffix ``M`` or ``G``.

    Raises:
        UsageError: ``CLI-002``, it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})(?:([MG])(?:i?B)?)?", text)
    if found is None:
        raise UsageError("CLI-002", f"{text[:32]!r} is no size", "write a number of MiB, such as 256, 256M or 1G")
    return int(found[1]) * (1024 if found[2] == "G" else 1)


def memory_bytes(megabytes: int | None) -> int | None:
    """Return ``--memory`` in bytes."""
    return None if megabytes is None else megabytes * MIB
