"""Who is kept out, with which status, and that strangers read nothing of any server."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import time
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization

from sandbox.serve.identity.introspection import IntrospectingVerifier
from sandbox.serve.ratelimit import Rate, parse_header
from tests.gateway_lab import EVENTS, ISSUER, SECRET, Lab, call, ec_key, lab, modern, request

pytestmark = pytest.mark.anyio
CLOSED = "/mcp/closed"


def forged(token: str, **head: Any) -> str:
    """Return a token whose header says something else, with the signature it had."""
    parts = token.split(".")
    decoded = {**json.loads(base64.urlsafe_b64decode(parts[0] + "==")), **head}
    parts[0] = base64.urlsafe_b64encode(json.dumps(decoded).encode()).decode().rstrip("=")
    return ".".join(parts)


def tokens(stage: Lab) -> dict[str, tuple[str, int, str]]:
    """Return what an attacker sends → the token, the status and the reason on record."""
    url, now = stage.url + CLOSED, int(time.time())
    public = json.dumps(stage.issuer.jwks()["keys"][0])
    public_key = stage.issuer.keys["one"].public_key()
    pem = public_key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    own = {"iss": ISSUER, "aud": url, "sub": "a", "tenant": "acme", "exp": now + 60}
    signed = _part({"alg": "HS256", "kid": "one"}) + "." + _part(own)
    confused = f"{signed}.{_hmac(pem, signed)}"
    good = stage.issuer.token(url)
    return {
        "nothing": ("", 401, "GATE-020"),
        "no token": ("nonsense", 401, "GATE-024"),
        "expired": (stage.issuer.token(url, exp=now - 60), 401, "GATE-028"),
        "not yet": (stage.issuer.token(url, nbf=now + 600), 401, "GATE-026"),
        "no end": (stage.issuer.token(url, exp=None), 401, "GATE-026"),
        "another audience": (stage.issuer.token("https://other.example/mcp"), 401, "GATE-029"),
        "another endpoint": (stage.issuer.token(stage.url + "/mcp/other"), 401, "GATE-029"),
        "no audience": (stage.issuer.token(None), 401, "GATE-026"),
        "another issuer": (stage.issuer.token(url, iss="https://evil.example"), 401, "GATE-025"),
        "alg none": (".".join((_part({"alg": "none"}), _part(own), "")), 401, "GATE-024"),
        "key confusion": (confused, 401, "GATE-024"),
        "symmetric with the JWK": (f"{signed}.{_hmac(public.encode(), signed)}", 401, "GATE-024"),
        "another key": (stage.issuer.token(url, key=_rsa()), 401, "GATE-026"),
        "another kind of key": (stage.issuer.token(url, key=ec_key(), alg="ES256"), 401, "GATE-026"),
        "unknown key": (stage.issuer.token(url, kid="nine", key=_rsa()), 401, "GATE-026"),
        "changed header": (forged(good, alg="PS256"), 401, "GATE-026"),
        "an ID token": (forged(good, typ="id+jwt"), 401, "GATE-024"),
        "critical extension": (forged(good, crit=["x"]), 401, "GATE-024"),
        "changed body": (_changed(good), 401, "GATE-026"),
        "no tenant": (stage.issuer.token(url, tenant=None), 403, "GATE-030"),
        "a tenant that hides": (stage.issuer.token(url, tenant="ac\u200bme"), 403, "GATE-030"),
        "the tenant of strangers": (stage.issuer.token(url, tenant="anonymous"), 403, "GATE-030"),
        "tenants": (stage.issuer.token(url, tenant=["acme"]), 403, "GATE-030"),
        "too long": (stage.issuer.token(url, more="x" * 9000), 401, "GATE-024"),
    }


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _hmac(key: bytes, text: str) -> str:
    import hashlib
    import hmac

    return base64.urlsafe_b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode().rstrip("=")


def _changed(token: str) -> str:
    head, body, tail = token.split(".")
    claims = {**json.loads(base64.urlsafe_b64decode(body + "==")), "tenant": "beta"}
    return ".".join((head, _part(claims), tail))


def _rsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.claim("P-GATE-01")
async def test_every_bad_credential_is_refused_recorded_and_reads_nothing() -> None:
    """Each attack gets its status and its record, 0 bytes of a server's text, and starts nothing."""
    async with lab() as stage:
        attempts = tokens(stage)
        answers = {}
        for name, (token, _, _) in attempts.items():
            body, headers = modern("tools/list")
            answers[name] = await stage.post(CLOSED, body, token, **headers)
        started = stage.server.starts
        recorded = stage.reasons()
        good = await stage.post(CLOSED, modern("tools/list")[0], stage.token(), **modern("tools/list")[1])

    assert {name: status for name, (_, status, _) in attempts.items()} == {n: a.status_code for n, a in answers.items()}
    assert [reason for _, _, reason in attempts.values()] == recorded
    assert not [name for name, answer in answers.items() if SECRET in answer.text or '"tool"' in answer.text]
    assert 0 == started
    assert 200 == good.status_code
    assert '"tool"' in good.text


async def test_a_refusal_says_where_to_sign_in_and_for_what() -> None:
    """RFC 9728 and RFC 6750: metadata, error and scopes; the metadata is there and names the resource."""
    async with lab(scopes=("files:read", "files:write")) as stage:
        nobody = await stage.post(CLOSED, request("ping"))
        poor = await stage.post(CLOSED, request("ping"), stage.token(scope="files:read"))
        enough = await stage.initialize(CLOSED, stage.token(scope="files:read files:write"))
        where = f"{stage.url}/.well-known/oauth-protected-resource{CLOSED}"
        described = (await stage.client.get(where)).json()

        assert f'resource_metadata="{where}"' in nobody.headers["www-authenticate"]
        assert "error=" not in nobody.headers["www-authenticate"]
        assert 403 == poor.status_code
        assert 'error="insufficient_scope"' in poor.headers["www-authenticate"]
        assert 'scope="files:read files:write"' in poor.headers["www-authenticate"]
        assert 200 == enough.status_code
        assert (stage.url + CLOSED, [ISSUER]) == (described["resource"], described["authorization_servers"])


@pytest.mark.claim("P-GATE-02")
async def test_a_session_is_of_no_use_with_another_credential() -> None:
    """Its id, stolen, opens nothing: not for another user, tenant, client, endpoint, nor without a credential."""
    async with lab() as stage:
        token = stage.token()
        headers = await stage.session(CLOSED, token)
        others = {
            "user": (CLOSED, stage.token(sub="mallory")),
            "tenant": (CLOSED, stage.token(tenant="beta")),
            "client": (CLOSED, stage.token(client_id="other")),
            "endpoint": ("/mcp/open", stage.token("/mcp/open")),
            "nobody": ("/mcp/open", ""),
        }
        stolen = {name: await stage.post(path, call(2), one, **headers) for name, (path, one) in others.items()}
        never = await stage.post(CLOSED, call(2), token, mcp_session_id="never-was", mcp_protocol_version="2025-11-25")
        renewed = await stage.post(CLOSED, call(3), stage.token(iat=1), **headers)

        assert {404} == {answer.status_code for answer in stolen.values()}
        assert {never.text} == {answer.text for answer in stolen.values()}
        assert ["GATE-017"] * 5 + ["GATE-016"] == stage.reasons()
        assert SECRET in renewed.text
        assert 1 == len(stage.server.calls)


@pytest.mark.claim("P-GATE-03")
async def test_tenants_of_tokens_have_processes_of_their_own() -> None:
    """The tenant comes from the verified claim, whatever the message says."""
    async with lab() as stage:
        seen = {}
        for tenant in ("acme", "beta", "acme"):
            body, headers = modern("tools/call", {"name": "tool", "arguments": {"tenant": "beta"}})
            answer = await stage.post(CLOSED, body, stage.token(tenant=tenant), **headers)
            seen.setdefault(tenant, set()).add(answer.json()["result"]["structuredContent"]["process"])

    assert all(len(processes) == 1 for processes in seen.values())
    assert seen["acme"] != seen["beta"]


async def test_rotated_keys_are_found_and_withdrawn_ones_forgotten() -> None:
    """A new key is fetched when it is first named; unknown ones do not make a fetch each."""
    async with lab() as stage:
        assert 200 == (await stage.initialize(CLOSED, stage.token())).status_code
        keys = stage.app.gateway.keeper.verifier._issuers[ISSUER].keys
        keys._tried -= 60
        stage.issuer.keys = {"two": _rsa()}
        rotated = await stage.initialize(CLOSED, stage.token(kid="two"))
        withdrawn = await stage.initialize(CLOSED, stage.token(key=_rsa()))
        before = stage.issuer.fetches
        for number in range(20):
            await stage.initialize(CLOSED, stage.token(kid=f"x{number}", key=_rsa()))

        assert (200, 401) == (rotated.status_code, withdrawn.status_code)
        assert before == stage.issuer.fetches


async def test_an_issuer_that_does_not_answer_lets_nobody_in() -> None:
    """503, not 200 and not 401: the client may try again, and nothing is taken on trust."""
    async with lab() as stage:
        stage.issuer.down = True
        answer = await stage.initialize(CLOSED, stage.token())

        assert (503, "GATE-027") == (answer.status_code, answer.json()["error"]["data"]["id"])


@pytest.mark.claim("P-GATE-04")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    ],
)
async def test_a_rebound_name_or_a_foreign_page_gets_nothing(headers: dict[str, str], status: int) -> None:
    """DNS rebinding: refused by Host or Origin before anything else; the same request without them works."""
    async with lab() as stage:
        refused = await stage.post("/mcp/open", modern("tools/list")[0], **modern("tools/list")[1], **headers)
        plain = await stage.post("/mcp/open", modern("tools/list")[0], **modern("tools/list")[1])

        assert (status, 200) == (refused.status_code, plain.status_code)
        assert '"tool"' not in refused.text
        assert ["GATE-001" if status == 421 else "GATE-002"] == stage.reasons()


@pytest.mark.claim("P-GATE-05")
async def test_bodies_beyond_the_bounds_are_refused() -> None:
    """Too large, announced or not; too slow; not JSON; deep; a batch; ambiguous: refused, and the gateway goes on."""

    async def slowly() -> Any:
        yield b"{"
        await asyncio.sleep(1)
        yield b"}"

    async def endless() -> Any:
        for _ in range(40):
            yield b" " * 65536

    async with lab(body=1 << 20, body_timeout=0.3) as stage:
        url, sent = stage.url + "/mcp/open", EVENTS
        statuses = [
            (await stage.client.post(url, content=b" " * (2 << 20), headers=sent)).status_code,
            await status_of(stage.client.post(url, content=endless(), headers=sent)),
            await status_of(stage.client.post(url, content=slowly(), headers=sent)),
            (await stage.post("/mcp/open", b"not json")).status_code,
            (await stage.post("/mcp/open", b"[" * 500 + b"]" * 500)).status_code,
            (await stage.post("/mcp/open", [request("ping")])).status_code,
            (await stage.post("/mcp/open", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}')).status_code,
            (await stage.post("/mcp/open", request("ping"), content_type="text/plain")).status_code,
            (await stage.post("/mcp/open", request("ping"), accept="text/html")).status_code,
        ]
        after = await stage.initialize()
        reasons = stage.reasons()

    assert [413, 400, 400, 400, 400, 415, 406] == [statuses[0], *statuses[3:]]
    assert statuses[1] in (413, CUT)
    assert statuses[2] in (408, CUT)
    assert ["GATE-031", "GATE-031", "GATE-032", *["GATE-033"] * 4, "GATE-005", "GATE-004"] == reasons
    assert 200 == after.status_code


CUT = 0
"""The connection was closed before the client had sent everything."""


async def status_of(answering: Any) -> int:
    """Return the status, or that the connection was cut."""
    try:
        return int((await answering).status_code)
    except httpx2.TransportError:
        return CUT


@pytest.mark.claim("P-GATE-06")
async def test_a_tenant_beyond_its_rate_is_told_when_to_come_back_and_others_are_not_slowed() -> None:
    """429 with Retry-After and X-MCP-Limit; what passes says how much is left."""
    async with lab(rate=Rate(0.5, 3)) as stage:
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
        answers = [await stage.post(CLOSED, body, stage.token(), **headers) for _ in range(5)]
        other = await stage.post(CLOSED, body, stage.token(tenant="beta"), **headers)

        assert [200, 200, 200, 429, 429] == [answer.status_code for answer in answers]
        assert [2, 1, 0] == [parse_header(answer.headers["x-mcp-limit"]).remaining for answer in answers[:3]]
        assert 2 == int(answers[3].headers["retry-after"]) == parse_header(answers[3].headers["x-mcp-limit"]).retry
        assert 200 == other.status_code
        assert 4 == len(stage.server.calls)


async def test_requests_in_progress_and_sessions_are_bounded() -> None:
    """What one tenant holds at a time is bounded, and told with 429."""
    async with lab(active_of_tenant=3, sessions_of_tenant=2) as stage:
        headers = await stage.session()
        many = await asyncio.gather(*(stage.post("/mcp/open", call(n, slow=True), **headers) for n in range(8)))
        opened = [(await stage.initialize()).status_code for _ in range(3)]

        assert {200: 3, 429: 5} == {
            status: sum(1 for one in many if one.status_code == status) for status in {one.status_code for one in many}
        }
        assert [200, 429, 429] == opened


async def test_refusals_cannot_fill_the_trail() -> None:
    """A flood is counted; beyond a rate single refusals are not written."""
    async with lab() as stage:
        await asyncio.gather(*(stage.post(CLOSED, request("ping")) for _ in range(300)))

        assert 300 == stage.app.refusals.total
        assert 100 <= len(stage.reasons()) < 200


async def test_the_common_endpoint_shows_what_a_credential_covers() -> None:
    """A stranger sees and calls the open driver only; who signs in sees both; limits are those of the tool."""
    async with lab() as stage:
        body, headers = modern("tools/list")
        stranger = await stage.post("/mcp", body, **headers)
        known = await stage.post("/mcp", body, stage.token("/mcp"), **headers)
        body, headers = modern("tools/call", {"name": "closed__tool", "arguments": {}})
        tried = await stage.post("/mcp", body, **headers)

        names = [[tool["name"] for tool in one.json()["result"]["tools"]] for one in (stranger, known)]
        assert [["open__tool"], ["open__tool", "closed__tool"]] == names
        assert 400 == tried.status_code
        assert SECRET not in tried.text


@pytest.mark.claim("P-GATE-09")
async def test_a_revoked_token_stops_working_and_an_issuer_that_is_silent_lets_nobody_in() -> None:
    """The issuer is asked about tokens that hold, never about forged ones; its answer counts for seconds only."""
    asked: list[str] = []
    answers: list[Any] = [{"active": True}, {"active": False}, OSError(), {"active": "true"}]

    async def ask(token: str) -> Any:
        asked.append(token)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    now = [0.0]
    async with lab() as stage:
        keeper = stage.app.gateway.keeper
        inner = IntrospectingVerifier(keeper.verifier, {ISSUER: ask}, lambda: now[0])
        stage.app.gateway.keeper = dataclasses.replace(keeper, verifier=inner)
        token, said = stage.token(), []
        for moment in (0.0, 5.0, 11.0, 12.0, 22.0, 33.0):
            now[0] = moment
            answer = await stage.initialize(CLOSED, token)
            said.append((answer.status_code, answer.json().get("error", {}).get("data", {}).get("id")))
        forged_ = await stage.initialize(CLOSED, stage.token(key=_rsa()))

    revoked = (401, "GATE-040")
    assert [(200, None), (200, None), revoked, revoked, (503, "GATE-041"), revoked] == said
    assert 4 == len(asked)
    assert 401 == forged_.status_code


async def test_a_refusal_that_cannot_be_recorded_is_told_as_a_failure_of_ours() -> None:
    """Still refused, with 500: the client learns nothing else, and what needs no refusal goes on."""
    async with lab() as stage:
        stage.recorder.fails_at = frozenset(("gateway.refuse",))
        refused = await stage.post(CLOSED, request("ping"))
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
        allowed = await stage.post("/mcp/open", body, **headers)

    assert (500, "GATE-037") == (refused.status_code, refused.json()["error"]["data"]["id"])
    assert 200 == allowed.status_code


async def test_a_page_of_an_admitted_origin_can_use_an_endpoint_and_no_other_page_can() -> None:
    """Preflight and answers, refusals too, are readable for that origin alone; a preflight lets nobody in."""
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "mcp-param-region, x-evil"}
    async with lab() as stage:
        own, url = stage.url, stage.url + CLOSED
        before = await stage.client.options(url, headers={"origin": own, **asking})
        refused = await stage.post(CLOSED, request("ping"), origin=own)
        opened = await stage.client.post(
            stage.url + CLOSED, json=modern("tools/list")[0],
            headers={**EVENTS, "origin": own, "authorization": f"Bearer {stage.token()}",
                     "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"},
        )  # fmt: skip
        evil = await stage.client.options(url, headers={"origin": "https://evil.example", **asking})
        plain = await stage.client.options(url)

    allowed = [answer.headers.get("access-control-allow-origin") for answer in (before, refused, opened, evil, plain)]
    assert [own, own, own, None, None] == allowed
    assert [204, 401, 200, 403, 401] == [answer.status_code for answer in (before, refused, opened, evil, plain)]
    assert "mcp-param-region" in before.headers["access-control-allow-headers"]
    assert "x-evil" not in before.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in before.headers
