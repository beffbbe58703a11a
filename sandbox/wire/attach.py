"""The container engine's multiplexed stdio: frames of an 8-byte header and a payload.

Header: stream number (1 stdout, 2 stderr), three zero bytes, payload length as big-endian 32-bit integer. The engine
writes it, so anything else in it is the engine's failure, never the server's; the payload is the server's and is handed
on in pieces as it arrives. Nothing is kept but the header that has begun.
"""

from __future__ import annotations

from typing import Final

from sandbox.errors import PlatformError

STDOUT: Final = 1
STDERR: Final = 2

_HEADER: Final = 8
_STREAMS: Final = frozenset((STDOUT, STDERR))


class AttachDecoder:
    """Separates stdout and stderr of one attached container."""

    __slots__ = ("_header", "_left", "_stream")

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return pieces of ``(stream, payload)`` in order; a frame may come in several pieces.

        Raises:
            PlatformError: ``WIRE-030``, the header is not one.
        """
        pieces: list[tuple[int, bytes]] = []
        at = 0
        size = len(data)
        while at < size:
            if not self._left:
                at = self._take_header(data, at)
                continue
            end = min(size, at + self._left)
            pieces.append((self._stream, data[at:end]))
            self._left -= end - at
            at = end
        return pieces

    def _take_header(self, data: bytes, at: int) -> int:
        """Read as much of the header as there is; return the offset after it."""
        end = at + _HEADER - len(self._header)
        header = self._header + data[at:end]
        if len(header) < _HEADER:
            self._header = header
            return len(data)
        self._header = b""
        if header[0] not in _STREAMS or header[1:4] != b"\0\0\0":
            raise PlatformError(
                "WIRE-030",
                f"the container engine's stream is not multiplexed as expected: header {header.hex()}",
                "attach without a terminal, and check the engine's version with `mcp-sandbox doctor`",
            )
        self._stream = header[0]
        self._left = int.from_bytes(header[4:8], "big")
        return end
