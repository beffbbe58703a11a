"""Sigstore bundles as package signatures, when the ``sigstore`` package is installed (MCPKG §7.3, ADR 0096).

``meta/signature.sig`` may be a Sigstore bundle (``application/vnd.dev.sigstore.bundle…``) over the *statement* of the
package: a fixed prefix and the canonical JSON of tool, version and the digest of every file but the signature. The
statement is made anew from what is there, so a bundle over anything less than every file never holds.

Verification is Sigstore's own, offline: certificate chain at the time of signing, certificate log, inclusion in the
transparency log, signature. The trusted root is the file that the operator names, else the one that the ``sigstore``
package carries; nothing is fetched. Then the certificate's identity *and* issuer have to be those of a publisher of the
trust store: an identity without its issuer could be claimed by anybody who runs one.

Imported only when there is a bundle to verify, and fails to where the ``sigstore`` package is absent.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from cryptography import x509
from sigstore.errors import Error, VerificationError
from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity, UnsafeNoOp

from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.trust import Publisher, TrustStore

_LONGEST: Final = 300
_NAMES: Final = (x509.RFC822Name, x509.UniformResourceIdentifier)


def signer(data: bytes, signed: bytes, store: TrustStore) -> x509.Certificate:
    """Return the certificate under which a bundle over a statement holds.

    Args:
        data: the bundle.
        signed: the statement.
        store: names the trusted root, or leaves it to the ``sigstore`` package.

    Raises:
        InstallRefused: ``PKG-021``, it does not hold.
        UsageError: ``PKG-028``, the operator's trusted root cannot be read.
    """
    root = _root(store)
    logging.getLogger("sigstore").setLevel(logging.ERROR)
    try:
        bundle = Bundle.from_json(data)
        # Who signed is judged by the caller against every publisher; here only that somebody did.
        Verifier(trusted_root=root).verify_artifact(signed, bundle, UnsafeNoOp())
    except (Error, ValueError, TypeError, AttributeError, KeyError, x509.ExtensionNotFound) as error:
        why = " ".join(str(error).split())[:_LONGEST]
        message = f"the package's Sigstore bundle does not hold: {why}"
        raise InstallRefused("PKG-021", message, "do not install it") from None
    return bundle.signing_certificate


def publisher_of(certificate: x509.Certificate, manifest: Manifest, store: TrustStore) -> Publisher | None:
    """Return the publisher of the trust store whose identity a certificate has, for this tool; ``None`` if nobody's."""
    for entry in store.publishers:
        if not entry.identity or not entry.may_publish(manifest.tool_id):
            continue
        try:
            Identity(identity=entry.identity, issuer=entry.issuer).verify(certificate)
        except VerificationError:
            continue
        return entry
    return None


def identity_of(certificate: x509.Certificate) -> str:
    """Return whom a certificate names, for people."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    return ", ".join(str(one) for kind in _NAMES for one in names.get_values_for_type(kind))[:_LONGEST]


def _root(store: TrustStore) -> TrustedRoot:
    if not store.sigstore_root:
        return ClientTrustConfig.production(offline=True).trusted_root
    try:
        return TrustedRoot.from_file(str(Path(store.sigstore_root).expanduser()))
    except (OSError, ValueError, Error) as error:
        message = f"{store.sigstore_root} is no trusted root of Sigstore: {' '.join(str(error).split())[:_LONGEST]}"
        raise UsageError("PKG-028", message, "name a trusted_root.json, or leave `sigstore-root` out") from None
