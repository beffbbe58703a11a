"""Finds a container engine: ``DOCKER_HOST`` when it is set, else Docker's usual sockets, else Podman's."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.engine import Engine, no_engine

DOCKER_SOCKETS: Final = ("/var/run/docker.sock", "/run/docker.sock")
PODMAN_SOCKETS: Final = ("/run/podman/podman.sock",)


def candidates(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sockets to try, in order: ``DOCKER_HOST`` alone when set, else Docker's, then Podman's.

    Raises:
        PlatformError: ``LAUNCH-002``, ``DOCKER_HOST`` names something other than a unix socket.
    """
    host = environ.get("DOCKER_HOST", "")
    if host:
        return (_unix_path(host),)
    runtime_dir = environ.get("XDG_RUNTIME_DIR", "")
    rootless_docker = (f"{runtime_dir}/docker.sock",) if runtime_dir else ()
    rootless_podman = (f"{runtime_dir}/podman/podman.sock",) if runtime_dir else ()
    return (*DOCKER_SOCKETS, *rootless_docker, *rootless_podman, *PODMAN_SOCKETS)


def _unix_path(host: str) -> str:
    path = host.removeprefix("unix://")
    if path != host and path.startswith("/"):
        return path
    raise PlatformError(
        "LAUNCH-002",
        f"DOCKER_HOST={host[:200]!r} is not a unix socket; there is no other way to an engine",
        "set DOCKER_HOST to unix:///path/of/the.sock, or unset it; forward a remote engine's socket over ssh",
    )


async def connect(environ: Mapping[str, str]) -> Engine:
    """Return a client of the first engine that answers.

    Raises:
        PlatformError: ``LAUNCH-001``, none does; ``LAUNCH-002`` and ``LAUNCH-003`` as for its parts.
    """
    tried = candidates(environ)
    for path in tried:
        if not is_socket(path):
            continue
        engine = Engine(path)
        try:
            await engine.identify()
        except PlatformError as error:
            if error.id != "LAUNCH-001":
                raise
            continue
        return engine
    raise no_engine(", ".join(dict.fromkeys(tried)))


def is_socket(path: str) -> bool:
    """Return whether a unix socket lies at ``path``."""
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
