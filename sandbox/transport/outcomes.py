"""What can come of a request to a server, other than its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.errors import CallRefused, SandboxError
from sandbox.limits import MAX_REMOTE_TEXT


class RemoteError(SandboxError):
    """The server answered with a JSON-RPC error: an answer like any other, nobody's fault that we could name.

    Attributes:
        code: JSON-RPC code, as the server gave it.
        text: the server's message, untrusted, shortened, without control characters.
        data: the server's data, untrusted.
    """

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        self.code = code
        self.text = plain(text)
        self.data = data
        super().__init__("WIRE-050", f"the server answered with error {code}: {self.text}")


class InputRequired(CallRefused):
    """The server wants something of the client's user or model before it goes on (2026-07-28, basic/patterns/mrtr).

    Elicitation and sampling are never offered to a server, so asking for them is refused.

    Attributes:
        input_requests: what it asks for, untrusted.
        request_state: to be echoed unread, or ``None``.
    """

    def __init__(self, input_requests: Mapping[str, Any], request_state: str | None) -> None:
        self.input_requests = input_requests
        self.request_state = request_state
        asked = sorted({str(one.get("method"))[:64] for one in input_requests.values() if isinstance(one, Mapping)})
        super().__init__(
            "WIRE-051",
            f"the server asks for input that it may not have: {', '.join(asked) or 'a repetition'}",
            "use a tool that needs no further input",
        )


def plain(text: str) -> str:
    """Return text of a server, bounded and without characters that control a terminal or hide."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)[
        :MAX_REMOTE_TEXT
    ]
