"""Clients that sign in with a key: whom its pin names, and that every other certificate is nobody's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandbox.cli.gateway.config import TlsConfig
from sandbox.cli.gateway.tls import tls_of
from sandbox.events import Scope, Trace
from sandbox.serve.identity.certificates import PIN, PinnedClient, certificate_of, is_pin, read_certificate
from sandbox.serve.identity.introspection import IntrospectingVerifier
from sandbox.serve.identity.model import Identity, Unauthorized
from sandbox.tenant import TenantContext, TenantId
from sandbox.testing.memory import MemoryRecorder
from tests.dialect_lab import CLOSED as DIALECT_CLOSED
from tests.dialect_lab import dialect_lab, shake
from tests.gateway_lab import EVENTS, SECRET, Lab, call, lab, modern, request
from tests.tls_kit import Authority, Holder, authority, holder, trusting

pytestmark = pytest.mark.anyio
CLOSED = "/mcp/closed"
LIST, LIST_HEADERS = modern("tools/list")


def own_tls(files: Authority, *, asks: bool = True) -> ssl.SSLContext:
    """Return what a gateway of a test speaks TLS with."""
    scope = Scope(MemoryRecorder(), Trace.new())
    return tls_of(TlsConfig(str(files.cert), str(files.key)), scope, asks=asks)


@contextlib.asynccontextmanager
async def with_keys(folder: Path, *clients: tuple[Holder, PinnedClient], **more: Any) -> AsyncIterator[Lab]:
    """Open a gateway that knows clients by their keys."""
    files = authority(folder, "127.0.0.1")
    pinned = {one.pin: whom for one, whom in clients}
    async with lab(tls=own_tls(files), clients=pinned, trust=trusting(files), **more) as stage:
        stage.files = files  # type: ignore[attr-defined]
        yield stage


async def ask(stage: Lab, client: Holder | None, body: Any, path: str = CLOSED, **headers: str) -> httpx2.Response:
    """Send one message over a connection of its own, with a certificate or without."""
    sent = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    shown = trusting(stage.files, client)  # type: ignore[attr-defined]
    async with httpx2.AsyncClient(timeout=20, trust_env=False, verify=shown) as made:
        return await made.post(stage.url + path, json=body, headers=sent)


@pytest.mark.claim("P-GATE-10")
async def test_a_pinned_key_is_its_client_and_every_other_certificate_is_nobody(tmp_path: Path) -> None:
    """Refused with 401, recorded and unread: no certificate, another key of the same name, and one out of its time."""
    acme = holder(tmp_path, "acme")
    old = holder(tmp_path, "old", days=(-9, -1))
    early = holder(tmp_path, "early", days=(1, 9))
    (tmp_path / "false").mkdir()
    namesake = holder(tmp_path / "false", "acme")
    known = [(one, PinnedClient("acme", "robot")) for one in (acme, old, early)]
    async with with_keys(tmp_path, *known) as stage:
        refused = [await ask(stage, one, LIST, **LIST_HEADERS) for one in (None, namesake, old, early)]
        starts, reasons = stage.server.starts, stage.reasons()
        listed = await ask(stage, acme, LIST, **LIST_HEADERS)
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
        called = await ask(stage, acme, body, **headers)
        opened = await ask(stage, acme, request("initialize", INITIALIZE))

    assert [401] * 4 == [answer.status_code for answer in refused]
    assert ["GATE-020", "GATE-070", "GATE-073", "GATE-073"] == reasons
    assert not [answer for answer in refused if SECRET in answer.text or '"tool"' in answer.text]
    assert 0 == starts
    assert [200, 200, 200] == [listed.status_code, called.status_code, opened.status_code]
    assert SECRET in called.text


SPKI = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def test_a_renewed_certificate_of_the_same_key_goes_on_with_its_session(tmp_path: Path) -> None:
    """The key is pinned, not the certificate; and nobody else's key continues the session."""
    first = holder(tmp_path, "first")
    renewed = holder(tmp_path, "renewed", private=first.private)
    other = holder(tmp_path, "other")
    whom = PinnedClient("acme")
    async with with_keys(tmp_path, (first, whom), (other, whom)) as stage:
        opened = await ask(stage, first, request("initialize", INITIALIZE))
        own = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": "2025-11-25"}
        again = await ask(stage, renewed, call(2), **own)
        stolen = await ask(stage, other, call(3), **own)
        token = f"Bearer {stage.token(tenant='acme')}"
        with_token = await ask(stage, first, call(4), authorization=token, **own)

    assert [200, 404, 404] == [again.status_code, stolen.status_code, with_token.status_code]
    assert ["GATE-017", "GATE-017"] == stage.reasons()
    assert 1 == len(stage.server.calls)


async def test_a_certificate_that_cannot_be_read_is_nobodys_and_breaks_nothing(tmp_path: Path) -> None:
    """OpenSSL takes more than a strict reader: a spoilt certificate of a pinned key gets its 401 like a stranger's."""
    own, statuses = holder(tmp_path, "own"), []
    der = ssl.PEM_cert_to_DER_cert(own.cert.read_text())
    public = own.private.public_key().public_bytes(*SPKI)
    places = [at for at in range(der.index(public)) if der[at] in (0x02, 0x0C, 0x13, 0x17)]
    async with with_keys(tmp_path, (own, PinnedClient("acme"))) as stage:
        for at in places:
            spoilt = der[: at + 2] + bytes((der[at + 2] ^ 0x80,)) + der[at + 3 :]
            own.cert.write_text(ssl.DER_cert_to_PEM_cert(spoilt))
            with contextlib.suppress(ssl.SSLError, httpx2.TransportError):
                statuses.append((await ask(stage, own, LIST, **LIST_HEADERS)).status_code)
        own.cert.write_text(ssl.DER_cert_to_PEM_cert(der))
        after = await ask(stage, own, LIST, **LIST_HEADERS)

    assert 200 == after.status_code
    assert 401 in statuses
    assert set(statuses) <= {200, 401}


async def test_a_pinned_client_needs_the_scopes_of_an_endpoint(tmp_path: Path) -> None:
    """403 says which; with them the same key comes in."""
    poor, rich = holder(tmp_path, "poor"), holder(tmp_path, "rich")
    known = ((poor, PinnedClient("a")), (rich, PinnedClient("b", scopes=frozenset(("files:read",)))))
    async with with_keys(tmp_path, *known, scopes=("files:read",)) as stage:
        refused = await ask(stage, poor, LIST, **LIST_HEADERS)
        listed = await ask(stage, rich, LIST, **LIST_HEADERS)

    assert [403, 200] == [refused.status_code, listed.status_code]
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    assert 'scope="files:read"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize(
    "private",
    [ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(public_exponent=65537, key_size=2048)],
    ids=["ed25519", "rsa"],
)
async def test_keys_of_every_usual_kind_can_be_pinned(private: Any, tmp_path: Path) -> None:
    """Not only those of the curve that the other tests use."""
    own = holder(tmp_path, "own", private=private)
    async with with_keys(tmp_path, (own, PinnedClient("acme"))) as stage:
        assert 200 == (await ask(stage, own, LIST, **LIST_HEADERS)).status_code


async def test_a_pinned_key_is_its_client_over_websocket_too(tmp_path: Path) -> None:
    """What TLS knows of the peer goes with the connection when it becomes a WebSocket; other keys get none."""
    acme, other, files = holder(tmp_path, "acme"), holder(tmp_path, "other"), authority(tmp_path, "127.0.0.1")
    known = {acme.pin: PinnedClient("acme")}
    async with dialect_lab(tmp_path / "jobs", tls=own_tls(files), clients=known, trust=trusting(files)) as stage:
        url = stage.stage.url.replace("https", "wss") + DIALECT_CLOSED + "/ws"
        with pytest.raises(InvalidStatus, match="401"):
            await connect(url, ssl=trusting(files, other), proxy=None)
        async with connect(url, ssl=trusting(files, acme), proxy=None) as socket:
            await socket.send(json.dumps(shake("ws")))
            agreed = json.loads(await asyncio.wait_for(socket.recv(), 15))

    assert "session" in agreed


@pytest.mark.claim("P-GATE-11")
async def test_a_bound_token_is_of_no_use_without_its_certificate(tmp_path: Path) -> None:
    """RFC 8705: stolen, it opens nothing over another connection; bound in a way unknown here, nothing at all."""
    own, thief = holder(tmp_path, "own"), holder(tmp_path, "thief")
    async with with_keys(tmp_path, (thief, PinnedClient("evil"))) as stage:
        bound = stage.token(cnf={"x5t#S256": own.thumbprint})
        odd = [{"jkt": "x"}, {}, "x", {"x5t#S256": 1}, {"x5t#S256": own.thumbprint, "jkt": "x"}]
        attempts = [(None, bound), (thief, bound), *((own, stage.token(cnf=one)) for one in odd)]
        refused = [
            await ask(stage, client, LIST, **LIST_HEADERS, authorization=f"Bearer {token}")
            for client, token in attempts
        ]
        reasons = stage.reasons()
        used = await ask(stage, own, LIST, **LIST_HEADERS, authorization=f"Bearer {bound}")
        free = await ask(stage, None, LIST, **LIST_HEADERS, authorization=f"Bearer {stage.token()}")
        metadata = await stage.client.get(f"{stage.url}/.well-known/oauth-protected-resource{CLOSED}")

    assert [401] * 7 == [answer.status_code for answer in refused]
    assert ["GATE-071"] * 2 + ["GATE-072"] * 5 == reasons
    assert not [answer for answer in refused if SECRET in answer.text]
    assert [200, 200] == [used.status_code, free.status_code]
    assert metadata.json()["tls_client_certificate_bound_access_tokens"] is True


async def test_what_an_issuer_says_of_the_certificate_binds_too(tmp_path: Path) -> None:
    """The answer of introspection may bind a token (RFC 8705 §3.2); two certificates for one token hold never."""
    own, other = holder(tmp_path, "own"), holder(tmp_path, "other")

    class Held:
        async def verify(self, token: str, _audiences: frozenset[str]) -> Identity:
            bound = token if token != "free" else ""
            return Identity(TenantContext(TenantId("acme"), claims={"iss": "i"}), bound=bound)

    async def said(_token: str) -> Any:
        return {"active": True, "cnf": {"x5t#S256": own.thumbprint}}

    verifier = IntrospectingVerifier(Held(), {"i": said}, lambda: 0.0)
    bound = [(await verifier.verify(token, frozenset())).bound for token in ("free", own.thumbprint)]
    with pytest.raises(Unauthorized, match="GATE-072"):
        await verifier.verify(other.thumbprint, frozenset())

    assert [own.thumbprint, own.thumbprint] == bound


@given(st.one_of(st.text(max_size=60), st.binary(min_size=30, max_size=34).map(lambda raw: PIN + _base64(raw))))
def test_a_pin_has_one_spelling(text: str) -> None:
    """What counts as a pin is 32 bytes in canonical Base64: two entries are never one key in two spellings."""
    import base64

    if is_pin(text):
        raw = base64.b64decode(text.removeprefix(PIN))
        assert 32 == len(raw)
        assert text == PIN + _base64(raw)


def _base64(raw: bytes) -> str:
    import base64

    return base64.b64encode(raw).decode()


def test_a_huge_certificate_is_not_kept(tmp_path: Path) -> None:
    """A stranger's certificate of a hundred kilobytes is nobody's, and takes no room in memory."""
    pem = holder(tmp_path, "x").cert.read_text()
    before = read_certificate.cache_info().currsize

    assert certificate_of({"extensions": {"tls": {"client_cert_chain": [pem + " " * 100_000]}}}) is None
    assert before == read_certificate.cache_info().currsize
    assert certificate_of({"extensions": {"tls": {"client_cert_chain": [pem]}}}) is not None


@given(st.text())
def test_what_is_no_certificate_identifies_nobody(text: str) -> None:
    """Whatever bytes come, the answer is nobody, not an error."""
    assert read_certificate(text) is None
    assert certificate_of({"extensions": {"tls": {"client_cert_chain": [text]}}}) is None
    assert certificate_of({"extensions": {}}) is None
