"""The signing key of an audit folder, and the signed notes that are made with it.

Ed25519 (RFC 8032). A head is signed in the form of C2SP checkpoints (signed note: origin, size, root, one per
line), so that witnesses and transparency log tools can read it. The private key is a PKCS #8 file with mode 0600 in
``keys/``, or lies in the person's keyring; the public one stands beside it as a C2SP verifier key.

Who holds the private key can rewrite whatever no head outside this machine bears witness to. That is what
``export-head`` is for.

Signing needs ``cryptography``, which takes longer to import than a server to start; so it is imported when
something is first signed or checked, and a start reads the public key from its text file.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sandbox.errors import AuditUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME: Final = "mcp-sandbox-audit"
"""Name of the key in signed notes, and first part of every origin."""

PRIVATE: Final = "signing.key"
PUBLIC: Final = "signing.pub"

SERVICE: Final = "mcp-sandbox"
"""Service under which a keyring keeps the private key."""

Store = Literal["file", "keyring"]
"""Where the private key lies."""

_ED25519: Final = b"\x01"
"""Algorithm byte of signed notes."""

_SIGNATURE_BYTES: Final = 64
_KEY_BYTES: Final = 32


def head_text(stream: str, size: int, root: str) -> bytes:
    """Return what is signed for a tree head, whose root is base64: the text of a C2SP checkpoint."""
    return f"{NAME}/{stream}\n{size}\n{root}\n".encode()


def seal_text(stream: str, seq: int, after: str, torn_bytes: int, torn_sha256: str) -> bytes:
    """Return what is signed when somebody else's unfinished stream is sealed; ``after`` stands for all before it."""
    return f"{NAME}/{stream}/seal\n{seq}\n{after}\n{torn_bytes}\n{torn_sha256}\n".encode()


def change_text(stream: str, old: str, new: str) -> bytes:
    """Return what both keys sign when the key changes."""
    return f"{NAME}/{stream}/key\n{old}\n{new}\n".encode()


def key_hash(public: bytes) -> bytes:
    """Return the four bytes by which signed notes tell keys apart."""
    return sha256(NAME.encode() + b"\n" + _ED25519 + public).digest()[:4]


def note(text: bytes, public: str, signature: str) -> str:
    """Return a signed note: the text, a blank line, and the signature line."""
    blob = key_hash(base64.b64decode(public)) + base64.b64decode(signature)
    return f"{text.decode()}\n\u2014 {NAME} {base64.b64encode(blob).decode()}\n"


def check(public: str, text: bytes, signature: str) -> bool:
    """Return whether a signature over a text was made with the private half of ``public`` (both base64)."""
    # Deferred: see the module's docstring.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        raw, signed = base64.b64decode(public, validate=True), base64.b64decode(signature, validate=True)
        if len(raw) != _KEY_BYTES or len(signed) != _SIGNATURE_BYTES:
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(signed, text)
    except (InvalidSignature, binascii.Error, ValueError, TypeError):
        return False
    return True


class Signer:
    """The key of one audit folder.

    Args:
        public: base64 of the public key.
        seed: returns the 32 private bytes; called when something is first signed.

    Attributes:
        public: base64 of the public key, as it stands in records and pins.
    """

    def __init__(self, public: str, seed: _Seed | _Held) -> None:
        self.public = public
        self._seed = seed
        self._private: Ed25519PrivateKey | None = None

    def sign(self, text: bytes) -> str:
        """Return the base64 signature of a text.

        Raises:
            AuditUnavailable: ``AUD-020``, the private key is gone or does not belong to the public one.
        """
        if self._private is None:
            self._private = self._load()
        return base64.b64encode(self._private.sign(text)).decode()

    def _load(self) -> Ed25519PrivateKey:
        # Deferred: see the module's docstring.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        private = Ed25519PrivateKey.from_private_bytes(self._seed.read())
        if base64.b64encode(private.public_key().public_bytes_raw()).decode() != self.public:
            raise _unusable("the private key does not belong to the public one")
        return private


def public_of(seed: bytes) -> str:
    """Return the base64 public key of 32 private bytes."""
    # Deferred: see the module's docstring.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return base64.b64encode(Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()).decode()


class _Held:
    """Private bytes that are only in memory."""

    def __init__(self, private: bytes) -> None:
        self._private = private

    def read(self) -> bytes:
        return self._private


class _Seed:
    """Reads and writes the private bytes, in a file or in the keyring."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store

    def exists(self) -> bool:
        return self._password() is not None if self.store == "keyring" else (self.folder / PRIVATE).exists()

    def read(self) -> bytes:
        try:
            text = self._password() if self.store == "keyring" else (self.folder / PRIVATE).read_text("ascii")
            body = "".join(line for line in (text or "").splitlines() if "-----" not in line)
            return base64.b64decode(body, validate=True)[-_KEY_BYTES:]
        except (OSError, ValueError, binascii.Error) as error:
            raise _unusable(f"the private key cannot be read ({type(error).__name__})") from None

    def write(self, seed: bytes, name: str = PRIVATE) -> None:
        """Write a new private key; an existing one is never replaced (FileExistsError)."""
        if self.store == "keyring":
            _keyring().set_password(SERVICE, str(self.folder), base64.b64encode(seed).decode())
            return
        # PKCS #8 of an Ed25519 key is a fixed prefix and the seed (RFC 8410 §7).
        body = base64.b64encode(bytes.fromhex("302e020100300506032b657004220420") + seed).decode()
        pem = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
        exclusive(self.folder / name, pem.encode())

    def _password(self) -> str | None:
        found: str | None = _keyring().get_password(SERVICE, str(self.folder))
        return found


def open_signer(folder: Path, store: Store = "file") -> Signer:
    """Return the signer of ``folder`` (``keys/`` of an audit folder); the first one makes the key.

    Raises:
        AuditUnavailable: ``AUD-020``, the key cannot be read, made or trusted (others may read or write it).
    """
    seed = _Seed(folder, store)
    public_file = folder / PUBLIC
    try:
        if store == "file" and seed.exists():
            _private_only(folder / PRIVATE)
        if not seed.exists():
            _make(seed)
        if not public_file.exists():
            _publish(folder, public_of(seed.read()))
        return Signer(read_public(public_file.read_text("utf-8")), seed)
    except (OSError, ValueError) as error:
        raise _unusable(f"{folder}: {error}") from None


def _make(seed: _Seed) -> None:
    """Make a key; of two processes that do so at once the first one's counts."""
    fresh = secrets.token_bytes(_KEY_BYTES)
    try:
        seed.write(fresh)
    except FileExistsError:
        return


def _publish(folder: Path, public: str) -> None:
    raw = base64.b64decode(public)
    text = f"{NAME}+{key_hash(raw).hex()}+{base64.b64encode(_ED25519 + raw).decode()}\n"
    try:
        exclusive(folder / PUBLIC, text.encode())
    except FileExistsError:
        return


def fresh_key() -> tuple[Signer, bytes]:
    """Return a new key that is nowhere yet, and its private bytes, so that it can be introduced before it is used."""
    private = secrets.token_bytes(_KEY_BYTES)
    return Signer(public_of(private), _Held(private)), private


def install_key(folder: Path, private: bytes, store: Store = "file") -> Signer:
    """Put a new key in the place of the old one, whose files are kept under the start of its public key; return it.

    Raises:
        AuditUnavailable: ``AUD-020``, the files cannot be written.
    """
    seed = _Seed(folder, store)
    try:
        old = read_public((folder / PUBLIC).read_text("utf-8"))
        label = base64.urlsafe_b64encode(base64.b64decode(old)).decode()[:16]
        for name in (PRIVATE, PUBLIC):
            if (folder / name).exists():
                (folder / name).rename(folder / f"{name}.{label}")
        seed.write(private)
        _publish(folder, public_of(private))
    except (OSError, ValueError) as error:
        raise _unusable(f"{folder}: {error}") from None
    return open_signer(folder, store)


def read_public(text: str) -> str:
    """Return the base64 public key of a C2SP verifier key (``name+hash+key``).

    Raises:
        ValueError: it is none, or its hash does not belong to it.
    """
    name, _, rest = text.strip().partition("+")
    digest, _, data = rest.partition("+")
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ValueError("no verifier key") from None
    if name != NAME or raw[:1] != _ED25519 or len(raw) != _KEY_BYTES + 1 or key_hash(raw[1:]).hex() != digest:
        raise ValueError("no verifier key of an audit trail")
    return base64.b64encode(raw[1:]).decode()


def exclusive(path: Path, data: bytes) -> None:
    """Write a new file whole with mode 0600: under another name first, then linked, so that nobody reads half of it.

    Raises:
        FileExistsError: there is one already.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()


def _private_only(path: Path) -> None:
    status = path.lstat()
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        raise ValueError(f"{path.name} may be read or written by others; set its mode to 0600")


def _keyring() -> Any:
    # Deferred: an optional extra.
    try:
        import keyring  # noqa: PLC0415
    except ImportError:
        raise AuditUnavailable(
            "AUD-021", "the audit key is to lie in a keyring, and none is installed", "install mcp-sandbox[keyring]"
        ) from None
    return keyring


def _unusable(message: str) -> AuditUnavailable:
    return AuditUnavailable("AUD-020", f"the audit key is not usable: {message}", "see docs/audit-events.md, keys")
