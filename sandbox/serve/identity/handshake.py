"""TLS that takes any client certificate and says which: the key's pin decides later, with an answer and a record.

Python's own ``ssl`` can ask for a certificate only together with a chain to a trusted authority; the handshake with a
self-signed one fails before anybody could look at its key, or write down who came. OpenSSL itself has no such limit:
its verification is a callback, which pyOpenSSL gives us. That the peer holds the private key is proved by the handshake
in any case. Here is the piece between pyOpenSSL's memory connection and the event loop, which expects the object that
``ssl.SSLContext.wrap_bio`` makes; flow control and closing stay the event loop's (ADR 0109).

TLS 1.2 with forward secrecy and authenticated encryption, or 1.3; no compression, no renegotiation and no resumption,
so that a connection has one client from its first byte to its last.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, dump_certificate

T = TypeVar("T")

CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all of this kind."""

OPTIONS: Final = SSL.OP_NO_COMPRESSION | int(ssl.OP_NO_RENEGOTIATION) | SSL.OP_NO_TICKET

DRAIN: Final = 65536
"""Bytes that are moved out of a connection at once."""

HTTP: Final = b"http/1.1"


def openssl_context(certificate: str, key: str, *, asks: bool) -> SSL.Context:
    """Return what connections are made from.

    Args:
        certificate: PEM file with the chain of the server.
        key: PEM file with its private key.
        asks: clients are asked for a certificate; one without is served too.

    Raises:
        SSL.Error: the files cannot be used, or do not belong together.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(OPTIONS)
    context.set_cipher_list(CIPHERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"mcp-sandbox")
    context.set_alpn_select_callback(_protocol)
    if asks:
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_CLIENT_ONCE, _taken)
    context.use_certificate_chain_file(certificate)
    context.use_privatekey_file(key)
    context.check_privatekey()
    return context


def _taken(*_args: Any) -> bool:
    """Take a certificate whoever signed it: nothing that a signature could vouch for is believed."""
    return True


def _protocol(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return HTTP if HTTP in offered else SSL.NO_OVERLAPPING_PROTOCOLS


class ServerContext(ssl.SSLContext):
    """What the event loop takes for a context of Python's; its connections are those of ``current``.

    Args:
        protocol: ``ssl.PROTOCOL_TLS_SERVER``.
        current: gives the context for one more connection.
    """

    def __init__(self, protocol: int, current: Callable[[], SSL.Context]) -> None:  # noqa: ARG002 - of __new__
        self._current = current

    def __new__(cls, protocol: int, *_args: Any) -> ServerContext:  # noqa: PYI034 - ssl.SSLContext's own form
        """Make a context of Python's."""
        return super().__new__(cls, protocol)

    def wrap_bio(self, incoming: Any, outgoing: Any, *_args: Any, **_more: Any) -> Any:
        """Return the TLS side of one connection."""
        connection = SSL.Connection(self._current(), None)
        connection.set_accept_state()
        return Wrapped(connection, incoming, outgoing)


class Wrapped:
    """One connection, as the event loop uses ``ssl.SSLObject``.

    Args:
        connection: of pyOpenSSL, in memory.
        incoming: what the peer sent.
        outgoing: what is to be sent.
    """

    def __init__(self, connection: SSL.Connection, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self._connection = connection
        self._incoming = incoming
        self._outgoing = outgoing
        self._more = False  # what came in may hold further records

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        self._run(self._connection.do_handshake)

    def read(self, size: int = 1024, buffer: Any = None) -> Any:
        """Return bytes, or their number where a buffer takes them; nothing when the peer closed in an orderly way."""
        try:
            if buffer is None:
                return self._run(lambda: self._connection.recv(size))
            return self._run(lambda: self._connection.recv_into(buffer, size))
        except ssl.SSLZeroReturnError:
            return b"" if buffer is None else 0

    def write(self, data: Any) -> int:
        """Encrypt bytes; return their number."""
        return self._run(lambda: self._connection.send(data)) if len(data) else 0

    def unwrap(self) -> None:
        """Say that nothing more comes. The peer need not say so too (RFC 8446 §6.1): an idle one never would."""
        self._run(self._connection.shutdown)

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return the peer's certificate in DER, ``None`` without one; its fields are never told, none is believed."""
        found = self._connection.get_peer_certificate() if binary_form else None
        return None if found is None else dump_certificate(FILETYPE_ASN1, found)

    def cipher(self) -> tuple[str, str, int] | None:
        """Return name, protocol and bits of the cipher."""
        name = self._connection.get_cipher_name()
        if name is None:
            return None
        return name, self._connection.get_cipher_version() or "", self._connection.get_cipher_bits() or 0

    def compression(self) -> None:
        """Return that nothing is compressed."""

    def version(self) -> str:
        """Return the version of TLS."""
        return str(self._connection.get_protocol_version_name())

    def pending(self) -> int:
        """Return how many bytes can be read at least; one as long as records may wait that are not decrypted yet.

        uvloop reads on only while this or what has come in is more than nothing.
        """
        return max(self._connection.pending(), int(self._more))

    def _run(self, work: Callable[[], T]) -> T:
        """Do something with what has come in, and hand out what is to go.

        Raises:
            ssl.SSLError: as ``ssl.SSLObject`` would.
        """
        self._take()
        try:
            return work()
        except SSL.WantReadError:
            self._more = False
            raise ssl.SSLWantReadError from None
        except SSL.WantWriteError:
            raise ssl.SSLWantWriteError from None
        except SSL.ZeroReturnError:
            raise ssl.SSLZeroReturnError from None
        except SSL.SysCallError:
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the peer closed without a word") from None
        except SSL.Error as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, str(error)) from None
        finally:
            self._give()

    def _take(self) -> None:
        data = self._incoming.read()
        self._more = self._more or bool(data)
        while data:
            data = data[self._connection.bio_write(data) :]
        if self._incoming.eof:
            self._connection.bio_shutdown()

    def _give(self) -> None:
        try:
            while True:
                self._outgoing.write(self._connection.bio_read(DRAIN))
        except SSL.Error:  # there is nothing more
            return
