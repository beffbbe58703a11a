"""What every channel shares: bytes in, messages out, pressure, and one orderly end.

A subclass connects it to a file descriptor with four hooks (``_write``, ``_set_reading``, ``_end_writing``, ``_drop``)
and calls ``_feed``, ``_input_ended``, ``_set_full`` and ``_ended``. The end comes once: whoever calls ``_ended`` first
decides what the receiver is told.
"""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from sandbox.errors import PlatformError, SandboxError, ServerFault, UsageError
from sandbox.limits import MAX_JSON_DEPTH, MAX_WRITE_BUFFER
from sandbox.transport.interface import Receiver
from sandbox.wire.errors import WireError
from sandbox.wire.framing import LineDecoder
from sandbox.wire.jsonrpc import Message, decode, encode

Side: TypeAlias = Literal["client", "server"]
"""Who is at the other end."""


class LineChannel:
    """A channel over some byte stream; see :class:`~sandbox.transport.interface.Channel` for what it guarantees.

    Args:
        side: who is at the other end, and so whose fault an overflow is.

    Attributes:
        last_size: bytes of the line that is being handed on.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self.last_size = 0
        self._decoder = LineDecoder()
        self._depth = MAX_JSON_DEPTH
        self._receiver: Receiver | None = None
        self._full = False
        self._corked = False
        self._outbox: list[bytes] = []
        self._held = 0
        self._early: list[bytes] = []
        self._early_eof = False
        self._pauses = 0
        self._over = False
        self._error: SandboxError | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- what the other stages call -------------------------------------------------------------------------------
    def start(self, receiver: Receiver) -> None:
        """Begin to read."""
        self._receiver = receiver
        if self._over:
            receiver.channel_closed(self._error)
            return
        early, self._early = self._early, []
        for data in early:
            self._feed(data)
        if self._early_eof:
            self._input_ended()
        if not self._stopped() and not self._pauses:
            self._set_reading(on=True)

    def bound(self, message: int, depth: int) -> None:
        """Narrow the bounds of what is read, before :meth:`start`.

        Args:
            message: bytes of one message.
            depth: nesting of one message.
        """
        self._decoder = LineDecoder(message)
        self._depth = depth

    def send(self, message: Message) -> None:
        """Write one message, or buffer it."""
        if self._over:
            return
        data = encode(message)
        if self._corked:
            self._outbox.append(data)
            self._held += len(data)
        else:
            self._corked = True
            asyncio.get_running_loop().call_soon(self._uncork)
            self._write(data)
        if self._full and self._waiting() + self._held > MAX_WRITE_BUFFER:
            self.abort(self._overflow())

    def pause_reading(self) -> None:
        """Leave what the peer writes in the kernel; pauses nest."""
        self._pauses += 1
        if self._pauses == 1 and not self._over:
            self._set_reading(on=False)

    def resume_reading(self) -> None:
        """Undo one pause."""
        self._pauses -= 1
        if self._pauses == 0 and not self._over:
            self._set_reading(on=True)

    def finish(self) -> None:
        """Tell the peer that nothing more is coming."""
        if not self._over:
            self._uncork()
            self._end_writing()

    def close(self) -> None:
        """Write what is buffered and close."""
        if not self._over:
            self._uncork()
            self._over = True
            self._set_reading(on=False)
            self._end_writing()
            self._drop(now=False)

    def abort(self, error: SandboxError | None = None) -> None:
        """Close at once."""
        if not self._closed.done():
            self._error = self._error or error
            self._over = True
            self._drop(now=True)

    async def wait_closed(self) -> None:
        """Return when the channel is closed."""
        await asyncio.shield(self._closed)

    # --- what subclasses call ---------------------------------------------------------------------------------------
    def _feed(self, data: bytes) -> None:
        """Take bytes of the peer and hand on the messages they complete."""
        receiver = self._receiver
        if receiver is None:  # an event loop may hand over what it read before it was told to pause
            self._early.append(data)
            return
        if self._over:
            return
        try:
            for item in self._decoder.feed(data):
                self._hand_on(item, receiver)
                if self._stopped():
                    return
        except Exception as error:  # noqa: BLE001 - an event loop would close the transport and tell nobody
            self.abort(self._defect(error))

    def _uncork(self) -> None:
        """Write what was sent since the first message of this turn of the loop: many messages, one system call."""
        self._corked = False
        if self._outbox and not self._over:
            data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
            self._outbox.clear()
            self._held = 0
            self._write(data)

    def _hand_on(self, item: bytes | WireError, receiver: Receiver) -> None:
        if isinstance(item, WireError):
            receiver.line_refused(item)
            return
        self.last_size = len(item)
        try:
            message = decode(item, self._depth)
        except WireError as error:
            receiver.line_refused(error)
        else:
            receiver.message_received(message)

    def _input_ended(self) -> None:
        """Take note of EOF."""
        receiver = self._receiver
        if receiver is None:
            self._early_eof = True
            return
        if self._over:
            return
        try:
            torn = self._decoder.end()
            if torn is not None:
                receiver.line_refused(torn)
            if not self._stopped():
                receiver.input_ended()
        except Exception as error:  # noqa: BLE001 - as above
            self.abort(self._defect(error))

    def _defect(self, error: Exception) -> SandboxError:
        """Return what ends the channel when its receiver raised: unwritten evidence, or a defect of ours."""
        if isinstance(error, SandboxError):
            return error
        message = f"a defect of ours in handling what the {self.side} sent: {type(error).__name__}"
        return PlatformError("WIRE-033", message, "report it with the audit trail")

    def _stopped(self) -> bool:
        """Return whether a receiver has closed the channel meanwhile."""
        return self._over

    def _set_full(self, full: bool) -> None:
        """Take note that the write buffer passed a water mark."""
        self._full = full
        if self._receiver is not None and not self._over:
            self._receiver.pressure_changed(full)

    def _ended(self, error: SandboxError | None) -> None:
        """Report the end, once."""
        if self._closed.done():
            return
        self._over = True
        self._error = self._error or error
        self._closed.set_result(None)
        if self._receiver is not None:
            self._receiver.channel_closed(self._error)

    def _overflow(self) -> SandboxError:
        kind = ServerFault if self.side == "server" else UsageError
        return kind(
            "WIRE-042",
            f"the {self.side} does not read: {MAX_WRITE_BUFFER} bytes wait for it",
            f"let the {self.side} read while it writes",
        )

    # --- what subclasses implement ------------------------------------------------------------------------------------
    def _write(self, data: bytes) -> None:
        raise NotImplementedError

    def _waiting(self) -> int:
        """Return how many bytes wait to be written."""
        raise NotImplementedError

    def _set_reading(self, *, on: bool) -> None:
        raise NotImplementedError

    def _end_writing(self) -> None:
        raise NotImplementedError

    def _drop(self, *, now: bool) -> None:
        """Close the descriptors, after what is buffered unless ``now``; leads to ``_ended``."""
        raise NotImplementedError
