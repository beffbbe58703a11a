"""Calls over HTTP that wait for their repetition: who may take them up, how many there may be, and that they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from sandbox.serve.http.alone import MAX_WAITING_OF_OWNER, Alone, Asking, WaitingRoom
from sandbox.serve.http.streams import Stream
from sandbox.wire.jsonrpc import Request, Result

pytestmark = pytest.mark.anyio


class Waiting(Alone):
    """A session whose call waits under a state."""

    def __init__(self, owner: str, state: str, task: asyncio.Task[None] | None) -> None:
        super().__init__(owner, WaitingRoom())
        self.state, self.task, self.lent = state, task, True

    @property
    def waiting(self) -> Mapping[str, asyncio.Task[None] | None]:
        return {self.state: self.task} if self.task is not None else {}

    async def hold(self) -> None:
        """Have a server."""

        @asynccontextmanager
        async def server() -> AsyncIterator[Any]:
            yield None
            self.lent = False

        await self.lend(cast("Any", server()))


async def waiting(owner: str, state: str = "state") -> Waiting:
    """Return a session that holds a server while its call waits for ever."""
    alone = Waiting(owner, state, asyncio.create_task(asyncio.sleep(3600)))  # type: ignore[arg-type]
    await alone.hold()
    return alone


def repetition(state: Any) -> Request:
    """Return a request with a state."""
    return Request(1, "tools/call", {"name": "tool", "requestState": state})


async def test_only_the_holder_of_the_same_credential_takes_a_call_up_and_only_once() -> None:
    """J20: the state alone opens nothing; whoever else names it changes nothing for its owner."""
    room = WaitingRoom()
    alone = await waiting("alice")
    assert room.keep(alone)

    assert [None] * 4 == [
        room.take(repetition("state"), "mallory"),
        *(room.take(repetition(s), "alice") for s in ("", 1, "x")),
    ]
    assert alone is room.take(repetition("state"), "alice")
    assert room.take(repetition("state"), "alice") is None
    await asyncio.sleep(0)
    assert alone.lent
    await alone.close()
    assert not alone.lent


async def test_a_question_can_be_answered_before_its_own_response_is_over() -> None:
    """The session is in the room when the question goes out, and who still writes it does not end it."""
    room = WaitingRoom()
    alone = await waiting("alice")
    alone.channel = Asking(lambda: room.keep(alone))
    stream = Stream()
    alone.channel.feed(repetition(None), 1, stream)
    alone.carried += 1
    alone.channel.send(Result(1, {"resultType": "input_required"}))
    there = len(room)
    taken = room.take(repetition("state"), "alice")

    assert [1, 1] == [there, len(stream.take())]
    assert alone is taken
    assert not alone.over
    alone.carried -= 1
    assert alone.over


async def test_one_credential_cannot_fill_the_room() -> None:
    """Each call that waits holds a server: beyond the bound it is not kept, and others still are."""
    room = WaitingRoom()
    kept = [room.keep(await waiting("alice", str(number))) for number in range(MAX_WAITING_OF_OWNER + 1)]

    assert [True] * MAX_WAITING_OF_OWNER + [False] == kept
    assert room.keep(await waiting("bob", "his"))
    room.end()


async def test_a_call_that_ends_and_a_gateway_that_ends_give_servers_back() -> None:
    """Nobody repeats it: when the call is over, or everything is, nothing is lent any more."""
    room = WaitingRoom()
    over, ended, idle = await waiting("a", "1"), await waiting("a", "2"), Waiting("a", "", None)
    assert [True, True, False] == [room.keep(over), room.keep(ended), room.keep(idle)]
    assert over.task is not None
    over.task.cancel()
    async with asyncio.timeout(5):
        while over.lent:  # noqa: ASYNC110 - until its watcher has run
            await asyncio.sleep(0)
    assert ended.lent
    room.end()
    async with asyncio.timeout(5):
        while ended.lent:  # noqa: ASYNC110
            await asyncio.sleep(0)

    assert 0 == len(room)


async def test_what_begins_to_wait_at_the_moment_of_the_end_gives_its_server_back() -> None:
    """A reload, or the end of the gateway, that meets a call in the moment in which it asks keeps no server lent."""
    room = WaitingRoom()
    alone = await waiting("alice")
    assert room.keep(alone)
    room.end()
    async with asyncio.timeout(30):
        while alone.lent:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.01)

    assert len(room) == 0
