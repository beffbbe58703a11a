"""Handshake sessions under attack: what is read twice, what ends while it begins, and what a credential lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sandbox.errors import ServerFault
from sandbox.serve.http.bounds import MAX_KEPT_BYTES, MAX_WAITING_BYTES, HttpBounds
from sandbox.serve.http.sessions import HttpSession, Sessions
from sandbox.serve.http.streams import Stream
from sandbox.serve.http.turns import Turn
from sandbox.serve.identity.model import Access, anonymous
from sandbox.supervisor.breaker import Patience
from sandbox.testing.backend import FakeServer
from sandbox.wire.jsonrpc import Notification, Result, encode
from tests.gateway_lab import Server, lab, request

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


class Beginning:
    """A door whose server never comes."""

    path, name, access, legacy, stateless = "/mcp/never", "never", Access(anonymous=True), False, False

    def __init__(self) -> None:
        self.turn = Turn()
        self.asked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self, *_args: Any) -> AsyncIterator[Any]:
        """Begin, and wait for ever."""
        self.asked.set()
        await asyncio.Event().wait()
        yield None


@pytest.mark.parametrize("ends", ["drop_where", "close"])
async def test_a_session_that_is_ended_while_it_begins_is_refused_as_what_it_is(ends: str) -> None:
    """A reload or the end of the gateway meets a session whose server is starting: its client gets a plain refusal."""
    sessions, door = Sessions(HttpBounds()), Beginning()
    opening = asyncio.create_task(sessions.open(cast("Any", door), anonymous()))
    await door.asked.wait()
    if ends == "close":
        await sessions.close()
    else:
        sessions.drop_where(lambda _session: True)
    with pytest.raises(ServerFault, match="GATE-019"):
        await opening
    assert len(sessions) == 0


async def test_a_stream_that_is_read_is_not_wound_back_by_another_reader() -> None:
    """Who asks for a stream again while it is read is refused, and the one who reads gets nothing twice."""
    session = HttpSession(cast("Any", Beginning()), anonymous())
    stream = session.stream()
    stream.put(Notification("notifications/message", {"data": 1}))
    assert len(stream.take()) == 1
    stream.reader = True
    assert session.resumed(f"{stream.key}.0") is stream
    assert stream.take() == []
    stream.reader = False
    assert session.resumed(f"{stream.key}.0") is stream
    assert len(stream.take()) == 1


@pytest.mark.parametrize("odd", [["1"], {"id": 1}, None, True, 1.0])
async def test_a_cancellation_of_what_is_no_id_is_ignored(odd: Any) -> None:
    """What cannot be an id cancels nothing, and is no defect of the gateway."""
    async with lab() as stage:
        headers = await stage.session()
        waiting = asyncio.create_task(stage.post("/mcp/open", request("tools/call", {
            "name": "tool", "arguments": {"slow": True}}), **headers))  # fmt: skip
        while not stage.server.calls:  # noqa: ASYNC110 - the fake server has no event for it
            await asyncio.sleep(0.01)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": odd}}
        told = await stage.post("/mcp/open", note, **headers)
        answer = await waiting

    assert told.status_code == 202
    assert '"slow": true' in answer.text or '"slow":true' in answer.text


@pytest.mark.claim("P-GATE-02")
async def test_a_session_at_the_common_endpoint_does_not_outlive_a_scope_of_its_holder() -> None:
    """Attack: a token with a scope opens a session; the next token of the same holder, without it, uses it."""
    async with lab(scopes=("closed:use",)) as stage:
        wide = stage.token("", scope="closed:use other")
        narrow = stage.token("", scope="other")
        same = stage.token("", scope="closed:use")
        headers = await stage.session("/mcp", wide)
        body = request("tools/call", {"name": "closed__tool", "arguments": {}}, 5)
        before = await stage.post("/mcp", body, wide, **headers)
        fresh = await stage.post("/mcp", body, same, **headers)
        direct = await stage.initialize("/mcp/closed", narrow)
        after = await stage.post("/mcp", body, narrow, **headers)

    assert [before.status_code, fresh.status_code] == [200, 200]
    assert "only for those who may" in before.text
    assert direct.status_code == 403
    assert (after.status_code, after.json()["error"]["data"]["id"]) == (404, "GATE-016")


@pytest.mark.claim("P-GATE-14")
async def test_answers_that_nobody_reads_are_bounded_when_they_come_late() -> None:
    """Attack: many large calls, each left before its answer; the session keeps so many bytes, and the newest answer."""
    session = HttpSession(cast("Any", Beginning()), anonymous())
    streams = [session.stream() for _ in range(16)]
    for stream in streams:
        stream.told = True
        session.answered(stream)  # its client has gone, and may come back
    for number, stream in enumerate(streams):
        stream.put(Result(number, {"text": "x" * (MAX_KEPT_BYTES // 4)}), last=True)
    kept = [stream for stream in streams if stream in session._streams.values()]

    assert sum(stream.size for stream in kept) <= MAX_KEPT_BYTES * 5 // 4 + 1024
    assert session.resumed(f"{streams[-1].key}.0") is streams[-1]
    assert len(streams[-1].take()) == 1


async def test_what_a_server_says_to_nobody_costs_the_same_however_much_waits() -> None:
    """Attack: a server talks to a session whose client does not listen; each message is not held against all others."""

    class Counted(list[Any]):
        walks = 0

        def __iter__(self) -> Any:
            Counted.walks += 1
            return super().__iter__()

    stream = Stream("s")
    stream._events = Counted()
    note = Notification("notifications/message", {"data": "x" * 1000})
    while not stream.dropped:
        stream.put(note)
    assert Counted.walks == 0
    kept = len(stream.take())
    assert kept == MAX_WAITING_BYTES // len(encode(note)[:-1])
    stream.put(note)
    stream.back_to(kept - 3)
    assert len(stream.take()) == 4


class Dying(Server):
    """A server that ends at once."""

    async def __call__(self, server: FakeServer) -> int:
        """Be one process, for a moment."""
        self.starts += 1
        return 1


async def test_a_client_is_told_to_come_back_when_it_may_and_not_before() -> None:
    """While a server that keeps ending is not started, `Retry-After` is the time for which that holds."""
    restarts = Patience(first=0.01, longest=0.02, failures=2, window=60.0, open_for=120.0, open_longest=120.0)
    async with lab(Dying(), pool={"restarts": restarts}) as stage:
        answers = [await stage.initialize() for _ in range(4)]

    last = answers[-1]
    assert answers[0].status_code == 502
    assert (last.status_code, last.json()["error"]["data"]["id"]) == (503, "CALL-073")
    assert 60 < int(last.headers["retry-after"]) <= 120
