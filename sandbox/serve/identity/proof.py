"""Signing in on stdio with a key: the server sends a nonce, the client signs it, a pinned public key says who it is.

Two lines, before the first of MCP (2025-11 dialect, section 6.1: local keypair exchange for stdio)::

    {"jsonrpc":"2.0","method":"mcp-sandbox/challenge","params":{"version":1,"audience":"…","nonce":"…"}}
    {"jsonrpc":"2.0","method":"mcp-sandbox/proof","params":{"key":"ed25519/…","signature":"…"}}

Signed is :data:`CONTEXT`, the length of the audience in two bytes, the audience, and the nonce. The context keeps
signatures of the same key for anything else apart; the audience keeps a dishonest server from passing on the challenge
of another one; the nonce is 32 random bytes, made for one process and used once, so that nothing can be replayed.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sandbox.errors import Refused

CONTEXT: Final = b"mcp-sandbox stdio proof v1\0"
"""Before everything that is signed (domain separation)."""

KEY: Final = "ed25519/"
"""Before the Base64 of a public key."""

CHALLENGE: Final = "mcp-sandbox/challenge"
PROOF: Final = "mcp-sandbox/proof"

NONCE: Final = 32
"""Bytes of a nonce."""

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_AUDIENCE: Final = 255
"""Bytes of an audience."""


@dataclass(frozen=True, slots=True)
class LocalClient:
    """Whom the holder of a key calls for."""

    tenant: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What one process asks its one client to sign."""

    audience: str
    nonce: bytes

    def message(self) -> dict[str, Any]:
        """Return the line that is sent."""
        params = {"version": 1, "audience": self.audience, "nonce": _text(self.nonce)}
        return {"jsonrpc": "2.0", "method": CHALLENGE, "params": params}

    def signed(self) -> bytes:
        """Return what has to be signed."""
        audience = self.audience.encode()
        return CONTEXT + len(audience).to_bytes(2, "big") + audience + self.nonce


def challenge(audience: str) -> Challenge:
    """Return a fresh challenge."""
    return Challenge(audience, secrets.token_bytes(NONCE))


def read_challenge(message: Mapping[str, Any], audience: str) -> Challenge:
    """Return the challenge of a server, on the client's side.

    Args:
        message: its first line.
        audience: whom the client means to sign in to.

    Raises:
        Refused: ``CLI-204``, it is none, its nonce is not 32 bytes, or it is for somebody else: nothing is signed.
    """
    params = message.get("params")
    mend = "look at who it is; sign for nobody else"
    if message.get("method") != CHALLENGE or not isinstance(params, dict) or params.get("version") != 1:
        raise Refused("CLI-204", "the server does not ask for a proof in a known way", "start it with `--clients`")
    if params.get("audience") != audience:
        raise Refused("CLI-204", f"the server asks for a proof to {str(params.get('audience'))[:80]!r}", mend)
    nonce = _bytes(params.get("nonce"), NONCE)
    if nonce is None:
        raise Refused("CLI-204", "the nonce of the server is not 32 bytes", mend)
    return Challenge(audience, nonce)


def proof(asked: Challenge, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the answer to a challenge."""
    signature = _text(key.sign(asked.signed()))
    return {"jsonrpc": "2.0", "method": PROOF, "params": {"key": pin_of(key.public_key()), "signature": signature}}


def proved(message: Any, asked: Challenge, clients: Mapping[str, LocalClient]) -> tuple[str, LocalClient]:
    """Return the key and the client that a proof shows.

    Args:
        message: the first line of the client, parsed.
        asked: the challenge of this process.
        clients: by key.

    Raises:
        Refused: ``GATE-075`` it is no proof, ``GATE-076`` the key is nobody's, ``GATE-077`` it does not hold.
    """
    params = message.get("params") if isinstance(message, dict) and message.get("method") == PROOF else None
    mend = "connect through `mcp-sandbox prove`"
    if not isinstance(params, dict):
        raise Refused("GATE-075", "the client did not prove who it is", mend)
    name = params.get("key")
    raw = _bytes(name.removeprefix(KEY), KEY_BYTES) if isinstance(name, str) and name.startswith(KEY) else None
    signature = _bytes(params.get("signature"), SIGNATURE_BYTES)
    if raw is None or signature is None:
        raise Refused("GATE-075", "the proof of the client cannot be read", mend)
    client = clients.get(str(name))
    if client is None:
        raise Refused("GATE-076", "the key of the client is pinned for nobody here", "let the operator add it")
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, asked.signed())
    except (InvalidSignature, ValueError):
        text = "the signature of the client does not hold for this challenge"
        raise Refused("GATE-077", text, "sign what this process sent, for this audience") from None
    return str(name), client


def pin_of(key: Ed25519PublicKey) -> str:
    """Return how a public key is written in configurations and proofs."""
    return KEY + _text(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def is_pin(text: str) -> bool:
    """Return whether a text is a public key, in its one spelling."""
    return text.startswith(KEY) and _bytes(text.removeprefix(KEY), KEY_BYTES) is not None


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: Any, size: int) -> bytes | None:
    """Return what Base64 (URL alphabet, no padding, the one spelling) stands for, ``None`` unless of that size."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size and _text(raw) == text else None
