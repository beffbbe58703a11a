"""What several gateways share for the dialect, on every store: agreements and registrations."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sandbox.dialect import bounds, registrations
from sandbox.dialect.handshake import Offer, SharedAgreements, agree
from sandbox.dialect.jobs.claims import SharedClaims, claim_group
from sandbox.dialect.model import Handshake, Limits
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.registrations import Entry
from sandbox.dialect.shared_registrations import PUBLIC, SharedRegistrations
from sandbox.events import Scope, Trace
from sandbox.serve.identity.model import anonymous
from sandbox.serve.shared.interface import Store, name_of
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.opening import store_of
from sandbox.testing.memory import MemoryRecorder
from tests import stores
from tests.fleet_lab import asked, who

pytestmark = pytest.mark.anyio

KINDS = ("memory", "sqlite", "postgres", "redis")
OFFER = Offer("com.example/x", ("async",), Limits(calls_per_second=1, calls_at_once=1, jobs=1, message_bytes=1))


@pytest.fixture(scope="module", params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Provide what makes handles on one store of each kind; servers are started once."""
    if request.param == "memory":
        yield MemoryStore(time.monotonic)
    elif request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


@pytest.fixture
async def pair(kept: object) -> AsyncIterator[tuple[Store, Store]]:
    """Provide two handles on one store."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Store] = []
        for _ in range(2):
            one: Store = kept if isinstance(kept, MemoryStore) else store_of(str(kept))
            await one.open()
            stack.push_async_callback(one.close)
            found.append(one)
        yield found[0], found[1]


# --- agreements -------------------------------------------------------------------------------------------------------
def agreement() -> Any:
    """Return a fresh agreement."""
    said = Handshake(version="2025-11", client_id="c", server_id="", transport="http", capabilities=("async",))
    return agree(said, OFFER, "http")


async def test_an_agreement_is_known_at_both_and_to_its_owner_only(pair: tuple[Store, Store]) -> None:
    """It is the same at the other gateway; another owner or endpoint, and a name that nobody made, are told alike."""
    one, other = SharedAgreements(pair[0]), SharedAgreements(pair[1])
    made = agreement()
    await one.keep(made, "alice", "acme", "/mcp/x/2025-11")
    found = await other.find(made.session, "alice", "/mcp/x/2025-11")
    refused = []
    for session, owner, base in (
        (made.session, "mallory", "/mcp/x/2025-11"), (made.session, "alice", "/mcp/y/2025-11"),
        (uuid.uuid4(), "alice", "/mcp/x/2025-11"), (None, "alice", "/mcp/x/2025-11"),
    ):  # fmt: skip
        with pytest.raises(DialectRefused) as refusal:
            await other.find(session, owner, base)
        refused.append((refusal.value.id, refusal.value.message))

    assert made == found
    assert {("DIA-005", "there is no such session")} == set(refused)


async def test_agreements_are_counted_over_both_and_end(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant has so many, wherever it made them; one that nobody uses is forgotten, one in use is not."""
    monkeypatch.setattr(bounds, "MAX_SESSIONS_OF_TENANT", 3)
    tenant = str(uuid.uuid4())
    one, other = SharedAgreements(pair[0], 1.5), SharedAgreements(pair[1], 1.5)
    made = [agreement() for _ in range(4)]
    for number in range(3):
        await (one, other)[number % 2].keep(made[number], "alice", tenant, "/x")
    with pytest.raises(DialectRefused, match="DIA-021"):
        await other.keep(made[3], "alice", tenant, "/x")
    await one.keep(made[3], "bob", tenant + "x", "/x")
    for number in range(8):
        await asyncio.sleep(0.25)
        await (one, other)[number % 2].find(made[0].session, "alice", "/x")
    with pytest.raises(DialectRefused, match="DIA-005"):
        await one.find(made[1].session, "alice", "/x")
    await other.keep(agreement(), "alice", tenant, "/x")


# --- registrations ----------------------------------------------------------------------------------------------------
def entry(name: str, visibility: Any = "public", **more: Any) -> Entry:
    """Return a registration."""
    given = {"version": "1", "endpoint": "https://files.example.org/mcp", "auth": "none", "ttl": 60, **more}
    return Entry(server_id=name, visibility=visibility, **given)


def both(pair: tuple[Store, Store], clock: Any = time.time) -> tuple[SharedRegistrations, SharedRegistrations, Any]:
    """Return what two gateways keep, and what they record."""
    recorder = MemoryRecorder()
    scope = Scope(recorder, Trace.new())
    return SharedRegistrations(scope, pair[0], clock), SharedRegistrations(scope, pair[1], clock), recorder


async def code(work: Any) -> str:
    """Return why something is refused, or nothing."""
    try:
        await work
    except DialectRefused as refusal:
        return refusal.id
    return ""


@pytest.mark.claim("P-DIA-21")
async def test_a_registration_is_its_holder_s_at_both_gateways(pair: tuple[Store, Store]) -> None:
    """A private one does not exist for others, a public one is only read and never taken over; its holder may."""
    one, other, recorder = both(pair)
    alice, mallory, base = who(), who(user="mallory"), str(uuid.uuid4())
    public, private = f"{base}/p", f"{base}/q"
    first = await one.register(entry(public), alice)
    await one.register(entry(private, "private"), alice)
    refused = [
        await code(other.register(entry(public, endpoint="https://evil.example"), mallory)),
        await code(other.remove(public, mallory)), await code(other.remove(private, mallory)),
        await code(other.find(private, mallory)), await code(other.find(private, anonymous())),
    ]  # fmt: skip
    seen = [[one["server_id"] for one in await other.listed(person)] for person in (alice, mallory, anonymous())]
    told = await other.find(public, anonymous())
    renewed = await other.register(entry(public, version="2"), alice)
    at_one = await one.find(public, mallory)
    await other.register(entry(public, "private"), alice)
    free = await code(one.register(entry(public), mallory))
    await other.remove(public, alice)
    left = [[one["server_id"] for one in await one.listed(person)] for person in (alice, mallory)]

    assert (60, "unreviewed") == (first["expires_in"], first["review"])
    assert ["DIA-073", "DIA-074", "DIA-074", "DIA-074", "DIA-074"] == refused
    assert [[public, private], [public], [public]] == [[name for name in names if base in name] for names in seen]
    assert ("https://files.example.org/mcp", "2", "2") == (told["endpoint"], renewed["version"], at_one["version"])
    assert "" == free
    assert [{private, public}, {public}] == [{name for name in names if base in name} for names in left]
    assert {"registry.register", "registry.remove"} == {fact.name for fact in recorder.facts}


async def test_of_many_who_want_a_public_name_one_gets_it(pair: tuple[Store, Store]) -> None:
    """Attack: ten holders at once at both gateways; nine are refused, and what is told is the tenth's."""
    one, other, _ = both(pair)
    name, people = f"{uuid.uuid4()}/x", [who(user=f"user-{n}") for n in range(10)]
    tries = [(one, other)[n % 2].register(entry(name, version=f"{n}"), person) for n, person in enumerate(people)]
    said = [await one_code for one_code in asyncio.as_completed([code(one) for one in tries])]
    winner = await other.find(name, anonymous())
    own = [n for n, person in enumerate(people) if not await code(one.remove(name, person))]

    assert ["", *["DIA-073"] * 9] == sorted(said)
    assert [winner["version"]] == [f"{n}" for n in own]


async def test_registrations_of_a_tenant_are_counted_over_both(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its bound a tenant renews what it has and adds nothing, at either; what was refused leaves no name behind."""
    monkeypatch.setattr(registrations, "MAX_OF_TENANT", 2)
    one, other, _ = both(pair)
    base = str(uuid.uuid4())
    alice, bob = who(tenant=base), who(tenant=base + "x")
    said = [
        await code((one, other)[n % 2].register(entry(f"{base}/{number}"), alice))
        for n, number in enumerate((1, 2, 3, 1, 2, 3))
    ]
    after = await code(one.register(entry(f"{base}/3"), bob))

    assert ["", "", "DIA-072", "", "", "DIA-072"] == said
    assert "" == after


async def test_the_store_learns_neither_tenants_nor_users(pair: tuple[Store, Store]) -> None:
    """What is kept of agreements, requests and registrations names nobody; digests do."""
    one, _, _ = both(pair)
    person = who(tenant="secret-tenant", user="secret-user")
    made = agreement()
    await one.register(entry(f"{uuid.uuid4()}/x"), person)
    await SharedAgreements(pair[0]).keep(made, person.owner, person.tenant.tenant, "/x")
    request = asked(person)
    async with SharedClaims(pair[0], "aaaaaaaaaaaa").claimed(request):
        pass
    kept: list[Any] = await pair[1].all("public", PUBLIC)
    kept += await pair[1].all("registration", name_of("registrations", "secret-tenant"))
    kept += await pair[1].all("agreement", name_of("agreements", "secret-tenant"))
    kept += await pair[1].all("request", claim_group(request.identity.owner, request.door))
    text = repr(kept)

    assert len(kept) >= 4
    assert [] == [word for word in ("secret-tenant", "secret-user", str(made.session)) if word in text]
    assert request.request_id not in text


@pytest.mark.claim("P-DIA-21")
async def test_what_nobody_renews_ends_at_both_and_is_recorded_once() -> None:
    """Renewed at the other gateway it goes on; without a renewal it is gone at both, and its name is free."""
    now = 1000.0
    store = MemoryStore(lambda: now)
    one, other, recorder = both((store, store), lambda: now)
    alice, bob = who(), who(user="bob")
    await one.register(entry("a/x"), alice)
    now += 50
    await other.register(entry("a/x"), alice)
    now += 50
    still = [(await each.find("a/x", bob))["expires_in"] for each in (one, other)]
    now += 10
    gone = [await code(each.find("a/x", person)) for each in (one, other) for person in (alice, bob)]
    listed = [await each.listed(alice) for each in (one, other)]
    free = await code(one.register(entry("a/x"), bob))
    ended = [fact.attrs["server"] for fact in recorder.facts if fact.name == "registry.expire"]

    assert ([10, 10], ["DIA-074"] * 4, [[], []], "", ["a/x"]) == (still, gone, listed, free, ended)
