"""The key that signs contexts of calls: used when it is one and private, refused otherwise."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from sandbox.cli.signing import signer_for
from sandbox.errors import UsageError
from sandbox.serve.calls import Caller
from sandbox.serve.guard import ContextInjector
from sandbox.tenant import TenantContext, TenantId
from tests.unit.serve.builders import contract_of, spec_of


def pem(key: object) -> bytes:
    """Return a private key as openssl writes it."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return bytes(key.private_bytes(*form))  # type: ignore[attr-defined]


def test_without_a_key_nothing_is_signed(tmp_path: Path) -> None:
    """No key is no error; only a driver that asks for proof is refused."""
    assert signer_for("files-mcp", tmp_path / "context.key") is None


@pytest.mark.claim("P-TENANT-02")
def test_a_statement_verifies_with_the_public_half(tmp_path: Path) -> None:
    """Another implementation verifies what is injected; audience is the driver, the tenant is the caller's."""
    key, file = Ed25519PrivateKey.generate(), tmp_path / "context.key"
    file.write_bytes(pem(key))
    file.chmod(0o600)
    signer = signer_for("files-mcp", file)
    context = {"proof": "user.assertion", "tenant": "tenant.id"}
    binding = spec_of(contract_of(), context=context).bindings[0]
    injector = ContextInjector(binding, signer, time.time, lambda: "id-1")

    sent = injector.inject({"x": 1}, Caller(TenantContext(TenantId("acme"), "alice")))

    claims = jwt.decode(sent["proof"], key.public_key(), algorithms=["EdDSA"], audience="files-mcp")
    assert ("acme", "alice", "id-1") == (claims["tenant"], claims["sub"], claims["jti"])


@pytest.mark.parametrize("kind", ["rsa", "text", "open"])
def test_a_key_that_is_none_or_not_private_is_refused(kind: str, tmp_path: Path) -> None:
    """Another algorithm, no key at all, a mode that lets others read."""
    file = tmp_path / "context.key"
    ed25519 = pem(Ed25519PrivateKey.generate())
    file.write_bytes({"rsa": pem(generate_private_key(65537, 2048)), "text": b"x", "open": ed25519}[kind])
    file.chmod(0o644 if kind == "open" else 0o600)

    with pytest.raises(UsageError) as refused:
        signer_for("files-mcp", file)

    assert "CLI-151" == refused.value.id
