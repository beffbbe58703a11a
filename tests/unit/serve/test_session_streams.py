from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import CallRefused, ServerFault
from sandbox.serve.client_model import CallInfo, SessionOptions
from sandbox.serve.forwarding import ForwardingHandler
from sandbox.wire import meta
from sandbox.wire.jsonrpc import Failure, Notification, Request, Result
from tests.wire_kit import (
    HANDSHAKE,
    STATELESS,
    THEM,
    envelope,
    exposure,
    of_client,
    refused,
    serving,
    settled,
    tool,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
OPENING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": THEM}


# --- cancellation, logs ----------------------------------------------------------------------------------
@BOTH
@pytest.mark.parametrize("server_era", [HANDSHAKE, STATELESS])
async def test_cancellation(era: str, server_era: str) -> None:
    """A client's cancellation reaches the server under the same id, and the request gets no answer."""
    async with serving(server_era, era) as stage:
        stage.client.call("tools/call", of_client(era, {"name": "echo"}), 9)
        await stage.server.expect("tools/call")
        stage.client.send(Notification("notifications/cancelled", {"requestId": 9, "reason": "enough"}))
        told = await stage.server.receive(Notification)
        stage.server.send(Result(9, {"content": []}))
        await settled()

        assert ("notifications/cancelled", 9) == (told.method, told.params["requestId"])
        assert stage.client.unread.empty()
        assert [] == stage.facts("transport.drop")


@pytest.mark.parametrize("params", [{}, {"requestId": 99}, {"requestId": [1]}, {"requestId": "9"}, {"requestId": None}])
async def test_invalid_cancellations_are_ignored(params: dict[str, Any]) -> None:
    """A cancellation of nothing, also of an id of another type, does nothing."""
    async with serving() as stage:
        stage.client.call("tools/call", {"name": "echo"}, 9)
        request = await stage.server.expect("tools/call")
        stage.client.send(Notification("notifications/cancelled", params))
        stage.server.send(Result(request.id, {"content": []}))

        assert 9 == (await stage.client.receive(Result)).id
        assert stage.server.unread.empty()


async def test_log_messages_of_a_handshake_session() -> None:
    """Messages below the client's level stop here; the server is asked for the level with the next request."""
    async with serving() as stage:
        log = {"level": "info", "logger": "l", "data": {"a": 1}, "secret": "x"}
        stage.server.send(Notification("notifications/message", log))
        assert {"level": "info", "logger": "l", "data": {"a": 1}} == (await stage.client.receive(Notification)).params
        await stage.client.ask("logging/setLevel", {"level": "error"})
        stage.server.send(Notification("notifications/message", log))
        stage.server.send(Notification("notifications/message", {"level": "weird", "data": 1}))
        stage.server.send(Notification("notifications/message", {"level": "alert", "data": 2}))

        assert 2 == (await stage.client.receive(Notification)).params["data"]
        stage.client.call("tools/call", {"name": "echo"})
        assert {"level": "error"} == (await stage.server.expect("logging/setLevel")).params
        assert "SESS-011" == (await refused(stage, "logging/setLevel", {"level": "loud"})).data["id"]


async def test_log_messages_of_a_stateless_request() -> None:
    """Messages pass only while a request that asked for them is in flight (2026-07-28, logging)."""
    async with serving(STATELESS, STATELESS) as stage:
        log = Notification("notifications/message", {"level": "error", "data": 1})
        stage.client.call("tools/call", of_client(STATELESS, {"name": "echo"}))
        quiet = await stage.server.expect("tools/call")
        stage.server.send(log)
        stage.client.call("tools/call", of_client(STATELESS, {"name": "echo"}, **{meta.LOG_LEVEL: "warning"}))
        loud = await stage.server.expect("tools/call")
        stage.server.send(log, Notification("notifications/message", {"level": "info", "data": 2}))
        stage.server.send(Result(loud.id, {}), Result(quiet.id, {}))
        await settled()
        stage.server.send(log)
        heard = [await stage.client.unread.get() for _ in range(3)]

        assert meta.LOG_LEVEL not in quiet.params["_meta"]
        assert "warning" == loud.params["_meta"][meta.LOG_LEVEL]
        assert [1] == [one.params["data"] for one in heard if isinstance(one, Notification)]


async def test_what_the_server_says_on_its_own_is_cleaned() -> None:
    """The option ``clean`` is applied to log messages, progress and errors."""
    options = SessionOptions(
        clean=lambda params: {key: "*" if key in ("data", "message") else value for key, value in params.items()}
    )
    async with serving(options=options) as stage:
        stage.client.call("tools/call", {"name": "echo", "_meta": {"progressToken": 1}})
        request = await stage.server.expect("tools/call")
        stage.server.send(
            Notification("notifications/message", {"level": "info", "data": "key"}),
            Notification("notifications/progress", {"progressToken": 1, "progress": 1, "message": "key"}),
        )
        heard = [await stage.client.receive(Notification) for _ in range(2)]
        stage.server.send(Failure(request.id, -32603, "the key is abc", "abc"))
        error = await stage.client.receive(Failure)

        assert ["*", "*"] == [heard[0].params["data"], heard[1].params["message"]]
        assert ("*", "*") == (error.message, error.data)


async def test_what_cannot_be_cleaned_is_dropped() -> None:
    """A cleaner that refuses loses the message, not the session."""

    def refusing(params: dict[str, Any]) -> dict[str, Any]:
        raise ServerFault("CALL-060", "too large")

    async with serving(options=SessionOptions(clean=refusing)) as stage:
        stage.client.call("tools/call", {"name": "echo", "_meta": {"progressToken": 1}})
        request = await stage.server.expect("tools/call")
        stage.server.send(
            Notification("notifications/message", {"level": "info", "data": "key"}),
            Notification("notifications/progress", {"progressToken": 1, "progress": 1, "message": "key"}),
            Failure(request.id, -32603, "the key is abc", "abc"),
        )
        error = await stage.client.receive(Failure)

        assert -32603 == error.code
        assert "abc" not in str(error)


# --- subscriptions ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("server_era", [HANDSHAKE, STATELESS])
async def test_listening(server_era: str) -> None:
    """A stream is acknowledged first, marks everything with its id, and ends with a cancellation."""
    async with serving(server_era, STATELESS, opened=False) as stage:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"], "unknown": True}
        listening = stage.client.call("subscriptions/listen", {**envelope(), "notifications": wanted}, "s")
        request = await stage.server.receive(Request)
        own: dict[str, Any] = {}
        if server_era == STATELESS:
            own = {"_meta": {meta.SUBSCRIPTION_ID: request.id}}
            acknowledged = {"notifications": request.params["notifications"], **own}
            stage.server.send(Notification("notifications/subscriptions/acknowledged", acknowledged))
        else:
            assert "resources/subscribe" == request.method
            stage.server.send(Result(request.id, {}))
        first = await stage.client.receive(Notification)
        stage.server.send(Notification("notifications/resources/updated", {"uri": "note://one", **own}))
        second = await stage.client.receive(Notification)
        stage.session.replace_exposure(exposure(tool("new"), prompts=("greet", "p2"), resources=("note://{name}",)))
        third = await stage.client.receive(Notification)
        stage.client.send(Notification("notifications/cancelled", {"requestId": listening}))
        await settled()

        mark = {meta.SUBSCRIPTION_ID: "s"}
        honoured = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
        assert ("notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": mark}) == (
            first.method,
            first.params,
        )
        assert {"uri": "note://one", "_meta": mark} == second.params
        assert ("notifications/tools/list_changed", {"_meta": mark}) == (third.method, third.params)
        assert stage.client.unread.empty()
        end = await stage.server.unread.get()
        assert end.method == ("notifications/cancelled" if server_era == STATELESS else "resources/unsubscribe")


@pytest.mark.parametrize(
    "wanted",
    [None, [], {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [1]}, {"resourceSubscriptions": ["a"] * 2000}],
)
async def test_malformed_filters(wanted: object) -> None:
    """A filter that is none opens no stream."""
    async with serving(client_era=STATELESS) as stage:
        answer = await refused(stage, "subscriptions/listen", {**envelope(), "notifications": wanted})

        assert "SESS-012" == answer.data["id"]


async def test_a_refused_resource_opens_no_stream() -> None:
    """When one resource of a filter may not be watched, the whole request is refused and nothing stays watched."""

    class Picky(ForwardingHandler):
        async def watch_resource(self, uri: str, call: CallInfo) -> None:
            if uri == "note://b":
                raise CallRefused("CALL-004", "not this one")

    async with serving(client_era=STATELESS, handler=Picky()) as stage:
        wanted = {"resourceSubscriptions": ["note://a", "note://b"]}
        stage.client.call("subscriptions/listen", {**envelope(), "notifications": wanted})
        for method in ("resources/subscribe", "resources/unsubscribe"):
            request = await stage.server.expect(method)
            assert {"uri": "note://a"} == request.params
            stage.server.send(Result(request.id, {}))

        assert -31004 == (await stage.client.receive(Failure)).code


async def test_subscriptions_of_a_handshake_client() -> None:
    """Updates pass only for what the client subscribed to; twice is once."""
    async with serving() as stage:
        for _ in range(2):
            stage.client.call("resources/subscribe", {"uri": "note://one"})
            await settled()
            if not stage.server.unread.empty():
                request = await stage.server.expect("resources/subscribe")
                stage.server.send(Result(request.id, {}))
            assert {} == (await stage.client.receive(Result)).result
        stage.server.send(
            Notification("notifications/resources/updated", {"uri": "note://two"}),
            Notification("notifications/resources/updated", {"uri": "note://one"}),
        )

        assert {"uri": "note://one"} == (await stage.client.receive(Notification)).params
        stage.client.call("resources/unsubscribe", {"uri": "note://one"})
        request = await stage.server.expect("resources/unsubscribe")
        stage.server.send(Result(request.id, {}))
        assert {} == (await stage.client.receive(Result)).result


async def test_streams_end_in_order_when_the_server_ends() -> None:
    """An open stream gets its answer, which says that it ended gracefully."""
    async with serving(client_era=STATELESS) as stage:
        stage.client.call("subscriptions/listen", {**envelope(), "notifications": {"toolsListChanged": True}}, 4)
        await stage.client.receive(Notification)
        stage.server.close()
        answer = await stage.client.receive(Result)

        assert (4, {meta.SUBSCRIPTION_ID: 4}) == (answer.id, answer.result["_meta"])
