"""Descriptors that a client keeps between runs, each under its server and path, with the ETag to ask by (S1-34, S1-37).

The document keeps them in ``/tmp/mcp_cache.json``, which is anybody's to write: the file is named by whoever uses it,
is private (0600), replaced as a whole, and ignored when somebody else could have written it. What is kept is only used
after the server said that it is unchanged (304).
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext

MAX_KEPT: Final = 4096
"""Descriptors in one file; the oldest are forgotten."""

MAX_BYTES: Final = 32 * 1024 * 1024


class ManifestCache:
    """The descriptors in one file, or in memory.

    Args:
        path: of the file; ``None`` keeps them in this object.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[str, dict[str, Any]] = _load(path) if path is not None else {}

    def find(self, server: str, path: str) -> tuple[str, dict[str, Any]] | None:
        """Return ETag and descriptor of a path, if they are kept."""
        found = self._kept.get(f"{server}\n{path}")
        return None if found is None else (str(found["etag"]), dict(found["descriptor"]))

    def keep(self, server: str, path: str, etag: str, descriptor: Any) -> None:
        """Keep a descriptor; without an ETag there is nothing to ask by, and it is not kept."""
        if not etag or not isinstance(descriptor, dict):
            return
        self._kept.pop(f"{server}\n{path}", None)
        self._kept[f"{server}\n{path}"] = {"etag": etag, "descriptor": descriptor}
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        if self._path is not None:
            self._write(self._path)

    def _write(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = jsontext.dump(self._kept)
        while len(data) > MAX_BYTES and self._kept:  # a larger file would not be read again
            for name in list(self._kept)[: max(1, len(self._kept) // 2)]:
                del self._kept[name]
            data = jsontext.dump(self._kept)
        # Fresh and ours, under a name that nobody can foresee: what somebody else put there is neither used nor filled.
        descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(fresh).replace(path)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise


def _load(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a private file keeps; nothing when it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(file.fileno())
            if (
                not stat.S_ISREG(facts.st_mode)
                or facts.st_uid != os.geteuid()
                or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                or facts.st_size > MAX_BYTES
            ):
                return {}
            value = jsontext.parse(file.read())
    except (OSError, jsontext.JsonTextError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {
        str(name): one
        for name, one in value.items()
        if isinstance(one, dict) and isinstance(one.get("etag"), str) and isinstance(one.get("descriptor"), dict)
    }
