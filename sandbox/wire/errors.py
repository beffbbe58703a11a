"""What is wrong with bytes or a message, before it is known whose fault that is.

``wire`` does not know which side it reads from. Whoever does turns a :class:`WireError` into a
:class:`~sandbox.errors.ServerFault` (the server sent it) or into a JSON-RPC error reply (a client sent it).
"""

from __future__ import annotations

from typing import Final

from sandbox.errors import SandboxError, ServerFault

PARSE_ERROR: Final = -32700
"""JSON-RPC 2.0: the text is not JSON."""

INVALID_REQUEST: Final = -32600
"""JSON-RPC 2.0: JSON, but not a message that is allowed here."""


class WireError(SandboxError):
    """Bytes or a value that are not an MCP message.

    Args:
        id: ``WIRE-nnn``.
        message: one sentence; never holds more than a short, escaped excerpt of what was received.
        mend: what the sender has to do.
        code: JSON-RPC error code that describes it.
        request_id: id of the request it was found in, when that could be read.
        answer_id: id of the answer it was found in, when that could be read.
        severe: whether no honest program writes such a line by accident, as it may write a banner.
        fatal: whether the stream cannot be read any further.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the public word for it
        message: str,
        mend: str = "",
        *,
        code: int = INVALID_REQUEST,
        request_id: str | int | None = None,
        answer_id: str | int | None = None,
        severe: bool = False,
        fatal: bool = False,
    ) -> None:
        super().__init__(id, message, mend)
        self.code = code
        self.request_id = request_id
        self.answer_id = answer_id
        self.severe = severe
        self.fatal = fatal

    def as_server_fault(self) -> ServerFault:
        """Return the same as the server's fault."""
        return ServerFault(self.id, f"the server sent {self.message}", "report it to the server's author")
