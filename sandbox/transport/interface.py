"""What a channel promises: messages in and out of one byte stream, within bounds.

Callbacks rather than iterators: a message is handed on in the loop iteration in which its bytes arrived, without a
task in between. Receivers must not block; what takes time belongs in a task of theirs. When one raises, the channel
ends with the error: a fact that cannot be recorded, or a defect of ours (``WIRE-033``).
"""

from __future__ import annotations

from typing import Protocol

from sandbox.errors import SandboxError
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Message


class Receiver(Protocol):
    """Takes what a channel received. Every method is called in the event loop and returns at once."""

    def message_received(self, message: Message) -> None:
        """Take one message."""

    def line_refused(self, error: WireError) -> None:
        """Take note of a line that is no message; the channel goes on reading, unless ``error.fatal``."""

    def input_ended(self) -> None:
        """Take note that the peer closed its side; what it asked for may still be answered."""

    def channel_closed(self, error: SandboxError | None) -> None:
        """Take note that nothing is sent or received any more; called exactly once, last.

        ``error`` says why when it was not an orderly end.
        """

    def pressure_changed(self, full: bool) -> None:
        """Stop (``True``) or go on producing for this channel: its peer reads slower than it is written to."""


class Channel(Protocol):
    """A stream of messages to and from one peer.

    Guarantees:

    - every message is written by us: re-serialised, compact, ended with LF;
    - memory is bounded: one line of at most ``MAX_LINE_BYTES`` is assembled, and at most ``MAX_WRITE_BUFFER`` bytes
      wait to
      be written, beyond which the channel ends with a ``ServerFault`` or ``UsageError`` (``WIRE-042``);
    - after ``close`` or ``abort`` nothing more is received.

    Attributes:
        last_size: bytes of the line that is being handed on, for receivers that count.
    """

    last_size: int

    def start(self, receiver: Receiver) -> None:
        """Begin to read; called once."""

    def send(self, message: Message) -> None:
        """Write one message, or buffer it; does nothing on a closed channel, whose receiver was told."""

    def pause_reading(self) -> None:
        """Leave what the peer writes in the kernel, until :meth:`resume_reading`."""

    def resume_reading(self) -> None:
        """Go on reading."""

    def finish(self) -> None:
        """Tell the peer that nothing more is coming (EOF), and go on reading."""

    def close(self) -> None:
        """Write what is buffered and close."""

    def abort(self, error: SandboxError | None = None) -> None:
        """Close at once, dropping what is buffered; ``error`` is what the receiver is told."""

    async def wait_closed(self) -> None:
        """Return when the channel is closed; never raises."""
