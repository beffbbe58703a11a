"""The gateway's own certificate: read when it starts, and again at the next connection after its files change.

What cannot be used when the gateway starts is refused; what cannot be used later is told and recorded, and the
certificate before it goes on, so that a half-written renewal takes nobody's connection away.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from OpenSSL import SSL

from sandbox.cli.gateway.config import TlsConfig
from sandbox.cli.report import line_of, say
from sandbox.errors import SandboxError, UsageError
from sandbox.events import Scope
from sandbox.serve.identity.handshake import ServerContext, openssl_context

Stamp = tuple[tuple[int, int, int], ...]

NO_STAMP: Stamp = ()


class OwnCertificate:
    """The context of the next connection.

    Args:
        config: names the files.
        asks: clients are asked for a certificate.
        changed: hears what a change of the files came to: an id, empty when the new ones are used, and a reason.

    Raises:
        UsageError: ``CLI-200``, the files cannot be used; ``CLI-201``, everybody may read the key.
    """

    def __init__(self, config: TlsConfig, *, asks: bool, changed: Callable[[str, str], None]) -> None:
        self._config = config
        self._asks = asks
        self._changed = changed
        self._stamp = self._stamped()
        self._context = self._load()

    def current(self) -> SSL.Context:
        """Return the context for one more connection."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._load()
            except SandboxError as error:
                self._changed(error.id, error.message)
            else:
                self._changed("", "")
        return self._context

    def _stamped(self) -> Stamp:
        try:
            found = [Path(name).stat() for name in (self._config.certificate, self._config.key)]
        except OSError:
            return NO_STAMP
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _load(self) -> SSL.Context:
        certificate, key = self._config.certificate, self._config.key
        try:
            if Path(key).stat().st_mode & 0o007:
                raise UsageError("CLI-201", f"everybody on this machine may use {key}", f"chmod o= {key}")
            return openssl_context(certificate, key, asks=self._asks)
        except (OSError, SSL.Error) as error:
            why = error.strerror if isinstance(error, OSError) else "they are no certificate and its private key in PEM"
            text = f"{certificate} and {key} cannot be used: {why}"
            raise UsageError("CLI-200", text, "name a certificate chain and its key without a password") from None


def tls_of(config: TlsConfig, scope: Scope, *, asks: bool) -> ssl.SSLContext:
    """Return what the gateway listens with.

    Raises:
        UsageError: as :class:`OwnCertificate`.
    """

    def changed(number: str, reason: str) -> None:
        scope.fact("gateway.tls", certificate=config.certificate, reason=number)
        if number:
            say(line_of(f"mcp-sandbox: {number}: {reason}; the certificate before goes on"))

    own = OwnCertificate(config, asks=asks, changed=changed)
    return ServerContext(ssl.PROTOCOL_TLS_SERVER, own.current)
