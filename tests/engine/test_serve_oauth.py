"""``mcp-sandbox serve`` with a real OAuth server and its own TLS: who signs in uses a tool, an attack gets nothing.

One gateway, one authorization server in a container (Authlib, :mod:`tests.oauth_lab`) and one MCP server for all of
it. Each attack is sent as three requests (a list and a call of the stateless era, ``initialize`` of the handshake era);
that the same three work with the right credential is the control.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from jwt.algorithms import RSAAlgorithm
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.engine.drivers import COMMAND
from tests.engine.test_serve import free_port
from tests.gateway_lab import EVENTS, modern, request
from tests.oauth_lab import Issuer, issuing
from tests.shared import ROOT
from tests.tls_kit import Authority, Holder, authority, holder, trusting

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]
PATH: Final = "/mcp/text-mcp"
SUM: Final = "cbf43926"
"""CRC-32 of the nine digits: the result of the call, which nobody else may read."""

INITIALIZE: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
CALL: Final = {"name": "text-crc32", "arguments": {"text": "123456789"}}


@dataclass
class Stage:
    """The gateway, its issuer and who connects."""

    url: str
    issuer: Issuer
    files: Authority
    robot: Holder
    process: subprocess.Popen[bytes]
    audit: Path
    client: httpx2.Client
    refused: list[httpx2.Response] = field(default_factory=list)

    @property
    def resource(self) -> str:
        """What tokens have to be made for."""
        return self.url + PATH

    def trust(self, client: Holder | None = None) -> ssl.SSLContext:
        """Return what a client connects with."""
        return trusting(self.files, client)

    def three(self, headers: list[tuple[str, str]], client: httpx2.Client | None = None, query: str = "") -> list[Any]:
        """Send the three requests; return the answers."""
        answers = []
        for body, own in (modern("tools/list"), modern("tools/call", CALL), (request("initialize", INITIALIZE), {})):
            sent = [*EVENTS.items(), *((name.replace("_", "-"), value) for name, value in own.items()), *headers]
            answers.append((client or self.client).post(self.resource + query, json=body, headers=sent))
        return answers

    def reasons(self) -> list[str]:
        """Return why requests were refused, as the trail says."""
        records = [
            json.loads(line) for path in sorted(self.audit.rglob("*.jsonl")) for line in path.read_text().splitlines()
        ]
        return [one["attrs"]["reason"] for one in records if one.get("name") == "gateway.refuse"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway with TLS, an issuer that it asks about every token, and one pinned key."""
    scratch = tmp_path_factory.mktemp("oauth")
    files, robot, port = authority(scratch, "127.0.0.1"), holder(scratch, "robot"), free_port()
    shutil.copytree(ROOT / "drivers" / "text-mcp", scratch / "drivers" / "text-mcp")
    with issuing() as issuer:
        (scratch / "gateway.toml").write_text(
            f'[tls]\ncertificate = "{files.cert}"\nkey = "{files.key}"\n'
            f'[[issuer]]\nurl = "{issuer.url}"\nintrospection = "{issuer.url}/introspect"\n'
            'client-id = "gateway"\nclient-secret-env = "GATEWAY_SECRET"\n'
            f'[[client]]\nkey = "{robot.pin}"\ntenant = "acme"\nuser = "robot"\nscopes = ["text:use"]\n'
            '[driver.text-mcp]\nscopes = ["text:use"]\n'
        )
        process = subprocess.Popen(
            [*COMMAND, "serve", str(scratch / "drivers"), "--listen", f"127.0.0.1:{port}",
             "--config", str(scratch / "gateway.toml"), "--audit-dir", str(scratch / "audit")],
            stderr=subprocess.PIPE, env={**os.environ, "GATEWAY_SECRET": issuer.secret},
        )  # fmt: skip
        try:
            assert process.stderr is not None
            said = b""
            while b"/mcp serves" not in said:
                line = process.stderr.readline()
                assert line, said.decode()
                said += line
            url = f"https://127.0.0.1:{port}"
            with httpx2.Client(timeout=60, trust_env=False, verify=trusting(files)) as client:
                yield Stage(url, issuer, files, robot, process, scratch / "audit", client)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def bearer(token: str, scheme: str = "Bearer") -> list[tuple[str, str]]:
    """Return the header field of a token."""
    return [("authorization", f"{scheme} {token}")]


def part(value: Any) -> str:
    """Return one part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def attacks(stage: Stage) -> dict[str, tuple[list[tuple[str, str]], str, int, str]]:
    """Return what is sent → header fields, query, status and the reason on record."""
    issuer, aud, now = stage.issuer, stage.resource, int(time.time())
    good = issuer.token("robot", aud)
    revoked = issuer.token("robot", aud)
    issuer.revoke(revoked)
    own = {"iss": issuer.url, "aud": aud, "sub": "alice", "tenant": "acme", "scope": "text:use", "exp": now + 300}
    key = issuer.key()
    public = RSAAlgorithm.from_jwk(key).public_bytes(  # type: ignore[union-attr]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = part({"alg": "HS256", "typ": "at+jwt", "kid": key["kid"]}) + "." + part(own)
    mac = base64.urlsafe_b64encode(hmac.new(public, signed.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    bound = issuer.mint(aud=aud, cnf={"x5t#S256": stage.robot.thumbprint})
    found: dict[str, tuple[list[tuple[str, str]], str, int, str]] = {
        "nothing": ([], "", 401, "GATE-020"),
        "another scheme": (bearer("cm9ib3Q6eA==", "Basic"), "", 401, "GATE-023"),
        "expired": (bearer(issuer.mint(aud=aud, exp=now - 60)), "", 401, "GATE-028"),
        "not yet valid": (bearer(issuer.mint(aud=aud, nbf=now + 600)), "", 401, "GATE-026"),
        "wrong audience": (bearer(issuer.token("robot", "https://other.example/mcp")), "", 401, "GATE-029"),
        "wrong issuer": (bearer(issuer.mint(aud=aud, iss="https://evil.example")), "", 401, "GATE-025"),
        "alg none": (bearer(f"{part({'alg': 'none', 'typ': 'at+jwt'})}.{part(own)}."), "", 401, "GATE-024"),
        "key confusion": (bearer(f"{signed}.{mac}"), "", 401, "GATE-024"),
        "unknown kid": (bearer(issuer.mint({"kid": "nine"}, aud=aud)), "", 401, "GATE-026"),
        "foreign key": (bearer(issuer.mint(foreign=True, aud=aud)), "", 401, "GATE-026"),
        "revoked": (bearer(revoked), "", 401, "GATE-040"),
        "never issued": (bearer(good[:-4] + "AAAA"), "", 401, "GATE-026"),
        "bound to a certificate": (bearer(bound), "", 401, "GATE-071"),
        "in the address": ([], f"?access_token={good}", 400, "GATE-074"),
        "two credentials": ([*bearer(good), *bearer(good)], "", 400, "GATE-003"),
        "rebound host": ([("host", "evil.example"), *bearer(good)], "", 421, "GATE-001"),
        "foreign page": ([("origin", "https://evil.example"), *bearer(good)], "", 403, "GATE-002"),
        "insufficient scope": (bearer(issuer.token("reader", aud, "text:read")), "", 403, "GATE-022"),
    }  # fmt: skip
    return found


@pytest.mark.claim("P-GATE-12")
def test_every_attack_is_refused_recorded_and_reads_nothing_of_a_real_server(stage: Stage) -> None:
    """Each gets its status and its reason in the trail, no name, description or result; right credentials pass."""
    tried, before = attacks(stage), len(stage.reasons())
    answers = {name: stage.three(headers, query=query) for name, (headers, query, _, _) in tried.items()}
    reasons = stage.reasons()[before:]
    good = stage.issuer.token("robot", stage.resource)
    controls = {
        "bearer": stage.three(bearer(good)),
        "lower case": stage.three(bearer(good, "bearer")),
        "upper case": stage.three(bearer(good, "BEARER")),
        "own page": stage.three([("origin", stage.url), *bearer(good)]),
    }
    with httpx2.Client(timeout=60, trust_env=False, verify=stage.trust(stage.robot)) as pinned:
        bound = stage.issuer.mint(aud=stage.resource, cnf={"x5t#S256": stage.robot.thumbprint})
        controls |= {"pinned key": stage.three([], pinned), "bound token": stage.three(bearer(bound), pinned)}

    assert {name: [status] * 3 for name, (_, _, status, _) in tried.items()} == {
        name: [answer.status_code for answer in three] for name, three in answers.items()
    }
    assert [reason for *_, reason in tried.values() for _ in range(3)] == reasons
    assert {name: [200] * 3 for name in controls} == {
        name: [answer.status_code for answer in three] for name, three in controls.items()
    }
    tools = controls["bearer"][0].json()["result"]["tools"]
    private = {SUM, *(tool[key] for tool in tools for key in ("name", "description") if tool.get(key))}
    told = [answer.text + str(answer.headers) for three in answers.values() for answer in three]
    assert SUM in controls["bearer"][1].text
    assert len(private) > 2
    assert not [text for text in told if any(word in text for word in private)]
    assert 'scope="text:use"' in answers["insufficient scope"][0].headers["www-authenticate"]


def test_the_issuer_is_a_container_and_nothing_is_let_in_while_it_is_frozen(stage: Stage) -> None:
    """It runs apart and without rights; tokens that it cannot be asked about open nothing, and do once it answers."""
    told = stage.issuer.container.attrs
    fresh = stage.issuer.token("robot", stage.resource)

    with stage.issuer.silent():
        frozen = stage.three(bearer(fresh))

    assert [] == sorted(told["NetworkSettings"]["Networks"].keys() & {"bridge", "host", "none"})
    assert ("65532:65532", True, ["ALL"]) == (
        told["Config"]["User"], told["HostConfig"]["ReadonlyRootfs"], told["HostConfig"]["CapDrop"],
    )  # fmt: skip
    assert stage.issuer.secret not in json.dumps(told)
    assert not [answer for answer in frozen if answer.is_success]
    assert not [answer for answer in frozen if SUM in answer.text or CALL["name"] in answer.text]
    assert [200] * 3 == [answer.status_code for answer in stage.three(bearer(fresh))]


def test_a_session_is_of_no_use_to_another_credential(stage: Stage) -> None:
    """Its id with a token of another user, or with a pinned key, opens nothing; its holder goes on."""
    mine = bearer(stage.issuer.mint(aud=stage.resource))
    opened = stage.client.post(stage.resource, json=request("initialize", INITIALIZE), headers=[*EVENTS.items(), *mine])
    own = [("mcp-session-id", opened.headers["mcp-session-id"]), ("mcp-protocol-version", "2025-11-25")]

    def ping(credential: list[tuple[str, str]], client: httpx2.Client = stage.client) -> int:
        sent = [*EVENTS.items(), *own, *credential]
        return client.post(stage.resource, json=request("ping", {}, 2), headers=sent).status_code

    with httpx2.Client(timeout=60, trust_env=False, verify=stage.trust(stage.robot)) as pinned:
        stolen = [ping(bearer(stage.issuer.mint(aud=stage.resource, sub="bob"))), ping([], pinned)]

    assert [404, 404] == stolen
    assert ["GATE-017"] * 2 == stage.reasons()[-2:]
    assert 200 == ping(mine)


class Memory:
    """Where the SDK keeps what it was given."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep them."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return how the client is registered."""
        return self.client

    async def set_client_info(self, info: OAuthClientInformationFull) -> None:
        """Keep it."""
        self.client = info


class Browser:
    """A person who signs in at the issuer and is sent back with a code."""

    def __init__(self, login: str) -> None:
        self.login = login
        self.asked = ""

    async def go(self, url: str) -> None:
        """Be sent to the issuer."""
        self.asked = url

    async def back(self) -> AuthorizationCodeResult:
        """Return what the issuer sends back."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{self.asked}&login={self.login}")
        sent = parse_qs(urlsplit(answer.headers["location"]).query)
        return AuthorizationCodeResult(code=sent["code"][0], state=sent["state"][0])


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdk_discovers_the_issuer_signs_in_and_calls_a_tool(stage: Stage, mode: str) -> None:
    """401, RFC 9728, RFC 8414, registration, PKCE, token, tool: nothing is told to the client but the endpoint."""
    browser, memory = Browser("alice"), Memory()
    wanted = OAuthClientMetadata(
        redirect_uris=["http://127.0.0.1:9/back"],  # type: ignore[list-item]
        token_endpoint_auth_method="none",
        client_name="sdk",
    )
    provider = OAuthClientProvider(stage.resource, wanted, memory, browser.go, browser.back)  # type: ignore[arg-type]

    assert SUM in await called(stage, provider, mode)
    assert memory.tokens is not None
    asked = parse_qs(urlsplit(browser.asked).query)
    assert ["S256"] == asked["code_challenge_method"]
    assert [stage.resource] == asked["resource"]
    assert "text:use" in asked["scope"][0]


@pytest.mark.anyio
async def test_a_machine_signs_in_with_client_credentials(stage: Stage) -> None:
    """The SDK's own provider for programs finds issuer, resource and scope, and calls a tool."""
    provider = ClientCredentialsOAuthProvider(
        stage.resource, Memory(), "robot", stage.issuer.secret, scope="text:use", issuer=stage.issuer.url
    )  # type: ignore[arg-type]

    assert SUM in await called(stage, provider, "2026-07-28")


async def called(stage: Stage, provider: httpx2.Auth, mode: str) -> str:
    """Return what a tool answers to a client that signs in by itself."""
    async with httpx2.AsyncClient(auth=provider, timeout=60, trust_env=False, verify=stage.trust()) as http:
        transport = streamable_http_client(stage.resource, http_client=http)
        async with Client(transport, mode=mode) as client:  # type: ignore[arg-type]
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert CALL["name"] in names
            return str((await client.call_tool(CALL["name"], CALL["arguments"])).model_dump_json())  # type: ignore[arg-type]


def test_tokens_of_a_withdrawn_key_stop_and_those_of_the_new_one_work(stage: Stage) -> None:
    """The new key is fetched when a token names it, at most every 15 s; then the old one counts no more."""
    old = stage.issuer.token("robot", stage.resource)
    assert [200] * 3 == [answer.status_code for answer in stage.three(bearer(old))]
    stage.issuer.rotate()
    new = stage.issuer.token("robot", stage.resource)
    until = time.monotonic() + 30
    while (status := stage.three(bearer(new))[0].status_code) != 200 and time.monotonic() < until:
        time.sleep(0.5)

    assert 200 == status
    assert [401] * 3 == [answer.status_code for answer in stage.three(bearer(old))]
    assert ["GATE-026"] * 3 == stage.reasons()[-3:]


def test_nothing_of_any_token_stands_in_the_trail(stage: Stage) -> None:
    """Whatever was refused or let in, no credential is written down."""
    text = "".join(path.read_text() for path in stage.audit.rglob("*") if path.is_file())

    assert not re.search(r"eyJ[A-Za-z0-9_-]{20}", text)
    assert stage.issuer.secret not in text
