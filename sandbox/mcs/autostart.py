"""`autostart(image=…)`: a server from an image's name alone, and never outside a sandbox (section 7).

The specification asks that an automatic start be virtualised and leaves open how. Here:

1. the image must be on this engine by that name; nothing is pulled unless the operator's ceiling allows it
2. ``init`` makes its driver folder: the image runs once without a network and is asked what it offers; every tool gets
   a contract with the server's own schemas, and what it offered is pinned
3. the folder is opened like any other: no network, no folder of the host, the ceiling, vetting, the trail

The folder lies with this person's state, under the digest of what was asked for, so that a second start finds what the
first one pinned; a server that offers something else by then is refused. Without an engine the first step fails, and
there is no second way to start anything.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from sandbox.cli import options
from sandbox.cli.bench import engine, run_async
from sandbox.cli.drafting.make import make
from sandbox.cli.drafting.source import Source
from sandbox.cli.evidence import trail
from sandbox.cli.progress import quiet_progress
from sandbox.errors import UsageError
from sandbox.events import Recorder
from sandbox.mcs.opening import arguments_of
from sandbox.mcs.session import Turn
from sandbox.mcs.settings import DriverSettings

KNOWN: Final = frozenset(("image", "args", "secrets"))

FOLDER: Final = options.STATE / "mcs"
"""Where the folders lie."""


def drafted(settings: DriverSettings, wanted: dict[str, Any]) -> str:
    """Return the driver folder for an image, made when there is none.

    Args:
        settings: of the driver; audit folder and ceiling hold for the first run as well.
        wanted: arguments of ``autostart``.

    Raises:
        UsageError: ``MCS-013``, they do not name an image.
        PlatformError: there is no engine.
        SandboxError: the image cannot be planned, started or understood.
    """
    image, args, secrets = wanted.get("image"), wanted.get("args", []), wanted.get("secrets", [])
    if not isinstance(image, str) or not image or not _words(args) or not _words(secrets) or wanted.keys() - KNOWN:
        why = f"autostart takes `image`, a name, and `args` and `secrets`, lists of words, not {sorted(wanted)}"
        raise UsageError("MCS-013", why[:300], "folders and network need a DRIVER.md: docs/driver-md.md")
    source = Source("docker", image, args=tuple(args), secrets=tuple(secrets))
    name = hashlib.sha256(repr((image, source.args, source.secrets)).encode()).hexdigest()[:24]
    folder = FOLDER / f"{source.id}-{name}"
    if not (folder / "DRIVER.md").exists():
        arguments = arguments_of(settings.of({**settings.model_dump(), "driver": str(folder)}))
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may have an event loop of its own
            thread.submit(_drafted, source, folder, arguments).result()
    return str(folder)


def _words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _drafted(source: Source, folder: Path, arguments: argparse.Namespace) -> None:
    turn = Turn()
    try:
        with trail(arguments) as recorder:
            run_async(functools.partial(_make, source, folder, arguments, recorder))
    finally:
        turn.end()


async def _make(source: Source, folder: Path, arguments: argparse.Namespace, recorder: Recorder) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with engine() as backend:
        await make(source, folder, backend, recorder, quiet_progress(), arguments)
