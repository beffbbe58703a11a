"""An issuer or a key that goes from gateway.toml takes its sessions with it, and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.gateway.config import ClientConfig, GatewayConfig, IssuerConfig
from sandbox.cli.gateway.swapping import lost_credentials
from sandbox.serve.identity.model import Identity
from sandbox.tenant import TenantContext, TenantId
from tests.gateway_lab import V25, Issuing, request
from tests.reload_lab import ReloadLab, Session, reload_lab

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
INITIALIZE = {"protocolVersion": V25, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@contextlib.contextmanager
def published(issuing: Issuing) -> Iterator[str]:
    """Publish the metadata and keys of an issuer on loopback; yield its URL."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            described = {"issuer": own, "jwks_uri": f"{own}/keys"}
            found = {"/keys": issuing.jwks(), "/.well-known/oauth-authorization-server": described}.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {}).encode())

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def trusting(*urls: str, more: str = "") -> str:
    """Return the part of gateway.toml that trusts issuers."""
    return "".join(f'[[issuer]]\nurl = "{url}"\n{more}' for url in urls) + "[limits]\ndrain = 5.0\n"


async def signed_in(lab: ReloadLab, issuing: Issuing, url: str, user: str) -> Session:
    """Open a session of who holds a token of an issuer."""
    token = issuing.token(lab.url + "/mcp/one", iss=url, sub=user)
    headers = {"authorization": f"Bearer {token}"}
    opened = await lab.post("/mcp/one", request("initialize", INITIALIZE), **headers)
    assert 200 == opened.status_code, opened.text
    headers |= {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": V25}
    await lab.post("/mcp/one", {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
    return Session(lab, "/mcp/one", headers)


async def test_an_issuer_that_goes_takes_its_sessions_and_streams_with_it_and_nobody_elses(tmp_path: Path) -> None:
    """They end at the reload, not only when their token is shown again; trusted anew, the issuer brings none back."""
    going, staying = Issuing(), Issuing()
    with published(going) as gone_url, published(staying) as kept_url:
        async with reload_lab(tmp_path) as lab:
            lab.place.config(trusting(gone_url, kept_url), ("two",))
            await lab.reload()
            ours, theirs = await signed_in(lab, going, gone_url, "ann"), await signed_in(lab, staying, kept_url, "bob")
            nobody = await lab.session("/mcp/two")
            control = [(await one.ask("tools/list")).status_code for one in (ours, theirs, nobody)]
            async with ours.standing() as _heard, open_stream(lab, ours) as over:
                open_before = not over.is_set()
                lab.place.config(trusting(kept_url), ("two",))
                await lab.reload()
                await asyncio.wait_for(over.wait(), 60)
            left = len(lab.app.sessions)
            after = [(await one.ask("tools/list")).status_code for one in (ours, theirs, nobody)]
            lab.place.config(trusting(gone_url, kept_url), ("two",))
            await lab.reload()
            back = (await ours.ask("tools/list")).status_code
            anew = (await (await signed_in(lab, going, gone_url, "ann")).ask("tools/list")).status_code
            ended = [fact["sessions_ended"] for fact in lab.facts("gateway.reload", "outcome")]

    assert [200, 200, 200] == control
    assert open_before
    assert 2 == left
    assert [401, 200, 200] == after
    assert (404, 200) == (back, anew)
    assert [0, 1, 0] == ended


@contextlib.asynccontextmanager
async def open_stream(lab: ReloadLab, session: Session) -> Any:
    """Yield what is set when the session's own call, which waits for its server, has its response ended."""
    over = asyncio.Event()

    async def wait() -> None:
        with contextlib.suppress(Exception):
            await session.call(wait=True)
        over.set()

    waiting = asyncio.create_task(wait())
    async with asyncio.timeout(60):
        while not lab.programs.waiting:  # noqa: ASYNC110 - until the server has it
            await asyncio.sleep(0.01)
    try:
        yield over
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_an_issuer_that_counts_by_other_rules_is_another_one(tmp_path: Path) -> None:
    """Whose tokens name their tenant in another claim now signs in again: the session's tenant may not be theirs."""
    going, staying = Issuing(), Issuing()
    with published(going) as changed_url, published(staying) as kept_url:
        async with reload_lab(tmp_path) as lab:
            both = trusting(changed_url) + trusting(kept_url).replace("[limits]\ndrain = 5.0\n", "")
            lab.place.config(both, ("two",))
            await lab.reload()
            ours, theirs = (
                await signed_in(lab, going, changed_url, "ann"),
                await signed_in(lab, staying, kept_url, "bob"),
            )
            changed = trusting(changed_url, more='tenant-claim = "org"\n').replace("[limits]\ndrain = 5.0\n", "")
            lab.place.config(changed + trusting(kept_url), ("two",))
            await lab.reload()
            left = len(lab.app.sessions)
            after = [(await one.ask("tools/list")).status_code for one in (ours, theirs)]

    assert (1, [403, 200]) == (left, after)


ISSUER, OTHER = IssuerConfig(url="https://a.example"), IssuerConfig(url="https://b.example")
KEY, SPARE = ClientConfig(key="sha256:a", tenant="acme"), ClientConfig(key="sha256:b", tenant="acme")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((ISSUER, OTHER, KEY, SPARE), [False, False, False, False, False]),
        ((OTHER, KEY, SPARE), [True, False, False, False, True]),
        ((ISSUER, OTHER, SPARE), [False, False, True, False, True]),
        ((ISSUER, OTHER, ClientConfig(key="sha256:a", tenant="other"), SPARE), [False, False, True, False, True]),
        ((), [True] * 5),
    ],
    ids=["nothing", "an issuer", "a key", "a key's tenant", "everything"],
)
def test_whose_credential_counts_no_more(after: tuple[Any, ...], expected: list[bool]) -> None:
    """By issuer and by key; who signed in by something unknown is out with the first that goes."""

    def made(every: tuple[Any, ...]) -> GatewayConfig:
        issuers = tuple(one for one in every if isinstance(one, IssuerConfig))
        return GatewayConfig(issuer=issuers, client=tuple(one for one in every if isinstance(one, ClientConfig)))

    lost = lost_credentials(made((ISSUER, OTHER, KEY, SPARE)), made(after))
    callers = [
        ("token", {"iss": ISSUER.url}), ("token", {"iss": OTHER.url}), ("mtls", {"key": KEY.key}),
        ("mtls", {"key": SPARE.key}), ("another", {}),
    ]  # fmt: skip
    found = [lost(Identity(TenantContext(TenantId("acme"), "", claims, source))) for source, claims in callers]

    assert expected == found
