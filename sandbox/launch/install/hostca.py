"""The certificates that this host trusts, for build containers: behind a company's proxy nothing works without them.

Never for the run image: a server gets them only when its driver says ``sandbox.trust_host_ca``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sandbox.errors import UsageError
from sandbox.limits import MIB

VARIABLES: Final = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""Of the environment, by which people tell OpenSSL, Node.js, requests, curl and pip."""

SYSTEM_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where distributions keep what the host trusts; the first that exists is used when nothing else is configured."""

MAX_BUNDLE_BYTES: Final = 4 * MIB
"""Of one bundle; Debian's has 220 kB."""


def bundle(environ: Mapping[str, str], configured: Iterable[str] = ()) -> bytes:
    """Return the certificates that clients on this host are configured to trust, in PEM, empty when there are none.

    Args:
        environ: the host's environment.
        configured: files that clients' own configuration names (npm ``cafile``, pip ``cert``).

    Raises:
        UsageError: ``INST-010``, a configured file cannot be read: without it a download would fail less clearly.
    """
    named = [*configured, *(environ[name] for name in VARIABLES if environ.get(name))]
    if not named:
        named = [path for path in SYSTEM_BUNDLES if Path(path).is_file()][:1]
    parts = {data: None for path in named if (data := _read(path))}
    return b"\n".join(parts)


def _read(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as source:
            data = source.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "INST-010",
            f"the certificates in {path} cannot be read: {error.strerror}",
            "correct or unset the variable or client setting that names the file",
        ) from None
    if len(data) > MAX_BUNDLE_BYTES or b"-----BEGIN CERTIFICATE-----" not in data:
        raise UsageError("INST-010", f"{path} is no bundle of certificates in PEM", "name a PEM file")
    return data
