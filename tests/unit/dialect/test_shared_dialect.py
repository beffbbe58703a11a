"""What several gateways share for the dialect, on every store: claims of requests, agreements, registrations."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.dialect import bounds, registrations
from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.handshake import Offer, SharedAgreements, agree
from sandbox.dialect.invoke import Outcome
from sandbox.dialect.jobs.claims import CLAIM, SharedClaims, claim_group, keeper_of
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.model import Handshake, Limits
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.registrations import SCOPE, Entry
from sandbox.dialect.shared_registrations import PUBLIC, SharedRegistrations
from sandbox.events import Scope, Trace
from sandbox.serve.identity.model import Identity, anonymous, owner_of
from sandbox.serve.shared.interface import Store, name_of
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.opening import store_of
from sandbox.tenant import TenantContext, TenantId
from sandbox.testing.memory import MemoryRecorder
from tests import stores

pytestmark = pytest.mark.anyio

KINDS = ("memory", "sqlite", "postgres", "redis")
A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
"""Names of two gateways' files of jobs."""

LOST = Outcome(failure={"id": "DIA-014", "message": "interrupted"})
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


def who(tenant: str = "acme", user: str = "alice") -> Identity:
    """Return somebody who may register servers."""
    owner = owner_of("issuer", tenant, user, "client")
    return Identity(TenantContext(TenantId(tenant), user), frozenset((SCOPE,)), owner)


def asked(identity: Identity | None = None) -> Asked:
    """Return a fresh request for a job."""
    given = identity or who(tenant=str(uuid.uuid4()))
    return Asked("dialect", str(uuid.uuid4()), "/mcp/x", "tool", given, {"arguments": {}}, "digest", 60.0)


async def take(claims: SharedClaims, request: Asked) -> str:
    """Take a request as a gateway does; return its id, or why it was refused."""
    try:
        async with claims.claimed(request):
            return claims.fresh()
    except DialectRefused as refusal:
        return refusal.id


def job_of(request: Asked) -> Job:
    """Return the job of a request."""
    owner = request.identity.owner
    return Job(
        str(uuid.uuid4()), request.kind, request.request_id, request.door, request.tool, owner, request.identity, {},
        "d", "waiting", 0.0, 0.0, 60.0,
    )  # fmt: skip


# --- claims -----------------------------------------------------------------------------------------------------------
async def test_of_two_gateways_one_takes_a_request(pair: tuple[Store, Store]) -> None:
    """Attack: the same request twenty times at once at both. One gateway takes each of them, the other none."""
    one, other = SharedClaims(pair[0], A), SharedClaims(pair[1], B)
    request = asked()
    said = await asyncio.gather(*(take((one, other)[n % 2], request) for n in range(20)))
    fresh = await take(other, asked(request.identity))
    keepers = {keeper_of(job) for job in said if job != "DIA-081"}
    known = await one.keeper(request.identity.owner, request.door, request.request_id)

    assert (10, {known}) == (said.count("DIA-081"), keepers)
    assert B == keeper_of(fresh)
    assert {known, B} == await one.keepers(request.identity.owner, request.door)


async def test_what_was_not_taken_may_be_taken_elsewhere(pair: tuple[Store, Store]) -> None:
    """A gateway that has no room gives the claim back; one that took the request before keeps it."""
    one, other = SharedClaims(pair[0], A), SharedClaims(pair[1], B)
    refused, taken = asked(), asked()
    await take(one, taken)
    for request in (refused, taken):
        with contextlib.suppress(ZeroDivisionError):
            async with one.claimed(request):
                raise ZeroDivisionError

    assert B == keeper_of(await take(other, refused))
    assert "DIA-081" == await take(other, taken)


async def test_a_call_goes_out_only_under_its_own_claim(pair: tuple[Store, Store]) -> None:
    """A claim that the store has lost is made again, and one that has become another's holds the call back."""
    one, other = SharedClaims(pair[0], A), SharedClaims(pair[1], B)
    request = asked()
    job = job_of(request)
    await take(one, request)
    at_first = await one.held(job)
    name = (await pair[0].all("request", request_group(request)))[0].name
    await pair[1].drop("request", name)
    made_again = await one.held(job), await take(other, request)
    await pair[1].drop("request", name)
    await take(other, request)

    assert (True, (True, "DIA-081"), False) == (at_first, made_again, await one.held(job))
    assert await other.held(job)


def request_group(request: Asked) -> str:
    """Return the group of a request's claim."""
    return claim_group(request.identity.owner, request.door)


def test_ids_name_the_file_that_keeps_the_job_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    """They are UUIDs of version 8 by chance; a file has one name, another file another, and other ids name none."""
    names = []
    for file in ("a", "a", "b"):
        store = JobStore(tmp_path / file, JobBounds())
        names.append(store.name())
        store.close()
    ids = [SharedClaims(MemoryStore(time.monotonic), names[0]).fresh() for _ in range(200)]

    assert (names[0], 2) == (names[1], len(set(names)))
    assert ({names[0]}, {8}) == ({keeper_of(one) for one in ids}, {uuid.UUID(one).version for one in ids})
    assert {uuid.RFC_4122} == {uuid.UUID(one).variant for one in ids}
    assert 200 == len({one[24:] for one in ids})
    assert ["", "", ""] == [keeper_of(one) for one in ("", "../x", str(uuid.uuid4()))]


STEPS = st.lists(
    st.tuples(st.sampled_from(("take", "start", "end", "crash", "lapse")), st.integers(0, 1), st.integers(0, 2)),
    max_size=24,
)
"""What is done, at which of two gateways, with which of three requests."""


class Two:
    """Two gateways with a file of jobs each, and what their jobs called.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        self.now, self.calls = 0.0, [0, 0, 0]
        self.files = [folder / "a", folder / "b"]
        self.kept = [JobStore(file) for file in self.files]
        store = MemoryStore(lambda: self.now)
        self.claims = [SharedClaims(store, one.name()) for one in self.kept]
        self.requests, self.jobs = [asked() for _ in range(3)], dict[tuple[int, int], str]()

    async def step(self, step: str, gateway: int, number: int) -> None:
        """Do one thing, as a gateway does it."""
        kept, job = self.kept[gateway], self.jobs.get((gateway, number), "")
        match step:
            case "take":
                with contextlib.suppress(DialectRefused):
                    async with self.claims[gateway].claimed(self.requests[number]):
                        fresh = replace(self.requests[number], id=self.claims[gateway].fresh())
                        self.jobs[gateway, number] = kept.add(fresh, 1.0)[0].id
            case "start":
                await self.start(gateway, number)
            case "end":
                kept.end(job, "success", LOST, 1.0)
            case "crash":
                kept.close()
                self.kept[gateway] = JobStore(self.files[gateway])
                self.kept[gateway].recover(LOST, 3, 1.0)
            case _ if not any(self.calls):
                self.now += CLAIM + 1

    async def start(self, gateway: int, number: int) -> None:
        """Let the call of a job go out, if it may."""
        kept, request = self.kept[gateway], self.requests[number]
        job = kept.find(self.jobs.get((gateway, number), ""), request.identity.owner, request.door, 1.0)
        if job is not None and await self.claims[gateway].held(job):
            self.calls[number] += kept.begin(job.id, idempotent=False, now=1.0)


@pytest.mark.claim("P-DIA-30")
@settings(max_examples=30, deadline=None)
@example([("take", 0, 0), ("take", 1, 0), ("start", 0, 0), ("start", 1, 0)])
@example([("take", 0, 0), ("lapse", 0, 0), ("take", 1, 0), ("start", 1, 0), ("crash", 0, 0), ("start", 0, 0)])
@given(steps=STEPS)
def test_of_each_request_one_call_goes_out_in_every_interleaving(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """Requests are repeated anywhere, gateways crash and claims lapse before a call: no tool is called twice."""
    two = Two(tmp_path_factory.mktemp("interleaved"))

    async def run() -> None:
        for one in steps:
            await two.step(*one)

    asyncio.run(run())
    for one in two.kept:
        one.close()

    assert max(two.calls) <= 1


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
    await take(SharedClaims(pair[0], A), request)
    kept: list[Any] = await pair[1].all("public", PUBLIC)
    kept += await pair[1].all("registration", name_of("registrations", "secret-tenant"))
    kept += await pair[1].all("agreement", name_of("agreements", "secret-tenant"))
    kept += await pair[1].all("request", request_group(request))
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
