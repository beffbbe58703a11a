"""Where images keep their files on this host: a cache that may be deleted at any time, and a little local state.

Both follow the XDG base directory specification and are for the user only (mode 0700): what lies there ends up in
images.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError

_THREADS: Final = threading.RLock()
"""Held by the one thread of this process that builds; ``flock`` alone would make it wait for itself."""

_HELD: Final[dict[Path, int]] = {}
"""Cache folder → how many times that thread has taken its lock."""


@dataclass(frozen=True, slots=True)
class Places:
    """The two folders.

    Attributes:
        cache: layers by digest; losing it costs time only.
        state: what was resolved on this host and differs from what is recorded in the project.
    """

    cache: Path
    state: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Places:
        """Return the folders that ``XDG_CACHE_HOME`` and ``XDG_STATE_HOME`` name, or their defaults."""
        home = Path(environ.get("HOME") or "/")
        cache = environ.get("XDG_CACHE_HOME") or str(home / ".cache")
        state = environ.get("XDG_STATE_HOME") or str(home / ".local" / "state")
        return cls(Path(cache) / "mcp-sandbox", Path(state) / "mcp-sandbox")

    def layer(self, digest: str) -> Path:
        """Return where the uncompressed tar of a layer lies when it is cached."""
        return self.cache / "layers" / (digest.removeprefix("sha256:") + ".tar")

    def local_lock(self, name: str) -> Path:
        """Return where this host keeps its own lock of an image."""
        return self.state / "images" / f"{name}.lock.json"

    def installed(self, key: str) -> Path:
        """Return where this host remembers what an install gave on a platform that its lock does not know."""
        return self.state / "installs" / f"{key.removeprefix('sha256:')}.json"

    @contextmanager
    def building(self) -> Iterator[Path]:
        """Hold the lock of everybody who builds here, and yield a scratch folder that goes away afterwards.

        A thread that holds it may take it again: an install builds the images that it needs. The scratch folder is
        beside the cache, so that a finished layer is moved in one step.
        """
        with _made(self.cache), _THREADS:
            depth = _HELD.get(self.cache, 0)
            with (self.cache / "building.lock").open("w") as held:
                if not depth:
                    fcntl.flock(held, fcntl.LOCK_EX)
                _HELD[self.cache] = depth + 1
                try:
                    with tempfile.TemporaryDirectory(prefix="build-", dir=self.cache) as scratch:
                        yield Path(scratch)
                finally:
                    _HELD[self.cache] = depth

    def keep(self, file: Path, digest: str) -> Path:
        """Move a finished layer into the cache and return its place there."""
        target = self.layer(digest)
        with _made(target.parent):
            file.replace(target)
        return target


def write_private(path: Path, data: bytes) -> None:
    """Write a file of the state in one step, readable by its owner only."""
    with _made(path.parent), tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as sink:
        sink.write(data)
    Path(sink.name).replace(path)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(str(folder)):
            raise
        raise PlatformError(
            "IMG-001",
            f"`{error.filename}` cannot be written: {os.strerror(error.errno or 0)}",
            "make room or give this user the folder, or point XDG_CACHE_HOME and XDG_STATE_HOME elsewhere",
        ) from error
