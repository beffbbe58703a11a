from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from sandbox.errors import CallRefused, SandboxError, ServerFault
from sandbox.limits import MAX_INPUT_ROUNDS, MAX_SERVER_GARBAGE_LINES
from sandbox.testing.scripted import scripted
from sandbox.transport import watches
from sandbox.transport.outcomes import InputRequired, RemoteError
from sandbox.transport.peer import ServerPeer
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.wire_kit import (
    EVERYTHING,
    HANDSHAKE,
    STATELESS,
    US,
    Stage,
    acknowledgement,
    connected,
    open_server,
    scope_of,
    settled,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
TOOLS_ONLY = {"tools": {}}


def asking(stage: Stage, method: str = "tools/call", **more: Any) -> asyncio.Task[dict[str, Any]]:
    """Send a request of ours in the background."""
    return asyncio.create_task(stage.peer.request(method, {"name": "echo"}, **{"timeout": 5.0, **more}))


async def failed(task: asyncio.Task[Any]) -> SandboxError:
    """Return the error of a request."""
    with pytest.raises(SandboxError) as caught:
        await task
    return caught.value


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("sampling/createMessage", -32601),
        ("elicitation/create", -32602),
        ("roots/list", -32601),
        ("tools/list", -32601),
        ("tasks/get", -32601),
    ],
)
async def test_requests_of_a_server_are_refused(method: str, code: int) -> None:
    """Nothing is offered to a server that was not asked for, and what it tried is recorded."""
    async with connected() as stage:
        stage.server.send(Request("s1", method, {}))
        answer = await stage.server.receive(Failure)

        assert ("s1", code) == (answer.id, answer.code)
        assert [{"method": method}] == stage.facts("transport.refuse")


async def test_ping_is_answered() -> None:
    """A server may ask whether we are there."""
    async with connected() as stage:
        stage.server.send(Request(1, "ping", {}))

        assert Result(1, {}) == await stage.server.receive(Result)


async def test_roots_are_answered_from_the_plan() -> None:
    """Roots are those we were given, and only then is the capability declared."""
    roots = [{"uri": "file:///data", "name": "data"}]
    async with connected(roots=roots) as stage:
        stage.server.send(Request(1, "roots/list", {}))

        assert {"roots": {}} == stage.peer.client_capabilities
        assert Result(1, {"roots": roots}) == await stage.server.receive(Result)


async def test_somebody_else_may_answer_requests() -> None:
    """``on_request`` comes before the defaults."""
    async with connected() as stage:
        stage.peer.on_request = lambda method, params: {"roots": []} if method == "roots/list" else None
        stage.server.send(Request(1, "roots/list", {}), Request(2, "sampling/createMessage", {}))

        assert Result(1, {"roots": []}) == await stage.server.receive(Result)
        assert 2 == (await stage.server.receive(Failure)).id


async def test_a_stateless_server_must_not_send_requests() -> None:
    """Such a request gets no answer, since clients of that era send none, and is recorded."""
    async with connected(STATELESS) as stage:
        stage.server.send(Request(1, "ping", {}))
        await settled()

        assert stage.server.unread.empty()
        assert ["WIRE-048"] == [fact["reason"] for fact in stage.facts("transport.drop")]


async def test_roots_in_a_round_trip() -> None:
    """A stateless server that asks for roots gets them with the repeated request, under a new id and its own state."""
    roots = [{"uri": "file:///data"}]
    async with connected(STATELESS, roots=roots) as stage:
        task = asking(stage, id=1)
        first = await stage.server.expect("tools/call")
        wanted = {"r": {"method": "roots/list"}}
        stage.server.send(
            Result(first.id, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s\u2028"})
        )
        second = await stage.server.expect("tools/call")
        stage.server.send(Result(second.id, {"content": []}))

        assert first.id != second.id
        assert ({"r": {"roots": roots}}, "s\u2028") == (second.params["inputResponses"], second.params["requestState"])
        assert {"content": []} == await task


@pytest.mark.parametrize(
    "wanted",
    [
        {"a": {"method": "elicitation/create", "params": {"message": "password?"}}},
        {"a": {"method": "roots/list"}, "b": {"method": "sampling/createMessage"}},
        {"a": "roots/list"},
        ["roots/list"],
    ],
)
async def test_input_that_a_server_may_not_have(wanted: object) -> None:
    """Sampling, elicitation and anything malformed are refused; the request is not repeated."""
    async with connected(STATELESS, roots=[{"uri": "file:///data"}]) as stage:
        task = asking(stage)
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"resultType": "input_required", "inputRequests": wanted}))
        error = await failed(task)

        assert isinstance(error, InputRequired)
        assert isinstance(error, CallRefused)
        assert stage.server.unread.empty()


async def test_rounds_are_bounded() -> None:
    """A server that asks again and again is refused in the end."""
    async with connected(STATELESS) as stage:
        task = asking(stage)
        for _ in range(MAX_INPUT_ROUNDS + 1):
            request = await stage.server.expect("tools/call")
            stage.server.send(Result(request.id, {"resultType": "input_required", "requestState": "again"}))

        assert "WIRE-051" == (await failed(task)).id


async def test_notifications_reach_everybody_who_listens() -> None:
    """Log messages and changes are handed to the callback and to listeners, without the protocol's own keys."""
    async with connected() as stage:
        heard: list[tuple[str, Any]] = []
        stage.peer.on_notification = lambda method, params: heard.append((method, params))
        stage.server.send(
            Notification("notifications/tools/list_changed", {"_meta": {"io.modelcontextprotocol/x": 1}}),
            Notification("notifications/message", {"level": "info", "data": 1}),
            Notification("notifications/vendor/own", {}),
        )

        assert [
            ("notifications/tools/list_changed", {}),
            ("notifications/message", {"level": "info", "data": 1}),
        ] == heard


async def test_a_stateless_server_notifies_only_on_streams() -> None:
    """List changes count only on the stream that we opened, and only the kinds we asked for."""
    async with connected(STATELESS, {"tools": {"listChanged": True}}) as stage:
        heard: list[str] = []
        stage.peer.on_notification = lambda method, params: heard.append(method)
        stream = "mcp-sandbox:2"
        for method, own in (
            ("notifications/tools/list_changed", {meta.SUBSCRIPTION_ID: stream}),
            ("notifications/tools/list_changed", {}),
            ("notifications/tools/list_changed", {meta.SUBSCRIPTION_ID: "mcp-sandbox:9"}),
            ("notifications/prompts/list_changed", {meta.SUBSCRIPTION_ID: stream}),
        ):
            stage.server.send(Notification(method, {"_meta": own}))

        assert ["notifications/tools/list_changed"] == heard


async def test_watching_a_resource_of_a_stateless_server() -> None:
    """A watch is a subscription of its own, which ends with a cancellation."""
    async with connected(STATELESS, {"resources": {"subscribe": True}}) as stage:
        heard: list[str] = []
        stage.peer.on_notification = lambda method, params: heard.append(params["uri"])
        watching = asyncio.create_task(stage.peer.watches.watch("a:b", timeout=5))
        listen = await stage.server.expect("subscriptions/listen")
        stage.server.send(acknowledgement(listen))
        await watching
        for uri in ("a:b", "a:b/c", "a:bc"):
            params = {"uri": uri, "_meta": {meta.SUBSCRIPTION_ID: listen.id}}
            stage.server.send(Notification("notifications/resources/updated", params))
        await stage.peer.watches.unwatch("a:b", timeout=5)
        told = await stage.server.receive(Notification)

        assert {"resourceSubscriptions": ["a:b"]} == listen.params["notifications"]
        assert ["a:b", "a:b/c"] == heard
        assert ("notifications/cancelled", listen.id) == (told.method, told.params["requestId"])


async def test_watching_a_resource_of_a_handshake_server() -> None:
    """Several watches of one resource are one subscription."""
    async with connected(capabilities={"resources": {"subscribe": True}}) as stage:
        for _ in range(2):
            task = asyncio.create_task(stage.peer.watches.watch("a:b", timeout=5))
            await settled()
            if not stage.server.unread.empty():
                request = await stage.server.expect("resources/subscribe")
                stage.server.send(Result(request.id, {}))
            await task
        await stage.peer.watches.unwatch("a:b", timeout=5)
        task = asyncio.create_task(stage.peer.watches.unwatch("a:b", timeout=5))
        request = await stage.server.expect("resources/unsubscribe")
        stage.server.send(Result(request.id, {}))
        await task

        assert {"uri": "a:b"} == request.params


@BOTH
async def test_everything_fails_when_the_server_ends(era: str) -> None:
    """Requests in flight and later ones fail with the same fault; listeners are told once."""
    async with connected(era) as stage:
        told: list[SandboxError] = []

        class Listener:
            def server_notified(self, method: str, params: dict[str, Any]) -> None: ...

            def server_pressure(self, full: bool) -> None: ...

            def server_closed(self, error: SandboxError) -> None:
                told.append(error)

        stage.peer.add_listener(Listener())
        task = asking(stage)
        await settled()
        stage.server.close()
        first, second = await failed(task), await failed(asking(stage))

        assert "WIRE-040" == first.id
        assert first is second
        assert [first] == told
        assert first is await stage.peer.wait_closed()


async def test_a_fault_keeps_nothing_of_all_who_were_told() -> None:
    """However many requests come after the end, the fault holds the frames of the last one only."""
    async with connected() as stage:
        stage.server.close()
        fault = await failed(asking(stage))

        def depth() -> int:
            return len(traceback.extract_tb(fault.__traceback__))

        await failed(asking(stage))
        one = depth()
        for _ in range(20):
            assert fault is await failed(asking(stage))

        assert depth() == one


async def test_an_orderly_end_is_no_fault() -> None:
    """After ``close`` the server's EOF is what was asked for."""
    async with connected() as stage:
        closing = asyncio.create_task(stage.peer.close(5))
        await stage.server.eof.wait()
        stage.server.close()
        await closing

        assert await stage.peer.wait_closed() is None
        assert [] == stage.facts("transport.fault")


async def test_a_server_that_ignores_the_end_is_dropped() -> None:
    """After the grace the channel is closed."""
    async with connected() as stage:
        await stage.peer.close(0.01)

        assert await stage.peer.wait_closed() is None


async def test_patience_with_banners() -> None:
    """Lines that are no message are recorded and survived, up to the bound."""
    async with connected() as stage:
        for _ in range(MAX_SERVER_GARBAGE_LINES):
            stage.server.send_bytes(b"Starting server...\n")
        assert stage.peer.fault is None
        stage.server.send_bytes(b"and one more\n")
        await settled()

        assert "WIRE-041" == (await stage.peer.wait_closed()).id  # type: ignore[union-attr]
        assert MAX_SERVER_GARBAGE_LINES == len(stage.facts("transport.drop"))


async def test_list_all_follows_every_page() -> None:
    """Pages are joined in order."""
    async with connected() as stage:
        task = asyncio.create_task(stage.peer.list_all("tools/list"))
        for page, cursor in (("a", "2"), ("b", "3"), ("c", None)):
            request = await stage.server.expect("tools/list")
            more = {"nextCursor": cursor} if cursor else {}
            stage.server.send(Result(request.id, {"tools": [{"name": page}], **more}))

        assert ({"name": "a"}, {"name": "b"}, {"name": "c"}) == await task


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({"tools": [{}], "nextCursor": "same"}, "WIRE-046"),
        ({"tools": [{}], "nextCursor": 1}, "WIRE-046"),
        ({"tools": [{}] * 10_001}, "WIRE-046"),
        ({"tools": "x"}, "WIRE-047"),
        ({"tools": ["x"]}, "WIRE-047"),
        ({}, "WIRE-047"),
    ],
)
async def test_lists_that_are_none(page: dict[str, Any], expected: str) -> None:
    """Endless, oversized and malformed lists are the server's fault."""
    async with connected() as stage:
        task = asyncio.create_task(stage.peer.list_all("tools/list"))
        while not task.done():
            await settled()
            if not stage.server.unread.empty():
                request = await stage.server.expect("tools/list")
                stage.server.send(Result(request.id, page))
        error = await failed(task)

        assert isinstance(error, ServerFault)
        assert expected == error.id


async def test_an_unknown_result_type_is_the_servers_fault() -> None:
    """A result that cannot be understood is not passed on."""
    async with connected(STATELESS) as stage:
        task = asking(stage)
        request = await stage.server.expect("tools/call")
        stage.server.send(Result(request.id, {"resultType": "task", "taskId": "1"}))
        error = await failed(task)

        assert (ServerFault, "WIRE-020") == (type(error), error.id)


@pytest.mark.parametrize("capabilities", [EVERYTHING, TOOLS_ONLY])
async def test_log_level_of_a_handshake_server(capabilities: dict[str, Any]) -> None:
    """The level is set once, and only on a server that has log messages."""
    async with connected(capabilities=capabilities) as stage:
        task = asyncio.create_task(stage.peer.set_log_level("warning", timeout=5))
        if "logging" in capabilities:
            request = await stage.server.expect("logging/setLevel")
            stage.server.send(Result(request.id, {}))
            assert {"level": "warning"} == request.params
        await task
        await stage.peer.set_log_level("warning", timeout=5)

        assert stage.server.unread.empty()


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_flood_ends_the_server(size: int) -> None:
    """Too many messages, or too many bytes, in a second are a fault."""
    async with connected() as stage:
        stage.peer._unasked._now = lambda: 1.0  # time stands still
        line = Notification("notifications/message", {"level": "info", "data": "x" * size})
        for _ in range(1100 if size == 10 else 400):
            stage.server.send(line)
        await settled()

        assert "WIRE-045" == (await stage.peer.wait_closed()).id  # type: ignore[union-attr]
        assert ["WIRE-045"] == [fact["reason"] for fact in stage.facts("transport.fault")]


async def test_a_broken_answer_fails_its_request_at_once() -> None:
    """An answer that is no message, but says whose it is, does not leave its request waiting."""
    async with connected() as stage:
        task = asking(stage, id=1)
        await stage.server.expect("tools/call")
        stage.server.send_bytes(b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}\n')
        error = await failed(task)

        assert (ServerFault, "WIRE-018") == (type(error), error.id)
        assert stage.peer.fault is None


async def test_a_message_beyond_the_bounds_ends_the_server() -> None:
    """No banner nests a hundred levels deep."""
    async with connected() as stage:
        stage.server.send_bytes(b"[" * 200 + b"]" * 200 + b"\n")
        await settled()

        assert "WIRE-007" == (await stage.peer.wait_closed()).id  # type: ignore[union-attr]


async def test_an_unacknowledged_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream on which nothing is said first is not opened, and the server is told."""
    monkeypatch.setattr(watches, "ACKNOWLEDGE_TIMEOUT", 0.01)
    async with connected(STATELESS, {"resources": {"subscribe": True}}) as stage:
        error = await failed(asyncio.create_task(stage.peer.watches.watch("a:b", timeout=5)))
        listen = await stage.server.expect("subscriptions/listen")
        told = await stage.server.receive(Notification)

        assert "WIRE-049" == error.id
        assert listen.id == told.params["requestId"]


@pytest.mark.parametrize("way", ["cancelled", "answered", "refused"])
async def test_a_subscription_that_the_server_ends(way: str) -> None:
    """Every way in which a server may end a stream is accepted, and nothing more is heard on it."""
    async with connected(STATELESS, {"resources": {"subscribe": True}}) as stage:
        heard: list[str] = []
        stage.peer.on_notification = lambda method, params: heard.append(params["uri"])
        watching = asyncio.create_task(stage.peer.watches.watch("a:b", timeout=5))
        listen = await stage.server.expect("subscriptions/listen")
        stage.server.send(acknowledgement(listen))
        await watching
        stage.server.send(
            {
                "cancelled": Notification("notifications/cancelled", {"requestId": listen.id}),
                "answered": Result(listen.id, {"resultType": "complete"}),
                "refused": Failure(listen.id, -32603, "no"),
            }[way]
        )
        await settled()
        mark = {"uri": "a:b", "_meta": {meta.SUBSCRIPTION_ID: listen.id}}
        stage.server.send(Notification("notifications/resources/updated", mark))
        await stage.peer.watches.unwatch("a:b", timeout=5)

        assert [] == heard
        assert stage.peer.fault is None


async def test_a_failed_watch_is_no_watch() -> None:
    """When the server refuses a subscription the next attempt asks again."""
    async with connected(capabilities={"resources": {"subscribe": True}}) as stage:
        for _ in range(2):
            task = asyncio.create_task(stage.peer.watches.watch("a:b", timeout=5))
            request = await stage.server.expect("resources/subscribe")
            stage.server.send(Failure(request.id, -32602, "no"))
            assert isinstance(await failed(task), RemoteError)
        await stage.peer.watches.unwatch("a:b", timeout=5)

        assert stage.server.unread.empty()


async def test_list_changes_are_asked_for_again_never() -> None:
    """A server that does not acknowledge the stream of list changes is used without them."""
    channel, server = scripted("server")
    opening = asyncio.create_task(open_server(server, STATELESS, EVERYTHING, acknowledge=False))
    connecting = asyncio.create_task(
        ServerPeer.connect(channel, client_info=US, capabilities={}, scope=scope_of(), timeout=5)
    )
    await opening
    listen = await server.expect("subscriptions/listen")
    server.send(Failure(listen.id, -32601, "not here"))
    peer = await connecting
    channel.abort()
    await channel.wait_closed()

    assert "stateless" == peer.era
