"""Who published a package: Ed25519 over a list with the digest of every file (MCPKG §7.3, ADR 0096).

``meta/signature.sig`` holds::

    {"format": "mcp-sandbox.mcpkg.ed25519.v1", "publisher": "stripe", "key": "<base64, 32 bytes>",
     "toolId": …, "version": …, "files": {"manifest.json": "sha256:…", …}, "signature": "<base64, 64 bytes>"}

What is signed is a fixed prefix and the canonical JSON of everything but ``signature``. Verification: 1 the file is of
this form, else it cannot be verified; 2 the list names exactly the files that are there, ``manifest.json`` among them;
3 every digest holds; 4 tool, version and publisher are the manifest's; 5 the signature holds under the key it names;
6 the trust store knows that key for that publisher and tool.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sandbox import jsontext
from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg.bounds import MAX_TEXT_BYTES
from sandbox.mcpkg.contents import Contents, digests
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.trust import Mode, TrustStore

FILE: Final = "meta/signature.sig"
FORMAT: Final = "mcp-sandbox.mcpkg.ed25519.v1"
_PREFIX: Final = b"mcp-sandbox .mcpkg signature v1\x00"
_STATEMENT: Final = b"mcp-sandbox .mcpkg sigstore v1\x00"
BUNDLE: Final = "application/vnd.dev.sigstore.bundle"
"""How the media types of Sigstore bundles begin."""

_FIELDS: Final = frozenset({"format", "publisher", "key", "toolId", "version", "files", "signature"})


@dataclass(frozen=True, slots=True)
class Signed:
    """What is known about a package's publisher.

    Attributes:
        state: ``trusted`` the trust store knows the key; ``unknown`` the signature holds under a key that nobody
            vouches for; ``unverifiable`` another scheme; ``unsigned``; ``unchecked`` the operator did not ask.
        publisher: as signed, empty when nothing is.
        key: base64 of the public key, or the identity that a Sigstore certificate names.
    """

    state: Literal["trusted", "unknown", "unverifiable", "unsigned", "unchecked"]
    publisher: str = ""
    key: str = ""


def statement(contents: Contents, manifest: Manifest) -> bytes:
    """Return what a Sigstore bundle for a package has to be over: tool, version, the digest of every other file."""
    named = {"toolId": manifest.tool_id, "version": manifest.version, "files": _listed(contents)}
    return _STATEMENT + jsontext.canonical(named)


def is_bundle(document: Any) -> bool:
    """Return whether a signature document says that it is a Sigstore bundle."""
    return isinstance(document, dict) and str(document.get("mediaType", "")).startswith(BUNDLE)


def sign(contents: Contents, manifest: Manifest, key: Ed25519PrivateKey, publisher: str) -> bytes:
    """Return the contents of ``meta/signature.sig`` for a package.

    Raises:
        UsageError: ``PKG-024``, the manifest names another publisher.
    """
    if manifest.publisher and manifest.publisher != publisher:
        message = f"the manifest's publisher is `{manifest.publisher}`, not `{publisher}`"
        raise UsageError("PKG-024", message, "sign as the publisher that the manifest names")
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    document: dict[str, Any] = {
        "format": FORMAT,
        "publisher": publisher,
        "key": base64.b64encode(public).decode(),
        "toolId": manifest.tool_id,
        "version": manifest.version,
        "files": _listed(contents),
    }
    signature = key.sign(_PREFIX + jsontext.canonical(document))
    return jsontext.canonical({**document, "signature": base64.b64encode(signature).decode()}) + b"\n"


def verify(contents: Contents, manifest: Manifest, store: TrustStore) -> Signed:
    """Return who published a package.

    Raises:
        InstallRefused: ``PKG-021``, there is a signature of this form and it does not hold; ``PKG-022``, it holds under
            a key that is not the publisher's in the trust store.
    """
    if FILE not in contents.names():
        return Signed("unsigned")
    document = _document(contents)  # 1
    if document is None:
        return Signed("unverifiable")
    if is_bundle(document):
        return _bundle(contents, manifest, store)
    files = document["files"]
    if not isinstance(files, dict) or "manifest.json" not in files:  # 2
        raise _broken("it does not cover manifest.json")
    present = _listed(contents)
    if files != present:  # 2, 3
        different = sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))
        raise _broken(f"it is not over {', '.join(repr(str(name)[:80]) for name in different[:5])} as packaged")
    publisher = str(document["publisher"])
    named = (document["toolId"], document["version"], manifest.publisher or publisher)
    if named != (manifest.tool_id, manifest.version, publisher):  # 4
        raise _broken("it is for another tool, version or publisher than the manifest")
    key = _public(document["key"])
    try:  # 5
        unsigned = {name: value for name, value in document.items() if name != "signature"}
        key.verify(_bytes(document["signature"]), _PREFIX + jsontext.canonical(unsigned))
    except InvalidSignature:
        raise _broken("it was not made with the key that it names") from None
    if store.vouches(publisher, document["key"], manifest.tool_id):  # 6
        return Signed("trusted", publisher, document["key"])
    if store.knows(publisher):
        message = f"it is signed as `{publisher}` with a key that is not theirs, or not for {manifest.tool_id}"
        raise InstallRefused("PKG-022", message, "do not install it; correct the trust store if it is outdated")
    return Signed("unknown", publisher, document["key"])


def _bundle(contents: Contents, manifest: Manifest, store: TrustStore) -> Signed:
    """Return who signed a package with a Sigstore bundle; the steps are those of Sigstore, then 6.

    Raises:
        InstallRefused: ``PKG-021``, it does not hold; ``PKG-022``, it holds, and the publisher that the manifest names
            is known under another identity.
    """
    try:
        from sandbox.mcpkg import bundles  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return Signed("unverifiable")
    certificate = bundles.signer(contents.read(FILE), statement(contents, manifest), store)
    found = bundles.publisher_of(certificate, manifest, store)
    who = bundles.identity_of(certificate)
    if found is not None and manifest.publisher in ("", found.id):
        return Signed("trusted", found.id, who)
    if found is not None or store.knows(manifest.publisher):
        message = f"it is signed by {who}, who is not `{manifest.publisher}`, or not for {manifest.tool_id}"
        raise InstallRefused("PKG-022", message, "do not install it; correct the trust store if it is outdated")
    return Signed("unknown", manifest.publisher or who, who)


def demand(signed: Signed, mode: Mode, shown: str) -> str:
    """Return what to warn of, empty when nothing, for a verdict and the operator's demand.

    Raises:
        InstallRefused: ``PKG-020``, a trusted signature is required and missing.
    """
    if mode == "off" or signed.state == "trusted":
        return ""
    what = {
        "unsigned": "it is not signed",
        "unverifiable": "its signature is of a scheme that is not known here (Sigstore needs `mcp-sandbox[sigstore]`)",
        "unknown": f"nobody vouches for {signed.key} as `{signed.publisher}`",
    }.get(signed.state, "its signature was not checked")
    if mode == "require":
        mend = "get a signed package, or add its publisher to the trust store after checking the key"
        raise InstallRefused("PKG-020", f"{shown} is refused: {what}", mend)
    return what


def load_key(path: Path) -> Ed25519PrivateKey:
    """Return an Ed25519 private key from a PEM file without a passphrase.

    Raises:
        UsageError: ``PKG-025``, it holds none.
    """
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        mend = "make one with `mcp-sandbox pkg sign --new-key FILE`"
        raise UsageError("PKG-025", f"{path} holds no Ed25519 private key in PEM without a passphrase", mend)
    return key


def key_text(key: Ed25519PrivateKey) -> str:
    """Return base64 of the public key, as a trust store names it."""
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b64encode(public).decode()


def new_key() -> tuple[bytes, str]:
    """Return PEM of a fresh private key, and base64 of its public key."""
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), key_text(key)


def _listed(contents: Contents) -> dict[str, str]:
    return {name: digest for name, digest in digests(contents).items() if name != FILE}


def _document(contents: Contents) -> dict[str, Any] | None:
    """Return the signature document; ``None`` for anything of another scheme."""
    if contents.size(FILE) > 4 * MAX_TEXT_BYTES:
        return None
    try:
        document = jsontext.parse(contents.read(FILE))
    except jsontext.JsonTextError:
        return None
    if is_bundle(document):
        return dict(document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return None
    if document.keys() != _FIELDS:
        raise _broken("its members are not those of its format")
    return document


def _public(text: Any) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(_bytes(text))
    except ValueError:
        raise _broken("its key is none") from None


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise _broken("it is not base64") from None


def _broken(why: str) -> InstallRefused:
    return InstallRefused("PKG-021", f"the package's signature does not hold: {why}", "do not install it")
