"""Who of several gateways took a request as a job, on every store, in every interleaving."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.invoke import Outcome
from sandbox.dialect.jobs.claims import CLAIM, SharedClaims, claim_group, keeper_of
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.refusals import DialectRefused
from sandbox.serve.shared.interface import Store
from sandbox.serve.shared.memory import MemoryStore
from sandbox.serve.shared.opening import store_of
from tests import stores
from tests.fleet_lab import asked

pytestmark = pytest.mark.anyio

KINDS = ("memory", "sqlite", "postgres", "redis")
A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
"""Names of two gateways' files of jobs."""

LOST = Outcome(failure={"id": "DIA-014", "message": "interrupted"})


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
