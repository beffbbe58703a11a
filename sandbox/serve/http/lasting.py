"""Calls that last become tasks (extension ``io.modelcontextprotocol/tasks``): when, and what happens meanwhile.

A ``tools/call`` that has not been answered after :attr:`~sandbox.serve.client_lasting.Lasting.after` seconds, and whose
own request declares the extension, is taken over:

1. what its server still says goes to a stream that nobody reads yet;
2. whoever keeps tasks takes the call: in the trail, then on disk;
3. the request is answered with the task. From here on its connection may end, and the call goes on.

When 2 fails (too many tasks, no room, no trail), what was said meanwhile is put back and the call stays what it was:
nothing was promised. A client that leaves before 3 has cancelled its call, as ever. A call that asks its client
something before it is a task asks with ``input_required`` (2026-07-28, mrtr); each repetition begins to count anew.

A quick call costs one timer, and only where its client declared the extension.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError
from sandbox.serve.client_lasting import Lasting
from sandbox.serve.http.streams import Stream
from sandbox.wire import meta, tasks
from sandbox.wire.jsonrpc import Failure, Request, Result

if TYPE_CHECKING:
    from sandbox.serve.http.alone import Alone
    from sandbox.serve.http.channel import HttpChannel
    from sandbox.serve.session import ClientSession

ANSWERING = ("inputResponses", "requestState")
"""Parameters of a call that answer what it asked before."""


@dataclass(slots=True)
class Going:
    """A call that is taken over while it goes on.

    Attributes:
        message: the call, without what answered its questions.
        stream: what its server says from now on.
    """

    message: Request
    stream: Stream
    alone: Alone

    @property
    def channel(self) -> HttpChannel:
        """What its messages are fed to."""
        return self.alone.channel

    @property
    def session(self) -> ClientSession:
        """What carries it."""
        assert self.alone.session is not None  # noqa: S101 - it has been carrying the call
        return self.alone.session

    @property
    def idempotent(self) -> bool:
        """Whether its contract says that it may be repeated."""
        behind = self.alone.behind
        tool = behind.exposure.tools.get(str(self.message.params.get("name"))) if behind is not None else None
        return tool is not None and tool.binding.contract.idempotent

    @property
    def lost(self) -> bool:
        """Whether its client left before it was told of the task."""
        return not self.alone.told

    async def close(self, *, cancelled: bool) -> None:
        """Give the server back; of a call that was cancelled it is told."""
        if cancelled:
            self.channel.lost()
        await self.alone.close()


class Patience:
    """Waits for one call for a while; then it becomes a task.

    Args:
        lasting: keeps tasks.
        alone: the session of the call.
        message: its request.
        stream: what its response is written from.
    """

    def __init__(self, lasting: Lasting, alone: Alone, message: Request, stream: Stream) -> None:
        self._lasting = lasting
        self._alone = alone
        self._message = message
        self._stream = stream
        self._timer = asyncio.get_running_loop().call_later(lasting.after, self._begin)

    def end(self) -> None:
        """Wait no more."""
        self._timer.cancel()

    def _begin(self) -> None:
        later = Stream()
        if self._alone.channel.divert(self._message.id, later):  # 1
            self._alone.handing = asyncio.create_task(self._hand_over(later))

    async def _hand_over(self, later: Stream) -> None:
        alone = self._alone
        params = {name: value for name, value in self._message.params.items() if name not in ANSWERING}
        going = Going(replace(self._message, params=params), later, alone)
        try:
            task = await self._lasting.keep(going)  # 2
        except BaseException as error:
            self._put_back(later)
            if isinstance(error, SandboxError):
                return
            raise
        finally:
            alone.handing = None
        alone.told = not alone.gone
        info = alone.behind.options.server_info if alone.behind is not None else {}
        whole: dict[str, Any] = {**task, "resultType": "task", "_meta": {meta.SERVER_INFO: dict(info)}}
        self._stream.put(Result(self._message.id, whole), last=True)  # 3

    def _put_back(self, later: Stream) -> None:
        """Let the call be what it was."""
        self._alone.handing = None
        for sent in later.take():
            self._alone.before(sent.message)
            self._stream.put(sent.message, last=isinstance(sent.message, Result | Failure))
        if not self._alone.channel.divert(self._message.id, self._stream) and not self._stream.over:
            self._stream.end()


def patience(lasting: Lasting | None, alone: Alone, message: Request, stream: Stream) -> Patience | None:
    """Return what waits for a call that may become a task; ``None`` for every other request."""
    if lasting is None or message.method != "tools/call":
        return None
    if not tasks.declared(meta.of(message.params).get(meta.CLIENT_CAPABILITIES)):
        return None
    return Patience(lasting, alone, message, stream)
