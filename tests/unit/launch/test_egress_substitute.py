"""Substitution without an engine: where values are put in, where placeholders end a connection, and whole TLS flows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import PlanRefused
from sandbox.launch.egress import substitution
from sandbox.launch.egress.inside import reasons, terminate
from sandbox.launch.egress.inside.bounds import MAX_BODY
from sandbox.launch.egress.inside.reasons import Denied
from sandbox.launch.egress.inside.replacing import Mirror, Replacer, Substitutes
from sandbox.launch.egress.inside.requests import Gate
from sandbox.launch.egress.inside.rewriting import RewritingGate
from sandbox.plan.model import NetworkPlan, Substitute
from sandbox.policy.hosts import parse_rules
from sandbox.testing.plans import baseline_plan
from tests.tls_kit import authority

HOST = "intended.test"
OTHER = "other.test"
VALUE = 'k"y/+ 100% & more'
SECOND = "another-secret-value"


def prepared(ca: str) -> substitution.Substitution:
    """Return what two secrets for two hosts are substituted with."""
    plan = baseline_plan(
        network=NetworkPlan("broker", parse_rules([HOST, OTHER])),
        seccomp="net",
        authorities=(ca,),
        substitutes=(Substitute("one", (HOST,)), Substitute("two", (OTHER,))),
    )
    return substitution.prepare(plan, {"one": VALUE, "two": SECOND})


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The authority and certificate of the pretended real server."""
    return authority(tmp_path_factory.mktemp("pki"), HOST)


@pytest.fixture(scope="module")
def made(pki: Any) -> substitution.Substitution:
    """What is substituted."""
    return prepared(str(pki.bundle))


@pytest.fixture(scope="module")
def substitutes(made: substitution.Substitution) -> Substitutes:
    """What the broker makes of it, over the wire."""
    found = Substitutes.of(json.loads(json.dumps(made.message())))
    assert found is not None
    return found


def gate(substitutes: Substitutes) -> RewritingGate:
    """Return the gate of a connection to the intended host."""
    return RewritingGate(HOST, 443, Replacer(substitutes, HOST))


def request(line: str, *fields: str, body: bytes = b"") -> bytes:
    """Return a request to the intended host."""
    sized = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {HOST}", *fields, *sized]).encode() + b"\r\n\r\n" + body


# --- where values are put in ----------------------------------------------------------------------------------------
def test_a_header_gets_the_value_as_it_is(made: substitution.Substitution, substitutes: Substitutes) -> None:
    """In a field the value stands as it is; what comes back is asked for without compression."""
    token = made.placeholders["one"]
    sent = gate(substitutes).feed(request("GET /x", f"Authorization: Bearer {token}", "Accept-Encoding: gzip, br"))

    assert f"Authorization: Bearer {VALUE}\r\n".encode() in sent
    assert b"Accept-Encoding: identity\r\n" in sent
    assert b"gzip" not in sent


def test_basic_credentials_are_opened(made: substitution.Substitution, substitutes: Substitutes) -> None:
    """Programs such as git encode name and password; the placeholder is found inside."""
    token = base64.b64encode(f"me:{made.placeholders['one']}".encode()).decode()
    sent = gate(substitutes).feed(request("GET /x", f"Authorization: Basic {token}"))

    assert f"Basic {base64.b64encode(f'me:{VALUE}'.encode()).decode()}".encode() in sent


def test_a_query_is_encoded(made: substitution.Substitution, substitutes: Substitutes) -> None:
    """In a query the value cannot end its own parameter."""
    sent = gate(substitutes).feed(request(f"GET /x?key={made.placeholders['one']}&b=1"))

    assert b"GET /x?key=k%22y%2F%2B%20100%25%20%26%20more&b=1 HTTP/1.1\r\n" in sent


@pytest.mark.parametrize(
    ("kind", "template", "expected"),
    [
        ("application/json", '{"key":"%s"}', json.dumps({"key": VALUE}, separators=(",", ":"))),
        ("application/vnd.api+json; charset=utf-8", '{"key":"%s"}', json.dumps({"key": VALUE}, separators=(",", ":"))),
        ("application/x-www-form-urlencoded", "key=%s&b=1", "key=k%22y%2F%2B%20100%25%20%26%20more&b=1"),
        ("text/plain", "<%s>", f"<{VALUE}>"),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_gets_the_value_in_its_own_writing(
    made: substitution.Substitution, substitutes: Substitutes, kind: str, template: str, expected: str, chunked: bool
) -> None:
    """JSON is escaped, a form is encoded, and the length is that of what is sent."""
    body = (template % made.placeholders["one"]).encode()
    if chunked:
        head = request("POST /x", f"Content-Type: {kind}", "Transfer-Encoding: chunked")
        sent = gate(substitutes).feed(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert b"%x\r\n%s\r\n0\r\n\r\n" % (len(expected), expected.encode()) in sent
    else:
        sent = gate(substitutes).feed(request("POST /x", f"Content-Type: {kind}", body=body))
        assert sent.endswith(b"\r\n\r\n" + expected.encode())
        assert f"Content-Length: {len(expected)}\r\n".encode() in sent


def test_kept_alive_connections_get_every_value(made: substitution.Substitution, substitutes: Substitutes) -> None:
    """Requests one after another, and in one packet, are each rewritten."""
    one = request("GET /a", f"X-Key: {made.placeholders['one']}")
    two = request("POST /b", "Content-Type: text/plain", body=made.placeholders["one"].encode())
    sent = gate(substitutes).feed(one + two + one)

    assert 3 == sent.count(VALUE.encode())
    assert b"mcpsub_" not in sent


@given(st.data())
def test_how_the_network_cuts_changes_nothing(data: st.DataObject) -> None:
    """Whole and in pieces a request becomes the same bytes."""
    substitutes = Substitutes(
        {HOST: {b"mcpsub_" + b"a" * 32: VALUE.encode()}}, frozenset([b"mcpsub_" + b"a" * 32]), {}, ""
    )
    whole = request("POST /x?k=mcpsub_" + "a" * 32, "Content-Type: text/plain", body=b"<mcpsub_" + b"a" * 32 + b">")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a != b]
    one, many = gate(substitutes), gate(substitutes)

    assert one.feed(whole) == b"".join(many.feed(piece) for piece in pieces)


def test_a_client_that_waits_is_told_to_go_on(substitutes: Substitutes) -> None:
    """The server is told of the request only with its body, so the client must not wait for the server's word."""
    made = gate(substitutes)
    head = request("POST /x", "Expect: 100-continue", "Content-Length: 2", "Content-Type: text/plain")

    assert b"" == made.feed(head)
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == made.interim()
    assert b"" == made.interim()
    sent = made.feed(b"ok")
    assert sent.endswith(b"\r\n\r\nok")
    assert b"xpect" not in sent


# --- where placeholders end a connection ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "build",
    [
        lambda t: request("GET /x", f"X-Key: {t}"),
        lambda t: request(f"GET /x?k={t}"),
        lambda t: request("POST /x", "Content-Type: text/plain", body=t.encode()),
        lambda t: request("GET /x", f"Authorization: Basic {base64.b64encode(f'a:{t}'.encode()).decode()}"),
    ],
)
def test_a_secret_of_another_host_is_refused(
    made: substitution.Substitution, substitutes: Substitutes, build: Callable[[str], bytes]
) -> None:
    """A placeholder on its way to a host that its secret is not for ends the connection with nothing sent."""
    with pytest.raises(Denied) as caught:
        gate(substitutes).feed(build(made.placeholders["two"]))

    assert reasons.PLACEHOLDER == caught.value.reason


@pytest.mark.parametrize(
    "build",
    [
        lambda t: request(f"GET /{t}/x"),
        lambda t: request(f"{t} /x"),
        lambda t: request("GET /x", f"{t}: x"),
        lambda t: request("POST /x", f"Content-Length: {MAX_BODY + 100}") + b"x" * MAX_BODY + t.encode(),
        lambda t: (
            request("POST /x", "Transfer-Encoding: chunked")
            + b"%x\r\n%s\r\n" % (MAX_BODY, b"x" * MAX_BODY)
            + b"%x\r\n%s\r\n" % (60, b"y" * 21 + t.encode())
        ),
    ],
)
def test_places_where_nothing_is_put_in(
    made: substitution.Substitution, substitutes: Substitutes, build: Callable[[str], bytes]
) -> None:
    """A path, the name of a field and a body beyond the bound end the connection rather than carry a placeholder on."""
    with pytest.raises(Denied) as caught:
        gate(substitutes).feed(build(made.placeholders["one"]))

    assert reasons.PLACEHOLDER == caught.value.reason


def test_a_long_body_goes_on_unchanged(substitutes: Substitutes) -> None:
    """Uploads beyond the bound are not kept."""
    made = gate(substitutes)
    sent = made.feed(request("PUT /x", f"Content-Length: {2 * MAX_BODY}"))
    sent += b"".join(made.feed(b"x" * 65536) for _ in range(2 * MAX_BODY // 65536))

    assert sent.endswith(b"\r\n\r\n" + b"x" * 2 * MAX_BODY)


def test_a_plain_gate_stops_placeholders(made: substitution.Substitution, substitutes: Substitutes) -> None:
    """Plain HTTP to any host: a placeholder ends the connection, also in two pieces."""
    seen = b""

    def guard(data: bytes) -> bool:
        nonlocal seen
        seen += data
        return not substitutes.on_its_way(seen)

    plain = Gate(HOST, 80, guard)
    data = request("GET /x", f"X-Key: {made.placeholders['one']}")
    half = len(data) - 20
    plain.feed(data[:half])
    with pytest.raises(Denied) as caught:
        plain.feed(data[half:])

    assert reasons.PLACEHOLDER == caught.value.reason


# --- what comes back ------------------------------------------------------------------------------------------------
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_the_mirror_loses_nothing(data: bytes, sizes: list[int]) -> None:
    """Whatever holds no value comes through whole, however it is cut."""
    mirror = Mirror({b"p": b"secret-value"})
    out, at = b"", 0
    for size in [*sizes, len(data)]:
        out += mirror.feed(data[at : at + size])
        at += size

    assert data == out + mirror.rest()


@given(st.integers(0, 30), st.integers(1, 12))
def test_the_mirror_lets_no_value_through(before: int, step: int) -> None:
    """A value that comes back ends the connection, and no byte of it is passed on before."""
    value = b"secret-value-x"
    data = b"." * before + value
    mirror, out = Mirror({b"p": value}), bytearray()

    def read() -> None:
        for at in range(0, len(data), step):
            out.extend(mirror.feed(data[at : at + step]))

    with pytest.raises(Denied) as caught:
        read()

    assert reasons.REFLECTED == caught.value.reason
    assert set(out) <= set(b".")


def test_silence_ends_the_holding_and_not_the_memory() -> None:
    """What is held back goes on when nothing follows; a value whose rest follows later is still known."""
    mirror = Mirror({b"p": b"secret-value"})

    assert b"ok " == mirror.feed(b"ok secret")
    assert mirror.holding
    assert b"secret" == mirror.rest()
    assert b"" == mirror.rest()
    with pytest.raises(Denied):
        mirror.feed(b"-value")


@pytest.mark.parametrize("form", [VALUE, "k%22y%2F%2B%20100%25%20%26%20more", json.dumps(VALUE)[1:-1]])
def test_the_mirror_knows_other_writings(form: str) -> None:
    """Encoded and escaped values are known as well."""
    with pytest.raises(Denied):
        Mirror({b"p": VALUE.encode()}).feed(f"...{form}...".encode())


# --- values that cannot be put in -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "value", ["short", "two\nlines-of-it", "schlüssel-wort", " padded-value ", "x" * 9000, "nul\0-value"]
)
def test_unusable_values_are_refused(pki: Any, value: str) -> None:
    """What a header cannot carry, or what could stand in an answer by chance, is refused before anything starts."""
    plan = baseline_plan(
        network=NetworkPlan("broker", parse_rules([HOST])),
        seccomp="net",
        authorities=(str(pki.bundle),),
        substitutes=(Substitute("one", (HOST,)),),
    )
    with pytest.raises(PlanRefused) as caught:
        substitution.prepare(plan, {"one": value})

    assert "SEC-012" == caught.value.id
    assert value not in str(caught.value)


def test_placeholders_are_new_each_time(pki: Any) -> None:
    """Nobody outside of the sandbox can know one."""
    found = [prepared(str(pki.bundle)).placeholders["one"] for _ in range(4)]

    assert 4 == len(set(found))
    assert VALUE not in repr(prepared(str(pki.bundle)))


# --- whole connections ----------------------------------------------------------------------------------------------
class Namespace:
    """What a flow needs of its namespace."""

    def __init__(self, substitutes: Substitutes) -> None:
        self.substitutes = substitutes

    def spend(self, _: int) -> bool:
        return True


class Flow:
    """The part of a flow that :mod:`terminate` needs."""

    def __init__(self, substitutes: Substitutes, client: socket.socket, server: socket.socket) -> None:
        self.host, self.client, self.server = Namespace(substitutes), client, server
        self.name, self.port = HOST, 443
        self.up = self.down = 0


@asynccontextmanager
async def between(
    substitutes: Substitutes, pki: Any, answer: bytes
) -> AsyncIterator[tuple[socket.socket, asyncio.Task[None], list[bytes]]]:
    """Put a broker's connection between a client's socket and a TLS server that answers everything alike."""
    seen: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.cert, pki.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            while True:
                seen.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    loop = asyncio.get_running_loop()
    outside = socket.socket()
    outside.setblocking(False)
    await loop.sock_connect(outside, server.sockets[0].getsockname())
    inside, client = socket.socketpair()
    inside.setblocking(False)
    client.setblocking(False)
    flow: Any = Flow(substitutes, inside, outside)

    async def carry() -> None:
        try:
            await terminate.carry(flow, b"")
        finally:
            inside.close()
            outside.close()

    task = asyncio.create_task(carry())
    try:
        yield client, task, seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client.close()
        server.close()


async def ask(
    client: socket.socket, trusted: str, data: bytes, protocols: list[str] | None = None
) -> tuple[bytes, str]:
    """Send a request over TLS and return the answer and the protocol that was agreed on."""
    context = ssl.create_default_context(cadata=trusted)
    context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await asyncio.open_connection(sock=client, ssl=context, server_hostname=HOST)
    writer.write(data)
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
        answer += await reader.readexactly(int(answer.rpartition(b": ")[2]))
        return answer, writer.get_extra_info("ssl_object").selected_alpn_protocol()
    finally:
        writer.transport.abort()


GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.anyio
async def test_a_whole_connection(made: substitution.Substitution, substitutes: Substitutes, pki: Any) -> None:
    """The client verifies the sandbox's authority, the broker the real one; the server gets the value by HTTP/1.1."""
    async with between(substitutes, pki, GOOD) as (client, _, seen):
        data = request("GET /", f"Authorization: Bearer {made.placeholders['one']}")
        answer, protocol = await ask(client, made.trusted.decode(), data)

    assert (GOOD, "http/1.1") == (answer, protocol)
    assert f"Authorization: Bearer {VALUE}".encode() in seen[0]


@pytest.mark.anyio
async def test_a_server_with_another_certificate_gets_nothing(
    made: substitution.Substitution, substitutes: Substitutes, tmp_path: Path
) -> None:
    """A real server that is not who it should be is told nothing, and the client is not answered."""
    async with between(substitutes, authority(tmp_path, HOST), GOOD) as (client, task, seen):
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await ask(client, made.trusted.decode(), request("GET /", f"X: {made.placeholders['one']}"))
        with pytest.raises(Denied) as caught:
            await task

    assert reasons.CERTIFICATE == caught.value.reason
    assert not seen


@pytest.mark.anyio
async def test_a_value_that_comes_back_stays_outside(
    made: substitution.Substitution, substitutes: Substitutes, pki: Any
) -> None:
    """A server that echoes the value ends the connection before the client has it."""
    echo = f"HTTP/1.1 200 OK\r\nContent-Length: {len(VALUE)}\r\n\r\n{VALUE}".encode()
    async with between(substitutes, pki, echo) as (client, task, _):
        try:
            answer, _ = await ask(client, made.trusted.decode(), request("GET /", f"X: {made.placeholders['one']}"))
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError) as error:
            answer = getattr(error, "partial", b"")
        with pytest.raises(Denied) as caught:
            await task

    assert VALUE.encode() not in answer
    assert reasons.REFLECTED == caught.value.reason


def test_the_authority_is_for_its_hosts_only(made: substitution.Substitution) -> None:
    """The certificate that the server trusts can vouch for the intended hosts and for nobody else."""
    from cryptography import x509

    begin = b"-----BEGIN CERTIFICATE-----"
    own = x509.load_pem_x509_certificate(begin + made.trusted.rpartition(begin)[2])
    limits = own.extensions.get_extension_for_class(x509.NameConstraints)

    assert "mcp-sandbox" in own.subject.rfc4514_string()
    assert limits.critical
    assert {HOST, OTHER} == {name.value for name in limits.value.permitted_subtrees or ()}
    assert b"PRIVATE" not in made.trusted
