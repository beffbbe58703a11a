"""Attacks on logins to remote servers: each ends in one clear error, nothing kept and nothing told to the attacker.

The control of each is the same login, or call, in the same world without the attack.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from sandbox.errors import SandboxError
from sandbox.events import Scope, Trace
from sandbox.plan.model import OAuthPlan, SandboxPlan
from sandbox.testing.memory import MemoryRecorder
from sandbox.transport.outcomes import RemoteError
from sandbox.transport.peer import ServerPeer
from sandbox.transport.remote.oauth import bearer
from sandbox.transport.remote.oauth.asking import Asking
from sandbox.transport.remote.oauth.login import Choices, log_in, log_out
from sandbox.transport.remote.oauth.store import Binding, Login, Store
from sandbox.transport.remote.opening import Keeping, dialer_of, open_remote
from tests.oauth_remote_lab import SECRET, Asked, Protected, World, come_back, error, reply, world
from tests.remote_lab import ADDRESS, network, plan_of

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240)]

Browse = Callable[[World, str], Any]


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


@pytest.fixture
def found(tmp_path: Path) -> Iterator[World]:
    """Both servers, honest until a test makes them lie."""
    with world(tmp_path) as made:
        yield made


INSIDE = {"inside.example": "10.1.2.3", "cloud.example": "169.254.169.254"}
"""Names that the driver may reach, and to which an attacker gives addresses of somebody else's network."""


async def resolved(name: str, _port: int) -> list[str]:
    """Return the address of a name."""
    return [INSIDE[name]]


def honest(there: World, address: str) -> int:
    """Log in and come back, as a person does."""
    return come_back(there.visit(address))


@dataclass
class Person:
    """Who logs in."""

    there: World
    folder: Path
    auth: dict[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    known: list[str] = field(default_factory=list)

    @property
    def plan(self) -> SandboxPlan:
        """Of the driver."""
        url = self.there.server.mcp
        auth = OAuthPlan(**{"grant": "authorization_code", "resource": url, "scopes": ("echo:use",), **self.auth})
        rules = (*self.there.rules(), *self.more)
        return replace(plan_of(url, *rules, authorities=(str(self.there.files.bundle),)), auth=auth)

    @property
    def scope(self) -> Scope:
        """Where it is recorded."""
        return Scope(self.recorder, Trace.new(), tenant="local")

    @property
    def store(self) -> Store:
        """Of logins."""
        return Store(self.folder / "logins")

    @property
    def binding(self) -> Binding:
        """Of the login."""
        return Binding.of(self.plan, "local")

    @property
    def asking(self) -> Asking:
        """What sends requests."""
        return Asking(dialer_of(self.plan, self.scope, resolved), self.scope, self.known.append)

    async def log_in(self, browse: Browse = honest) -> Login | SandboxError:
        """Log in; return the login or the error."""
        went: list[asyncio.Future[Any]] = []
        loop = asyncio.get_running_loop()

        def show(address: str) -> None:
            went.append(loop.run_in_executor(None, browse, self.there, address))

        plan = self.plan
        assert plan.auth is not None
        try:
            secrets = {"client-secret": SECRET}
            choices = Choices(show, timeout=60.0)
            return await log_in(self.asking, plan.auth, secrets, self.store, self.binding, choices)
        except SandboxError as failure:
            return failure
        finally:
            await asyncio.gather(*went, return_exceptions=True)

    async def connect(self) -> ServerPeer:
        """Open the server, as ``run`` does."""
        keeping = Keeping(self.folder / "logins", self.known.append)
        channel = open_remote(self.plan, {"client-secret": SECRET}, self.scope, keeping=keeping)
        return await ServerPeer.connect(
            channel, client_info={"name": "t", "version": "1"}, capabilities={}, scope=self.scope,
            protocol_version="2025-11-25",
        )  # fmt: skip

    async def call(self, message: str = "hi") -> str:
        """Open the server, call the tool, and close it; return its text or the id of the error."""
        try:
            peer = await self.connect()
        except SandboxError as failure:
            return failure.id
        try:
            return await said(peer, message)
        finally:
            await peer.close()


async def said(peer: ServerPeer, message: str) -> str:
    """Return what the tool answers, or the id of the error."""
    try:
        asked = {"name": "echo", "arguments": {"message": message}}
        answer = await peer.request("tools/call", asked, timeout=60)
    except (SandboxError, RemoteError) as failure:
        return failure.id
    return str(answer["content"][0]["text"])


def refreshes(there: World) -> int:
    """Return how often a refresh token was used."""
    return len([one for one in there.issuer.at("/token") if one.form["grant_type"] == "refresh_token"])


# --- metadata ---------------------------------------------------------------------------------------------------------
LIES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("another issuer", {"issuer": "https://honest.example"}, {}, "OAU-014"),
    ("no PKCE", {"code_challenge_methods_supported": None}, {}, "OAU-015"),
    ("PKCE plain", {"code_challenge_methods_supported": ["plain"]}, {}, "OAU-015"),
    ("implicit flow", {"response_types_supported": ["token"]}, {}, "OAU-015"),
    ("token endpoint in the clear", {"token_endpoint": f"http://{ADDRESS}/token"}, {}, "OAU-016"),
    ("login page in the clear", {"authorization_endpoint": "http://a.example/"}, {}, "OAU-016"),
    ("login page that is code", {"authorization_endpoint": "javascript:alert(1)"}, {}, "WIRE-062"),
    ("no token endpoint", {"token_endpoint": None}, {}, "OAU-013"),
    ("token endpoint elsewhere", {"token_endpoint": "https://203.0.113.9/token"}, {}, "EGR-060"),
    ("token endpoint on loopback", {"token_endpoint": "https://127.0.0.1:4443/token"}, {}, "EGR-060"),
    ("token endpoint inside", {"token_endpoint": "https://inside.example/token"}, {}, "EGR-113"),
    ("registration on the metadata service", {"registration_endpoint": "https://cloud.example/"}, {}, "EGR-113"),
    ("wrong audience", {}, {"resource": "https://other.example/mcp"}, "OAU-011"),
    ("wider audience", {}, {"resource": f"https://{ADDRESS}"}, "OAU-011"),
    ("no audience", {}, {"resource": None}, "OAU-011"),
    ("issuer on loopback", {}, {"authorization_servers": ["https://127.0.0.1:4443"]}, "EGR-060"),
    ("issuer inside", {}, {"authorization_servers": ["https://inside.example"]}, "EGR-113"),
    ("issuer elsewhere", {}, {"authorization_servers": ["https://203.0.113.9"]}, "EGR-060"),
    ("issuer in the clear", {}, {"authorization_servers": ["http://a.example"]}, "OAU-016"),
    ("no issuer", {}, {"authorization_servers": []}, "OAU-012"),
    ("two issuers", {}, {"authorization_servers": ["https://a.example", "https://b.example"]}, "OAU-012"),
]


@pytest.mark.claim("P-OAU-05")
@pytest.mark.parametrize(("said_", "described", "expected"), [one[1:] for one in LIES], ids=[one[0] for one in LIES])
async def test_metadata_that_lie_end_the_login(
    said_: dict[str, Any], described: dict[str, Any], expected: str, found: World, tmp_path: Path
) -> None:
    """Metadata of another issuer or resource, without PKCE, in the clear or at closed addresses: nobody logs in."""
    person = Person(found, tmp_path, more=tuple(INSIDE))
    found.issuer.said, found.server.described = said_, described
    refused = await person.log_in()
    kept = person.store.read(person.binding)
    tokens = [*found.issuer.tokens]
    found.issuer.said, found.server.described = {}, {}
    control = await person.log_in()

    assert isinstance(refused, SandboxError)
    assert expected == refused.id
    assert kept is None
    assert not tokens
    assert isinstance(control, Login), control


@pytest.mark.claim("P-OAU-06")
@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/register",
        "/token",
    ],
)
async def test_a_redirect_leads_nowhere(path: str, found: World, tmp_path: Path) -> None:
    """A redirect to another origin, at any step of a login, ends it, and nobody there hears of it."""
    evil = found.another_issuer()
    person = Person(found, tmp_path)
    web = found.server if "protected" in path else found.issuer
    web.answers[path] = lambda _: (307, {"Location": f"{evil.url}{path}"}, b"")
    refused = await person.log_in()
    del web.answers[path]
    control = await person.log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-017" == refused.id
    assert [] == evil.requests
    assert isinstance(control, Login)


async def test_metadata_of_another_origin_are_not_read(found: World, tmp_path: Path) -> None:
    """A challenge cannot send us to somebody else's description of the server."""
    evil = found.another_issuer()
    person = Person(found, tmp_path)
    found.server.challenge = f'Bearer resource_metadata="{evil.url}/.well-known/oauth-protected-resource/mcp"'
    refused = await person.log_in()
    found.server.challenge = None

    assert isinstance(refused, SandboxError)
    assert "OAU-010" == refused.id
    assert [] == evil.requests
    assert isinstance(await person.log_in(), Login)


async def test_without_a_challenge_the_well_known_places_are_tried(found: World, tmp_path: Path) -> None:
    """A 401 that names nothing, and one that is malformed, lead to the server's own well-known address."""
    person = Person(found, tmp_path)
    for challenge in ("Basic realm=x", 'Bearer resource_metadata="https://evil.example', "Bearer a=1, Bearer b=2"):
        found.server.challenge = challenge
        assert isinstance(await person.log_in(), Login)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "/.well-known/openid-configuration"),
        ("/one", "/.well-known/oauth-authorization-server/one"),
        ("/one", "/.well-known/openid-configuration/one"),
        ("/one", "/one/.well-known/openid-configuration"),
    ],
)
async def test_an_issuers_metadata_may_lie_in_each_known_place(
    path: str, place: str, found: World, tmp_path: Path
) -> None:
    """RFC 8414 and OpenID Connect, of issuers with and without a path; those at its root are of another issuer."""
    name = found.issuer.url + path
    found.issuer.said = {"issuer": name}
    found.issuer.back = {"iss": name}
    found.server.described = {"authorization_servers": [name]}
    found.issuer.answers["/.well-known/oauth-authorization-server"] = lambda _: reply({}, 404)
    found.issuer.answers[place] = lambda _: reply(found.issuer.metadata())
    login = await Person(found, tmp_path).log_in()
    found.issuer.answers[place] = lambda _: reply({**found.issuer.metadata(), "issuer": f"{name}/"})
    other = await Person(found, tmp_path).log_in()

    assert isinstance(login, Login), login
    assert name == login.issuer
    assert isinstance(other, SandboxError)
    assert "OAU-014" == other.id


async def test_a_wider_resource_is_the_drivers_to_name(found: World, tmp_path: Path) -> None:
    """A server that calls its origin its resource gets a token for it where the reviewed driver says so."""
    found.server.described = {"resource": found.server.url}
    refused = await Person(found, tmp_path).log_in()
    named = await Person(found, tmp_path, auth={"resource": found.server.url}).log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-011" == refused.id
    assert isinstance(named, Login)
    assert {found.server.url} == {one.audience for one in found.issuer.tokens.values()}


async def test_a_driver_that_names_the_issuer_needs_no_metadata_of_the_server(found: World, tmp_path: Path) -> None:
    """Servers of before RFC 9728 are used with the issuer of the reviewed file, and only with one."""
    found.server.answers["/.well-known/oauth-protected-resource/mcp"] = lambda _: reply({}, 404)
    found.server.challenge = "Bearer"
    refused = await Person(found, tmp_path).log_in()
    named = await Person(found, tmp_path, auth={"issuer": found.issuer.url}).log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-010" == refused.id
    assert isinstance(named, Login)


@pytest.mark.claim("P-OAU-07")
async def test_a_secret_goes_to_the_named_issuer_only(found: World, tmp_path: Path) -> None:
    """A server that names an issuer of its own is not given the client's secret, nor asked to log in at it."""
    evil = found.another_issuer()
    client = {"issuer": found.issuer.url, "client_id": "robot", "client_secret": "client-secret"}
    machine = Person(found, tmp_path, auth={**client, "grant": "client_credentials"})
    found.server.described = {"authorization_servers": [evil.url]}
    refused = await machine.call()
    found.server.described = {}
    control = await machine.call()

    assert "OAU-012" == refused
    assert "hi" == control
    assert [] == evil.requests
    assert SECRET not in str(machine.recorder.facts)


# --- the answer -------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-OAU-08")
@pytest.mark.parametrize("iss", ["https://evil.example", "", None], ids=["another", "empty", "missing"])
async def test_an_answer_of_another_issuer_is_refused(iss: str | None, found: World, tmp_path: Path) -> None:
    """Mix-up: an answer that names another issuer, or none where one was promised, never reaches a token endpoint."""
    person = Person(found, tmp_path)
    found.issuer.back = {"iss": iss}
    refused = await person.log_in()
    exchanged = found.issuer.at("/token")
    found.issuer.back = {}
    control = await person.log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-020" == refused.id
    assert [] == exchanged
    assert isinstance(control, Login)


async def test_an_error_of_another_issuer_is_not_shown(found: World, tmp_path: Path) -> None:
    """An error is only believed from the issuer that was asked; of that, the code is shown and no description."""
    person = Person(found, tmp_path)
    said_ = {"code": None, "error": "access_denied", "error_description": "c4nary-description"}
    found.issuer.back = {**said_, "iss": "https://evil.example"}
    mixed = await person.log_in()
    found.issuer.back = {**said_}
    denied = await person.log_in()

    assert isinstance(mixed, SandboxError)
    assert isinstance(denied, SandboxError)
    assert ("OAU-020", "OAU-021") == (mixed.id, denied.id)
    assert "access_denied" not in str(mixed)
    assert "access_denied" in str(denied)
    assert "c4nary" not in str(mixed) + str(denied) + str(person.recorder.facts)


@pytest.mark.claim("P-OAU-09")
async def test_only_the_login_that_was_asked_for_comes_back(found: World, tmp_path: Path) -> None:
    """A wrong state, another name for the host and other paths change nothing; the right answer is then taken."""
    person = Person(found, tmp_path)
    statuses: list[int] = []

    def browse(there: World, address: str) -> None:
        right = there.visit(address)
        state = parse_qs(urlsplit(right).query)["state"][0]
        statuses.append(come_back(right.replace(state, "0" * len(state))))
        statuses.append(come_back(right.replace(f"state={state}", "")))
        statuses.append(come_back(f"{right}&state={state}"))
        statuses.append(come_back(right, host="attacker.example"))
        statuses.append(come_back(right.replace("/callback", "/other")))
        statuses.append(come_back(right))

    control = await person.log_in(browse)

    assert [400, 400, 400, 400, 404, 200] == statuses
    assert isinstance(control, Login)
    assert 1 == len(found.issuer.at("/token"))


async def test_an_answer_that_names_something_twice_is_refused(found: World, tmp_path: Path) -> None:
    """Two codes in one answer are none."""
    person = Person(found, tmp_path)
    refused = await person.log_in(lambda there, address: come_back(there.visit(address) + "&code=other"))

    assert isinstance(refused, SandboxError)
    assert "OAU-023" == refused.id
    assert [] == found.issuer.at("/token")
    assert isinstance(await person.log_in(), Login)


@pytest.mark.claim("P-OAU-10")
async def test_a_code_of_somebody_elses_login_is_worth_nothing(found: World, tmp_path: Path) -> None:
    """Code injection: a code of the attacker's own login, put into this answer, is not exchanged for a token."""
    person = Person(found, tmp_path)

    def browse(there: World, address: str) -> int:
        parts = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        own = {**query, "code_challenge": "attackers-own-challenge", "state": "attackers"}
        stolen = parse_qs(urlsplit(there.visit(parts._replace(query=urlencode(own)).geturl())).query)["code"][0]
        right = there.visit(address)
        code = parse_qs(urlsplit(right).query)["code"][0]
        return come_back(right.replace(code, stolen))

    refused = await person.log_in(browse)
    kept = person.store.read(person.binding)

    assert isinstance(refused, SandboxError)
    assert "OAU-030" == refused.id
    assert "invalid_grant" in refused.message
    assert "c4nary" not in str(refused)
    assert kept is None
    assert isinstance(await person.log_in(), Login)


GIFTS: list[tuple[str, dict[str, Any], str]] = [
    ("another type", {"access_token": "a", "token_type": "mac"}, "OAU-031"),
    ("more scopes", {"access_token": "a", "token_type": "Bearer", "scope": "echo:use admin"}, "OAU-031"),
    ("a header", {"access_token": "a\r\nX-Evil: 1", "token_type": "Bearer"}, "OAU-031"),
    ("no text", {"access_token": 7, "token_type": "Bearer"}, "OAU-031"),
    ("a long token", {"access_token": "a" * 20_000, "token_type": "Bearer"}, "OAU-031"),
    ("an endless answer", {"access_token": "a", "token_type": "Bearer", "more": "x" * 70_000}, "OAU-018"),
    ("a strange refresh token", {"access_token": "a", "token_type": "Bearer", "refresh_token": "\u2028"}, "OAU-031"),
]


@pytest.mark.claim("P-OAU-11")
@pytest.mark.parametrize(("gift", "expected"), [one[1:] for one in GIFTS], ids=[one[0] for one in GIFTS])
async def test_a_strange_token_is_not_kept(gift: dict[str, Any], expected: str, found: World, tmp_path: Path) -> None:
    """More scopes than were asked for, another type, text that could end a header field, or no end: nothing is kept."""
    person = Person(found, tmp_path)
    found.issuer.answers["/token"] = lambda _: reply(gift)
    refused = await person.log_in()
    kept = person.store.read(person.binding)
    del found.issuer.answers["/token"]

    assert isinstance(refused, SandboxError)
    assert expected == refused.id
    assert kept is None
    assert isinstance(await person.log_in(), Login)


# --- scopes and clients -----------------------------------------------------------------------------------------------
async def test_scopes_are_the_drivers_or_confirmed(found: World, tmp_path: Path) -> None:
    """A driver without scopes gets none that nobody has confirmed; one with scopes gets these and no others."""
    person = Person(found, tmp_path, auth={"scopes": ()})
    refused = await person.log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-042" == refused.id
    assert "echo:use echo:read" in refused.message
    assert [] == found.issuer.at("/authorize")
    login = await Person(found, tmp_path).log_in()
    assert isinstance(login, Login)
    assert {"echo:use"} == {one.query["scope"] for one in found.issuer.at("/authorize")}


async def test_the_drivers_client_comes_before_a_registered_one(found: World, tmp_path: Path) -> None:
    """A configured id is used as it is; without one a client is registered, as native and without a secret."""
    configured = await Person(found, tmp_path, auth={"client_id": "desk", "issuer": found.issuer.url}).log_in()
    none = found.issuer.at("/register")
    registered = await Person(found, tmp_path).log_in()
    (asked,) = found.issuer.at("/register")

    assert isinstance(configured, Login)
    assert isinstance(registered, Login)
    assert "desk" == configured.client.id
    assert [] == none
    said_ = json.loads(asked.body)
    assert ("native", "none") == (said_["application_type"], said_["token_endpoint_auth_method"])
    assert said_["redirect_uris"][0].startswith("http://127.0.0.1:")


async def test_a_metadata_document_needs_an_issuer_that_takes_them(found: World, tmp_path: Path) -> None:
    """The address of a document is a client only where the issuer says so (CIMD)."""
    address = "https://client.example/mcp-sandbox.json"
    person = Person(found, tmp_path, auth={"client_id": address})
    refused = await person.log_in()
    found.issuer.said = {"client_id_metadata_document_supported": True}
    found.issuer.clients[address] = ""
    control = await person.log_in()

    assert isinstance(refused, SandboxError)
    assert "OAU-040" == refused.id
    assert isinstance(control, Login)
    assert address == control.client.id


async def test_an_issuer_that_registers_nobody_is_said(found: World, tmp_path: Path) -> None:
    """Without a client and without registration the mend names the field to fill."""
    found.issuer.said = {"registration_endpoint": None}
    refused = await Person(found, tmp_path).log_in()
    found.issuer.said = {}
    found.issuer.answers["/register"] = lambda _: error("invalid_redirect_uri")
    other = await Person(found, tmp_path).log_in()

    assert isinstance(refused, SandboxError)
    assert isinstance(other, SandboxError)
    assert ("OAU-040", "OAU-041") == (refused.id, other.id)
    assert "invalid_redirect_uri" in other.message


# --- tokens in use ----------------------------------------------------------------------------------------------------
async def test_a_refused_token_is_renewed_once(found: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that the server has stopped to take is renewed, and the call carried out; nothing is asked in a loop."""
    monkeypatch.setattr(bearer, "JUST_NOW", 3600.0)  # however slow this machine is
    person = Person(found, tmp_path)
    await person.log_in()
    peer = await person.connect()
    first = await said(peer, "hi")
    login = person.store.read(person.binding)
    assert login is not None
    old = replace(login, tokens=replace(login.tokens, got_at=login.tokens.got_at - 7200))
    person.store.write(person.binding, old)
    found.server.refused.add(login.tokens.access)
    second, once = await said(peer, "hi"), refreshes(found)
    found.server.refused.update(found.issuer.tokens)
    third, after = await said(peer, "hi"), refreshes(found)
    await peer.close()

    assert ["hi", "hi", "OAU-033"] == [first, second, third]
    assert (1, 1) == (once, after), "a token that was just issued is not the one at fault"


async def test_machines_renew_before_the_end(found: World, tmp_path: Path) -> None:
    """A machine's token is asked for again before it ends, so that the server refuses none."""
    client = {"issuer": found.issuer.url, "client_id": "robot", "client_secret": "client-secret"}
    machine = Person(found, tmp_path, auth={**client, "grant": "client_credentials"})
    found.issuer.life = 40.0
    peer = await machine.connect()
    first, before = await said(peer, "hi"), len(found.issuer.at("/token"))
    until = time.monotonic() + 90
    while len(found.issuer.at("/token")) == before and time.monotonic() < until:
        assert "hi" == await said(peer, "hi")
        await asyncio.sleep(0.5)
    await peer.close()

    assert "hi" == first
    assert (1, 2) == (before, len(found.issuer.at("/token")))
    sent = {one.headers["authorization"][7:] for one in found.server.at("/mcp") if "authorization" in one.headers}
    assert sent == set(found.issuer.tokens), "each token was sent, and none that had ended"


async def test_an_issuer_that_is_down_ends_no_login(found: World, tmp_path: Path) -> None:
    """While the old token is good it is used; afterwards the error says who is down, and the login stays."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    due = replace(login.tokens, renew_at=1.0)
    person.store.write(person.binding, replace(login, tokens=due))
    found.issuer.answers["/token"] = lambda _: (503, {}, b"")
    good = await person.call()
    person.store.write(person.binding, replace(login, tokens=replace(due, expires_at=2.0)))
    down = await person.call()
    del found.issuer.answers["/token"]
    control = await person.call()

    assert ("hi", "OAU-019", "hi") == (good, down, control)


async def test_what_cannot_be_recorded_is_not_asked_for(found: World, tmp_path: Path) -> None:
    """Without the intent nothing is asked for; when only the outcome fails, the new refresh token is kept."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    past = replace(login.tokens, renew_at=1.0)
    person.store.write(person.binding, replace(login, tokens=past))
    person.recorder.fails_at = frozenset({"oauth.token/intent"})
    refused, asked = await person.call(), refreshes(found)
    person.recorder.fails_at = frozenset({"oauth.token/outcome"})
    control = await person.call()
    kept = person.store.read(person.binding)

    assert ("TEST-001", 0) == (refused, asked)
    assert "hi" == control
    assert kept is not None
    assert kept.tokens.refresh in found.issuer.refresh


@pytest.mark.claim("P-OAU-12")
async def test_a_stolen_refresh_token_ends_the_login(found: World, tmp_path: Path) -> None:
    """Reuse: when somebody else has used the refresh token, the login ends, is forgotten, and says so."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    past = replace(login.tokens, renew_at=1.0, got_at=time.time() - 30)
    person.store.write(person.binding, replace(login, tokens=past))
    control = await person.call()
    rotated = person.store.read(person.binding)
    assert rotated is not None
    stolen = {"grant_type": "refresh_token", "refresh_token": rotated.tokens.refresh, "client_id": rotated.client.id}
    await person.asking.post(f"{found.issuer.url}/token", {**stolen, "resource": found.server.mcp}, {})
    person.store.write(person.binding, replace(rotated, tokens=replace(rotated.tokens, renew_at=1.0)))
    ended, kept, again = await person.call(), person.store.read(person.binding), await person.call()

    assert "hi" == control
    assert rotated.tokens.refresh != login.tokens.refresh
    assert ("OAU-032", None, "OAU-001") == (ended, kept, again)


async def test_many_calls_renew_once(found: World, tmp_path: Path) -> None:
    """Calls that meet an expired token at the same time wait for one renewal."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    peer = await person.connect()
    found.server.refused.add(login.tokens.access)
    past = replace(login.tokens, got_at=time.time() - 30)
    person.store.write(person.binding, replace(login, tokens=past))
    answers = await asyncio.gather(*(said(peer, f"m{number}") for number in range(20)))
    await peer.close()

    assert [f"m{number}" for number in range(20)] == answers
    assert 1 == refreshes(found)


@pytest.mark.claim("P-OAU-13")
async def test_a_cancelled_call_loses_no_refresh_token(found: World, tmp_path: Path) -> None:
    """A caller that goes away while a token is exchanged does not take the new one along: it is kept all the same."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    peer = await person.connect()
    found.server.refused.add(login.tokens.access)
    person.store.write(person.binding, replace(login, tokens=replace(login.tokens, got_at=time.time() - 30)))
    begun, go_on = threading.Event(), threading.Event()

    def slow(asked: Asked) -> Any:
        answer = found.issuer.answer(asked)
        begun.set()
        go_on.wait(60)
        return answer

    found.issuer.answers["/token"] = slow
    call = asyncio.create_task(said(peer, "hi"))
    await asyncio.to_thread(begun.wait, 60)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    go_on.set()
    control = await said(peer, "again")
    await peer.close()
    now = person.store.read(person.binding)

    assert "again" == control
    assert now is not None
    assert now.tokens.refresh in found.issuer.refresh
    assert 1 == refreshes(found)


@pytest.mark.claim("P-OAU-14")
async def test_a_token_stays_with_its_origin(found: World, tmp_path: Path) -> None:
    """A redirect of the server to another allowed origin is followed without the token."""
    other = Protected(found.files, found.issuer)
    found.others.append(other)
    person = Person(found, tmp_path)
    await person.log_in()
    peer = await person.connect()
    control = await said(peer, "hi")
    found.server.answers["/mcp"] = lambda _: (307, {"Location": other.mcp}, b"")
    moved = await said(peer, "hi")
    await peer.close()

    assert "hi" == control
    assert other.requests
    assert not [one for one in other.requests if "authorization" in one.headers]
    assert "hi" != moved


async def test_more_scopes_are_a_persons_decision(found: World, tmp_path: Path) -> None:
    """A server that wants more scopes in use gets none; the error names them for whoever decides."""
    person = Person(found, tmp_path)
    await person.log_in()
    wanted, control = await person.call("more"), await person.call("hi")

    assert ("OAU-034", "hi") == (wanted, control)
    assert 1 == len(found.issuer.at("/authorize"))


async def test_nothing_of_a_token_is_recorded(found: World, tmp_path: Path) -> None:
    """Every value is told to those who redact before it is used, and no fact holds one."""
    person = Person(found, tmp_path)
    login = await person.log_in()
    assert isinstance(login, Login)
    await person.call()
    told = await log_out(person.asking, person.store, person.binding)
    facts = str([(fact.name, fact.attrs) for fact in person.recorder.facts])

    assert [(found.issuer.url, True)] == told
    values = (login.tokens.access, login.tokens.refresh)
    assert set(values) <= set(person.known)
    assert not [value for value in (*values, *person.known) if value in facts]
    assert "oauth.token" in facts
    assert repr(login).count(login.tokens.access) == 0


@pytest.mark.claim("P-OAU-01")
async def test_a_store_that_others_may_use_is_refused(found: World, tmp_path: Path) -> None:
    """A file or folder that others may read, a link, a second name, and a file of another login are refused."""
    person = Person(found, tmp_path)
    await person.log_in()
    file, folder = tmp_path / "logins" / person.binding.name, tmp_path / "logins"
    other = replace(person.binding, tenant="other")
    left = folder / f".{person.binding.name}.0123"
    left.write_text("of a process that was killed")
    await person.log_in()
    assert not left.exists()
    outcomes = [await person.call()]
    for mode in (0o604, 0o660):
        file.chmod(mode)
        outcomes.append(await person.call())
    file.chmod(0o600)
    folder.chmod(0o750)
    outcomes.append(await person.call())
    folder.chmod(0o700)
    os.link(file, tmp_path / "second")
    outcomes.append(await person.call())
    (tmp_path / "second").unlink()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    outcomes.append(await person.call())
    file.unlink()
    (tmp_path / "elsewhere").rename(folder / other.name)
    with pytest.raises(SandboxError) as moved:
        person.store.read(other)
    (folder / other.name).rename(file)
    outcomes.append(await person.call())

    assert ["hi", *["OAU-002"] * 5, "hi"] == outcomes
    assert "OAU-003" == moved.value.id
