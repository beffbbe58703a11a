"""AIP-30 ``version_check``: ask the program for its version, inside the same sandbox, before it serves (S0-57).

The command runs in a container made from the very plan that the server gets, with another argument vector and never
through a shell. ``npx PACKAGE …`` means the installed server: nothing is fetched while a server runs. Only the exit of
the program or the deadline ends it; what it prints is bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from sandbox.errors import VetRefused
from sandbox.events import Scope
from sandbox.launch.interface import Backend
from sandbox.limits import KIB
from sandbox.plan.model import SandboxPlan
from sandbox.spec.model import DriverSpec, VersionCheck
from sandbox.spec.versions import accepts
from sandbox.wire.attach import AttachDecoder

MAX_PRINTED: Final = 16 * KIB
"""Bytes of a version command's output that are looked at."""


async def check_version(
    backend: Backend, spec: DriverSpec, plan: SandboxPlan, scope: Scope, secrets: Mapping[str, str]
) -> None:
    """Hold the server's version against the driver's range.

    Raises:
        VetRefused: ``VET-020``, it says another version, none, or does not end in time.
    """
    check = spec.version_check
    if check is None:
        return
    instance = await backend.launch(replace(plan, argv=argv_of(spec, plan, check)), scope, secrets)
    printed = b""
    try:
        assert instance.stream is not None  # noqa: S101 - the plan is the server's
        with anyio.move_on_after(check.timeout_ms / 1000):
            printed = await _output(instance.stream)
    finally:
        with anyio.CancelScope(shield=True):
            await instance.stop(0)
    found, good = accepts(check, printed.decode("utf-8", "replace"))
    scope.fact("vet.version", found=found[:64], range=check.range, accepted=good)
    if not good:
        said = f"it says {found!r}" if found else "its output has no version"
        raise VetRefused(
            "VET-020",
            f"{spec.where('version_check')}: the server's version is not within `{check.range}`: {said}",
            "install a version within the range, or correct `version_check`",
        )


def argv_of(spec: DriverSpec, plan: SandboxPlan, check: VersionCheck) -> tuple[str, ...]:
    """Return the argument vector that asks for the version; pure."""
    if not check.of_server:
        return check.argv
    given = getattr(spec.server, "args", ())
    return (*plan.argv[: len(plan.argv) - len(given)], *check.argv)


async def _output(stream: socket.socket) -> bytes:
    """Return what a program prints on both streams until it ends, bounded."""
    loop = asyncio.get_running_loop()
    decoder = AttachDecoder()
    printed = bytearray()
    stream.setblocking(False)
    while len(printed) < MAX_PRINTED:
        data = await loop.sock_recv(stream, 4 * KIB)
        if not data:
            break
        for _, piece in decoder.feed(data):
            printed += piece
    return bytes(printed[:MAX_PRINTED])
