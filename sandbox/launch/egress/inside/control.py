"""The broker's end of its stream with the supervisor: JSON lines, commands in, events out.

It is the container's standard input and output, attached through the engine. When the supervisor is gone, however it
went, the engine closes standard input: the broker ends, and with it every connection. Events are never dropped;
while more than :data:`~.bounds.MAX_UNSENT` wait to be taken, :attr:`Control.congested` is true and nothing new is
admitted.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any, Final

from sandbox.launch.egress.inside.bounds import MAX_LINE, MAX_UNSENT

_READ: Final = 64 * 1024


class Control:
    """JSON lines over two pipes.

    Args:
        incoming: descriptor of commands.
        outgoing: descriptor of events.
        command: called for each command.
        ended: called once, when the stream is over or broken.
    """

    def __init__(
        self, incoming: int, outgoing: int, command: Callable[[dict[str, Any]], None], ended: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._in, self._out = incoming, outgoing
        self._command, self._ended = command, ended
        self._partial = bytearray()
        self._unsent = bytearray()
        self._writing = False
        for descriptor in (incoming, outgoing):
            os.set_blocking(descriptor, False)
        self._loop.add_reader(incoming, self._readable)

    @property
    def congested(self) -> bool:
        """Whether so much waits to be taken that nothing new may happen."""
        return len(self._unsent) > MAX_UNSENT

    def send(self, event: dict[str, Any]) -> None:
        """Send one event, now or when there is room."""
        self._unsent += json.dumps(event, separators=(",", ":")).encode() + b"\n"
        if not self._writing:
            self._writable()

    def _readable(self) -> None:
        try:
            data = os.read(self._in, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._partial += data
        if not data or len(self._partial) > MAX_LINE:
            self._loop.remove_reader(self._in)
            self._ended()
            return
        *lines, rest = self._partial.split(b"\n")
        self._partial = bytearray(rest)
        for line in lines:
            self._command(json.loads(line))

    def _writable(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._out, self._unsent)]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._out, self._writable)
            return
        except OSError:
            self._unsent.clear()
            self._ended()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._out)
