"""A keyring backend for tests: one JSON file, named by an environment variable."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeyring(KeyringBackend):
    """Reads ``{"service": {"user": "password"}}``."""

    priority = 1  # type: ignore[assignment] # a class property of the library

    def get_password(self, service: str, username: str) -> str | None:
        """Return a password, ``None`` when there is none."""
        found = json.loads(Path(os.environ["TEST_KEYRING"]).read_text())
        return found.get(service, {}).get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        """Refuse: tests only read."""
        raise NotImplementedError
