"""Remote servers that do everything wrong: each ends in one clear error, within bounds, and nothing goes elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandbox.errors import SandboxError
from sandbox.events import Scope, Trace
from sandbox.limits import MAX_EVENT_ID, MAX_HTTP_HEAD, MAX_LINE_BYTES, MAX_STREAM_RETRIES, MIB
from sandbox.plan.model import HeaderEntry
from sandbox.testing.memory import MemoryRecorder
from sandbox.transport.outcomes import RemoteError
from sandbox.transport.peer import ServerPeer
from sandbox.transport.remote.address import target_of
from sandbox.transport.remote.dial import Dialer
from sandbox.transport.remote.opening import open_remote
from tests.remote_lab import ADDRESS, network, plan_of

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(120)]

Writer = asyncio.StreamWriter
Request = dict[str, Any]
Answer = Callable[[Request, Writer], Awaitable[None]]

SECRET = "c4nary-credential"


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


class Server:
    """A scripted HTTP server; ``requests`` is everything that reached it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        """Read requests of one connection and answer each."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *fields = head.decode("latin-1").split("\r\n")
                method, path, _ = line.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields if f)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = {"method": method, "path": path, **headers, "json": json.loads(body) if body else {}}
                self.requests.append(request)
                await self.answer(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    """Serve on the test's address."""
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, ADDRESS, 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def reply(writer: Writer, body: bytes, *fields: str, status: str = "200 OK", kind: str = "application/json") -> None:
    """Write a whole answer."""
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)


def result(request: Request, value: dict[str, Any]) -> bytes:
    """Return a result message."""
    return json.dumps({"jsonrpc": "2.0", "id": request["json"]["id"], "result": value}).encode()


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


def polite(bad: Answer, *fields: str, on: str = "tools/call") -> Answer:
    """Return a server that opens a handshake session properly, and answers one method badly."""

    async def answer(request: Request, writer: Writer) -> None:
        method = request["json"].get("method", request["method"])
        if method == on:
            await bad(request, writer)
        elif method == "initialize":
            reply(writer, result(request, HELLO), *fields)
        elif method == "GET":
            reply(writer, b"", status="405 Method Not Allowed")
        else:
            reply(writer, b"", status="202 Accepted")

    return answer


async def attempt(
    server: Server, recorder: MemoryRecorder | None = None, *, version: str = "2025-11-25", more: tuple[str, ...] = ()
) -> tuple[SandboxError | dict[str, Any], ServerPeer | None]:
    """Connect and call once; return the error or the result."""
    scope = Scope(recorder or MemoryRecorder(), Trace.new())
    plan = plan_of(
        f"http://{ADDRESS}:{server.port}/mcp",
        f"http://{ADDRESS}:{server.port}",
        *more,
        unsafe=(f"unsafe_plain_http:{ADDRESS}",),
        headers=(HeaderEntry("Authorization", "Bearer ", "key"),),
    )
    channel = open_remote(plan, {"key": SECRET}, scope)
    info = {"name": "test", "version": "1"}
    peer = None
    try:
        peer = await ServerPeer.connect(
            channel, client_info=info, capabilities={}, scope=scope, protocol_version=version, timeout=8
        )
        return await peer.request("tools/call", {"name": "x", "arguments": {}}, timeout=8), peer
    except SandboxError as error:
        return error, peer
    finally:
        channel.abort()
        await channel.wait_closed()


async def refused(bad: Answer, *fields: str) -> str:
    """Return the id of the error that a call ends with."""
    async with serving(polite(bad, *fields)) as server:
        outcome, _ = await attempt(server)
    assert isinstance(outcome, SandboxError), outcome
    assert SECRET not in str(outcome)
    return outcome.id


async def test_the_positive_control() -> None:
    """The same scripted server, when it behaves, is served."""

    async def good(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": [{"type": "text", "text": "ok"}]}))

    async with serving(polite(good)) as server:
        outcome, _ = await attempt(server)

    assert {"content": [{"type": "text", "text": "ok"}]} == outcome
    assert {f"Bearer {SECRET}"} == {request["authorization"] for request in server.requests}


async def flood(writer: Writer, piece: bytes) -> None:
    """Write for ever, as fast as it is taken."""
    while not writer.is_closing():
        writer.write(piece)
        await writer.drain()


@pytest.mark.claim("P-EGR-36")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    "piece", [b"x" * 65536, b"data: x\n" * 8192, b"id: 1\n" * 8192, b": c\n" * 8192], ids=["x", "data", "id", "comment"]
)
async def test_an_endless_body_costs_bounded_memory(kind: str, piece: bytes) -> None:
    """A body without an end is read to the bound, or to the deadline when nothing of it is kept."""

    async def bad(_: Request, writer: Writer) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
        await flood(writer, piece)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    number = await refused(bad)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    kept = kind == "application/json" or piece.startswith((b"x", b"data"))
    assert number in ({"WIRE-065", "WIRE-060"} if kept else {"WIRE-065", "WIRE-043"})
    assert (after - before) * 1024 < 12 * MAX_LINE_BYTES


async def test_an_endless_head_is_cut() -> None:
    """Header fields without an end are read to the bound."""

    async def bad(_: Request, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await flood(writer, b"X-A: " + b"a" * (MAX_HTTP_HEAD // 4) + b"\r\n")

    assert "WIRE-064" == await refused(bad)


@pytest.mark.claim("P-EGR-36")
async def test_a_gzip_bomb_is_not_unpacked() -> None:
    """A compressed answer, which was not asked for, is refused unread."""
    bomb = gzip.compress(b"0" * (64 * MIB))

    async def bad(_: Request, writer: Writer) -> None:
        reply(writer, bomb, "Content-Encoding: gzip")

    assert "WIRE-067" == await refused(bad)


@pytest.mark.parametrize("kind", ["text/html", "", "application/jsonx", "multipart/mixed"])
async def test_other_content_is_refused_by_name(kind: str) -> None:
    """Content that is neither JSON nor events is not read as either."""

    async def bad(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": []}), kind=kind)

    assert "WIRE-068" == await refused(bad)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"\xff", b'{"jsonrpc":"2.0","id":"another","result":{}}', b'{"jsonrpc":"2.0","method":"x/y"}'],
)
async def test_an_answer_to_something_else_fails_the_request_at_once(body: bytes) -> None:
    """A request whose answer never comes does not wait for its deadline."""

    async def bad(_: Request, writer: Writer) -> None:
        reply(writer, body)

    began = asyncio.get_running_loop().time()
    number = await refused(bad)

    assert number.startswith("WIRE-0")
    assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        (("Content-Length: 5", "Content-Length: 6"), "WIRE-064"),
        (("Transfer-Encoding: gzip",), "WIRE-064"),
        (("Content-Type: text/event-stream",), "WIRE-064"),
        (("Mcp-Session-Id: a", "Mcp-Session-Id: b"), "WIRE-064"),
        (("X-A: a\r\n b",), ""),
    ],
)
async def test_answers_that_two_readers_read_differently(fields: tuple[str, ...], number: str) -> None:
    """Two lengths, an unknown coding or a field that stands twice end the connection."""

    async def bad(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": []}), *fields)

    async with serving(polite(bad)) as server:
        outcome, _ = await attempt(server)
    assert number == getattr(outcome, "id", "")


# --- redirects --------------------------------------------------------------------------------------------------------
def redirect(location: str, status: str = "307 Temporary Redirect") -> Answer:
    """Return an answer that sends somewhere else."""

    async def bad(_: Request, writer: Writer) -> None:
        reply(writer, b"", f"Location: {location}", status=status)

    return bad


@pytest.mark.claim("P-EGR-34")
@pytest.mark.parametrize(
    ("location", "number"),
    [
        ("http://169.254.169.254/latest/meta-data/", "EGR-060"),
        ("http://[::ffff:169.254.169.254]/", "EGR-060"),
        ("http://127.0.0.1:2375/", "EGR-060"),
        ("http://evil.test/", "EGR-060"),
        ("https://evil.test/", "EGR-060"),
        ("file:///etc/passwd", "WIRE-062"),
        ("http://user:pw@evil.test/", "WIRE-062"),
        ("http://0x7f.1/", "WIRE-062"),
        ("http://evil.test\\@x/", "WIRE-062"),
        ("//evil.test/", "EGR-060"),
        ("/loop", "WIRE-066"),
        ("", "WIRE-066"),
    ],
)
async def test_redirects_are_checked_like_addresses(location: str, number: str) -> None:
    """A redirect to where no rule leads is refused before anything is dialled, and recorded."""
    recorder = MemoryRecorder()
    bad = redirect(location)

    async def everywhere(request: Request, writer: Writer) -> None:
        await bad(request, writer)

    async with serving(polite(everywhere)) as server:
        outcome, _ = await attempt(server, recorder)

    assert isinstance(outcome, SandboxError)
    assert number == outcome.id
    dialled = {fact.attrs["host"] for fact in recorder.named("egress.connect") if fact.phase == "intent"}
    assert {ADDRESS} == dialled
    if number == "EGR-060":
        denied = [fact.attrs for fact in recorder.named("egress.connect") if fact.attrs["decision"] == "deny"]
        assert [number] == [attrs["reason"] for attrs in denied]


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "303 See Other"])
async def test_a_post_is_never_turned_into_a_get(status: str) -> None:
    """A redirect that changes the method is refused."""
    assert "WIRE-066" == await refused(redirect("/other", status))


@pytest.mark.claim("P-EGR-35")
async def test_credentials_stay_with_their_origin() -> None:
    """A redirect to another allowed origin is followed without the credentials and the session."""

    async def elsewhere(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": []}))

    async with serving(elsewhere) as other:
        bad = redirect(f"http://{ADDRESS}:{other.port}/there")
        async with serving(polite(bad, "Mcp-Session-Id: session-1")) as server:
            outcome, _ = await attempt(server, more=(f"http://{ADDRESS}:{other.port}",))

    assert {"content": []} == outcome
    call = server.requests[-1]
    assert (f"Bearer {SECRET}", "session-1") == (call["authorization"], call["mcp-session-id"])
    assert ["/there"] == [request["path"] for request in other.requests]
    assert not {"authorization", "mcp-session-id"} & set(other.requests[0])


# --- addresses ------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-EGR-34")
@pytest.mark.parametrize(
    ("answers", "number"),
    [
        (["169.254.169.254"], "EGR-113"),
        (["127.0.0.1"], "EGR-113"),
        (["::1"], "EGR-113"),
        (["::ffff:169.254.169.254"], "EGR-113"),
        (["10.0.0.1"], "EGR-113"),
        (["10.0.0.1", "127.0.0.1", ADDRESS], ""),
    ],
)
async def test_only_checked_addresses_are_dialled(answers: list[str], number: str) -> None:
    """Of mixed answers only the public ones are dialled; a name that gives none is refused."""

    async def good(request: Request, writer: Writer) -> None:
        reply(writer, result(request, HELLO))

    asked: list[str] = []

    async def resolve(name: str, _: int) -> list[str]:
        asked.append(name)
        return answers if len(asked) == 1 else ["169.254.169.254"]

    recorder = MemoryRecorder()
    async with serving(good) as server:
        url = f"http://mcp.test:{server.port}/"
        plan = plan_of(url, f"http://mcp.test:{server.port}", unsafe=("unsafe_plain_http:mcp.test",))
        dialer = Dialer(plan.network, frozenset({"mcp.test"}), (), Scope(recorder, Trace.new()), resolve)
        found = ""
        try:
            (await dialer.open(target_of(url))).close()
        except SandboxError as error:
            found = error.id

    assert number == found

    assert ["mcp.test"] == asked, "a name is resolved once for each connection: there is nothing to rebind"
    outcome = recorder.named("egress.connect")[-1]
    assert ("outcome", ADDRESS if not number else None) == (outcome.phase, outcome.attrs.get("address"))


# --- sessions and streams -------------------------------------------------------------------------------------------
async def test_a_session_cannot_be_fixed_or_swapped() -> None:
    """A session that is named after the opening, or another one, ends the connection and is never sent."""

    async def swap(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": []}), "Mcp-Session-Id: victim")

    for fields in ((), ("Mcp-Session-Id: mine",)):
        async with serving(polite(swap, *fields)) as server:
            outcome, peer = await attempt(server)
        assert isinstance(outcome, SandboxError)
        assert "WIRE-070" == outcome.id
        assert peer is not None
        assert peer.fault is not None
        assert "victim" not in {request.get("mcp-session-id") for request in server.requests}


@pytest.mark.parametrize("session", ["a b", "ä", "x" * 2000])
async def test_a_malformed_session_is_refused(session: str) -> None:
    """What cannot stand in a header field is no session."""

    async def good(request: Request, writer: Writer) -> None:
        reply(writer, result(request, {"content": []}))

    async with serving(polite(good, f"Mcp-Session-Id: {session}")) as server:
        outcome, _ = await attempt(server)

    assert isinstance(outcome, SandboxError)
    assert "WIRE-070" == outcome.id


async def test_a_lost_session_says_so() -> None:
    """Status 404 in a session is its end, not a missing tool."""

    async def gone(_: Request, writer: Writer) -> None:
        reply(writer, b"", status="404 Not Found")

    assert "WIRE-071" == await refused(gone, "Mcp-Session-Id: mine")


@pytest.mark.parametrize(("status", "number"), [("401 Unauthorized", "WIRE-069"), ("403 Forbidden", "WIRE-069")])
async def test_refused_credentials_say_so(status: str, number: str) -> None:
    """The message names the header's place and not its value."""

    async def bad(_: Request, writer: Writer) -> None:
        reply(writer, SECRET.encode(), status=status, kind="text/plain")

    assert number == await refused(bad)


async def test_an_error_status_is_an_answer() -> None:
    """A server that is overloaded fails one request, not the session."""

    async def busy(_: Request, writer: Writer) -> None:
        reply(writer, b"<html>", status="503 Service Unavailable", kind="text/html")

    async with serving(polite(busy)) as server:
        outcome, peer = await attempt(server)

    assert isinstance(outcome, RemoteError)
    assert 503 == outcome.code
    assert peer is not None


async def test_a_broken_stream_is_resumed_where_it_broke() -> None:
    """After a break the answer is fetched from the last event id on, exactly once."""

    async def torn(request: Request, writer: Writer) -> None:
        torn.id = request["json"]["id"]  # type: ignore[attr-defined]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 7\nretry: 1\ndata:\n\ndata: {")
        await writer.drain()
        writer.close()

    base = polite(torn)

    async def answer(request: Request, writer: Writer) -> None:
        if request["method"] == "GET" and request.get("last-event-id") == "7":
            event = json.dumps({"jsonrpc": "2.0", "id": torn.id, "result": {}})  # type: ignore[attr-defined]
            reply(writer, f"id: 8\ndata: {event}\n\n".encode(), kind="text/event-stream")
        else:
            await base(request, writer)

    async with serving(answer) as server:
        outcome, _ = await attempt(server)

    assert {} == outcome


@pytest.mark.parametrize("ids", [b"id: " + b"x" * (MAX_EVENT_ID + 1), "id: é".encode(), b"id: a\0b"])
async def test_event_ids_cannot_reach_a_header(ids: bytes) -> None:
    """An id that is too long or not visible ASCII is never sent back."""

    async def bad(_: Request, writer: Writer) -> None:
        reply(writer, ids + b"\ndata:\n\n", kind="text/event-stream")

    async with serving(polite(bad)) as server:
        outcome, _ = await attempt(server)

    assert isinstance(outcome, SandboxError)
    assert not any("last-event-id" in request for request in server.requests)


async def test_resuming_without_progress_ends() -> None:
    """A stream that always breaks at the same event is given up after a bounded number of attempts."""

    async def torn(_: Request, writer: Writer) -> None:
        reply(writer, b"id: 7\nretry: 0\ndata:\n\n", kind="text/event-stream")

    base = polite(torn)

    async def answer(request: Request, writer: Writer) -> None:
        await (torn if request.get("last-event-id") else base)(request, writer)

    async with serving(answer) as server:
        outcome, _ = await attempt(server)
        resumed = [request for request in server.requests if "last-event-id" in request]

    assert isinstance(outcome, SandboxError)
    assert len(resumed) <= MAX_STREAM_RETRIES


async def test_the_address_of_the_older_transport_stays_at_its_origin() -> None:
    """HTTP+SSE: a server that names another origin to send to gets nothing sent there."""

    async def evil(request: Request, writer: Writer) -> None:
        if request["method"] == "GET":
            body = f"event: endpoint\ndata: http://{ADDRESS}:1/steal\n\n".encode()
            reply(writer, body, kind="text/event-stream")

    async with serving(evil) as server:
        url = f"http://{ADDRESS}:{server.port}/sse"
        scope = Scope(MemoryRecorder(), Trace.new())
        rules = (f"http://{ADDRESS}:{server.port}", f"http://{ADDRESS}:1")
        plan = plan_of(url, *rules, transport="sse", unsafe=(f"unsafe_plain_http:{ADDRESS}",))
        channel = open_remote(plan, {}, scope)
        with pytest.raises(SandboxError) as caught:
            await ServerPeer.connect(
                channel, client_info={"name": "t", "version": "1"}, capabilities={}, scope=scope, timeout=5
            )
        await channel.wait_closed()

    assert "WIRE-072" == caught.value.id
    assert ["GET"] == [request["method"] for request in server.requests]
