"""The key that signs the context of calls (``user.assertion``), where this person keeps one.

``context.key`` in the configuration folder: an Ed25519 private key, PKCS #8 in PEM, readable by its owner only, as
``openssl genpkey -algorithm ed25519`` writes it. Servers verify with its public half; ``kid`` is the first 16
hexadecimal digits of the SHA-256 of the raw public key.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox.cli import options
from sandbox.errors import UsageError
from sandbox.serve.context import Signer

ISSUER: Final = "mcp-sandbox"
"""Who signs; the key says which installation it is."""

MAX_KEY_BYTES: Final = 4096
"""An Ed25519 key in PEM has 119."""


def signer_for(driver: str, place: Path | None = None) -> Signer | None:
    """Return what signs contexts for a driver, ``None`` without a key.

    Raises:
        UsageError: ``CLI-151``, the key is no Ed25519 key, or others can read it; ``CLI-011``, it cannot be read.
    """
    file = place or options.CONFIG / "context.key"
    if not file.exists():
        return None
    found = file.stat()
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (os.getuid(), 0):
        raise UsageError("CLI-151", f"others may read {file}", f"chmod 600 {file}")
    try:
        key = serialization.load_pem_private_key(options.read_file(file, MAX_KEY_BYTES), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        text = f"{file} is no Ed25519 private key without a password"
        raise UsageError("CLI-151", text, "make one with `openssl genpkey -algorithm ed25519`")
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return Signer(key, hashlib.sha256(raw).hexdigest()[:16], ISSUER, driver)
