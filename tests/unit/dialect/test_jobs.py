"""Jobs: polled, cancelled, owned, bounded, and what a restart makes of each state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.dialect.bounds import JobBounds
from sandbox.dialect.invoke import Outcome
from sandbox.dialect.jobs.model import Asked
from sandbox.dialect.jobs.store import JobStore
from sandbox.dialect.refusals import DialectRefused
from sandbox.errors import PlatformError
from sandbox.serve.identity.model import Access, Identity, owner_of
from sandbox.tenant import TenantContext, TenantId
from tests.dialect_lab import CLOSED, OPEN, dialect_lab, invocation, until
from tests.gateway_lab import request

LOST = Outcome(failure={"id": "DIA-014", "message": "interrupted"})


def asked(number: int = 1, tenant: str = "acme", **more: object) -> Asked:
    """Return something that is asked for as a job."""
    identity = Identity(
        TenantContext(TenantId(tenant), "alice", {"org": "x"}, "token"), frozenset(("a",)), owner_of(tenant)
    )
    made = Asked("dialect", str(uuid.UUID(int=number)), "/mcp/open", "tool", identity, {"arguments": {}}, "d", 60.0)
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_job_is_taken_polled_and_answered(tmp_path: Path) -> None:
    """The handle says where and when to ask; the outcome is that of the call."""
    async with dialect_lab(tmp_path) as lab:
        alice = lab.stage.token()
        taken = await lab.invoke(CLOSED, alice, mode="async", a=5)
        handle = taken.json()
        said = await lab.ended(handle["job_id"], CLOSED, alice)
        listed = (await lab.send("GET", CLOSED + "/jobs/", token=alice)).json()["jobs"]

    assert (202, "in_progress", 2.0) == (taken.status_code, handle["status"], handle["poll_after"])
    assert f"{CLOSED}/jobs/{handle['job_id']}" == taken.headers["location"]
    assert ("success", 5, handle["request_id"]) == (said["status"], said["result"]["a"], said["request_id"])
    assert [handle["job_id"]] == [one["job_id"] for one in listed]
    assert [{"a": 5}] == lab.stage.server.calls


@pytest.mark.claim("P-DIA-02")
@pytest.mark.anyio
async def test_somebody_else_s_job_does_not_exist(tmp_path: Path) -> None:
    """Another tenant, another subject and another endpoint are told what is told of no job; its owner goes on."""
    async with dialect_lab(tmp_path) as lab:
        alice = lab.stage.token()
        others = [
            lab.stage.token(tenant="other"), lab.stage.token(sub="bob"), lab.stage.token(client_id="another-client"),
        ]  # fmt: skip
        job = (await lab.invoke(CLOSED, alice, mode="async", slow=True)).json()["job_id"]
        nothing = await lab.send("GET", f"{CLOSED}/jobs/{uuid.uuid4()}", token=alice)
        for token in others:
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                answer = await lab.send(method, f"{CLOSED}/jobs/{job}{path}", token=token)
                assert (404, nothing.json()["error"]) == (answer.status_code, answer.json()["error"])
            assert [] == (await lab.send("GET", CLOSED + "/jobs/", token=token)).json()["jobs"]
        elsewhere = await lab.send("GET", f"{OPEN}/jobs/{job}")
        said = await lab.ended(job, CLOSED, alice)

    assert (404, "success") == (elsewhere.status_code, said["status"])


@pytest.mark.claim("P-DIA-02")
@pytest.mark.anyio
async def test_who_has_no_credential_is_told_of_no_job_but_by_its_id(tmp_path: Path) -> None:
    """Where nobody signs in, nobody learns of the jobs and tasks of others; who knows an id has its job."""
    async with dialect_lab(tmp_path) as lab:
        job = (await lab.invoke(mode="async", a=5)).json()["job_id"]
        said = await lab.ended(job)
        headers = await lab.stage.session()
        listed = (await lab.send("GET", OPEN + "/jobs/")).json()["jobs"]
        tasks = (await lab.stage.post("/mcp/open", request("tasks/list"), **headers)).json()["result"]["tasks"]

    assert ("success", [], []) == (said["status"], listed, tasks)


@pytest.mark.anyio
async def test_a_renewed_token_of_the_same_holder_finds_its_jobs(tmp_path: Path) -> None:
    """What counts is who holds the token, not which token it is."""
    async with dialect_lab(tmp_path) as lab:
        job = (await lab.invoke(CLOSED, lab.stage.token(), mode="async")).json()["job_id"]
        said = await lab.ended(job, CLOSED, lab.stage.token(jti="renewed"))

    assert "success" == said["status"]


@pytest.mark.anyio
async def test_a_cancelled_job_stays_cancelled_and_its_server_is_told(tmp_path: Path) -> None:
    """One that runs is cancelled at its server, one that waits never reaches it, one that ended stays as it was."""
    async with dialect_lab(tmp_path, jobs=JobBounds(running=1)) as lab:
        lab.stage.server.slow = 10.0
        session = await lab.session()
        jobs = [(await lab.invoke(session=session, mode="async", slow=True)).json()["job_id"] for _ in range(2)]
        await until(lambda: bool(lab.stage.server.calls))
        waiting = await lab.send("DELETE", f"{OPEN}/jobs/{jobs[1]}")
        running = await lab.send("POST", f"{OPEN}/jobs/{jobs[0]}/cancel")
        await until(lambda: bool(lab.stage.server.cancelled))
        quick = (await lab.invoke(session=session, mode="async")).json()["job_id"]
        done = await lab.ended(quick)
        late = await lab.send("DELETE", f"{OPEN}/jobs/{quick}")

    assert ["DIA-016"] * 2 == [one.json()["error"]["id"] for one in (waiting, running)]
    assert "success" == done["status"] == late.json()["status"]
    assert 2 == len(lab.stage.server.calls)


@pytest.mark.anyio
async def test_the_same_request_gives_the_same_job_and_another_none(tmp_path: Path) -> None:
    """A client that lost the answer may repeat its request; another request under that id is refused."""
    async with dialect_lab(tmp_path) as lab:
        body = invocation(await lab.session(), mode="async", a=1)
        first, again = [await lab.send("POST", OPEN + "/invoke", body) for _ in range(2)]
        other = await lab.send("POST", OPEN + "/invoke", {**body, "arguments": {"a": 2}})
        await lab.ended(first.json()["job_id"])

    assert first.json()["job_id"] == again.json()["job_id"]
    assert (409, "DIA-009") == (other.status_code, other.json()["error"]["id"])
    assert [{"a": 1}] == lab.stage.server.calls


@pytest.mark.anyio
async def test_no_job_without_its_capability_and_none_beyond_the_bound(tmp_path: Path) -> None:
    """`async` has to be agreed, and one tenant has so many unfinished jobs and no more."""
    async with dialect_lab(tmp_path, jobs=JobBounds(unfinished=2)) as lab:
        lab.stage.server.slow = 5.0
        without, session = await lab.session(capabilities=[]), await lab.session()
        refused = await lab.invoke(session=without, mode="async")
        answers = [await lab.invoke(session=session, mode="async", slow=True) for _ in range(3)]

    assert (403, "DIA-008") == (refused.status_code, refused.json()["error"]["id"])
    assert [202, 202, 429] == [one.status_code for one in answers]
    assert "DIA-015" == answers[2].json()["error"]["id"]


@pytest.mark.anyio
async def test_jobs_of_one_tenant_take_turns(tmp_path: Path) -> None:
    """No more of a tenant's jobs run at once than the bound says."""
    async with dialect_lab(tmp_path, jobs=JobBounds(running=2)) as lab:
        session = await lab.session()
        jobs = [(await lab.invoke(session=session, mode="async", slow=True)).json()["job_id"] for _ in range(5)]
        await until(lambda: len(lab.stage.server.calls) == 2)
        await asyncio.sleep(0.1)
        early = len(lab.stage.server.calls)
        said = [await lab.ended(job) for job in jobs]

    assert (2, 5) == (early, len(lab.stage.server.calls))
    assert {"success"} == {one["status"] for one in said}


# --- on disk ---
def test_a_crash_makes_of_each_state_what_is_promised(tmp_path: Path) -> None:
    """Waiting runs later, running is lost unless idempotent, ended stays; arguments that may not be used are gone."""
    path = tmp_path / "jobs"
    store = JobStore(path)
    jobs = [store.add(asked(number), 1.0)[0] for number in range(4)]
    assert store.begin(jobs[1].id, idempotent=False, now=2.0)
    assert store.begin(jobs[2].id, idempotent=True, now=2.0)
    store.begin(jobs[3].id, idempotent=False, now=2.0)
    store.end(jobs[3].id, "success", Outcome({"structuredContent": {}}), 3.0)
    store.close()

    store = JobStore(path)
    again, lost = store.recover(LOST, 3, 4.0)
    owner = asked().identity.owner
    found = [store.find(job.id, owner, "/mcp/open", 5.0) for job in jobs]

    assert ([jobs[2].id], [jobs[1].id]) == ([one.id for one in again], [one.id for one in lost])
    assert ["waiting", "error", "waiting", "success"] == [one.state for one in found if one]
    assert [True, False, True, False] == [one.params is not None for one in found if one]
    assert found[0] is not None
    assert jobs[0].identity == found[0].identity
    store.close()


def test_an_idempotent_job_that_ends_the_gateway_is_not_repeated_for_ever(tmp_path: Path) -> None:
    """After the third time its call went out it is lost like any other."""
    path = tmp_path / "jobs"
    outcomes = []
    for _ in range(4):
        store = JobStore(path)
        again, lost = store.recover(LOST, 3, 1.0)
        outcomes.append((len(again), len(lost)))
        job = store.add(asked(), 1.0)[0]
        store.begin(job.id, idempotent=True, now=1.0)
        store.close()

    assert [(0, 0), (1, 0), (1, 0), (0, 1)] == outcomes


def test_a_file_belongs_to_one_gateway_and_to_its_user(tmp_path: Path) -> None:
    """A second gateway is refused while the first has it; nobody else may read it."""
    store = JobStore(tmp_path / "state" / "jobs")
    with pytest.raises(PlatformError, match="DIA-019"):
        JobStore(tmp_path / "state" / "jobs")
    modes = {one.name: one.stat().st_mode & 0o077 for one in (tmp_path / "state").iterdir()}
    store.close()
    JobStore(tmp_path / "state" / "jobs").close()

    assert {0} == set(modes.values())


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_what_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file that is something else is left as it was."""
    path = tmp_path / "jobs"
    path.write_bytes(content)

    with pytest.raises(PlatformError, match="DIA-019"):
        JobStore(path)
    assert content == path.read_bytes()


def test_outcomes_end_with_their_time_and_have_a_size(tmp_path: Path) -> None:
    """What is over is not found even before it is deleted; what is too large is told as an error."""
    store = JobStore(tmp_path / "jobs", JobBounds(result=200, arguments=100))
    job, owner = store.add(asked(), 0.0)[0], asked().identity.owner
    store.end(job.id, "success", Outcome({"content": ["x" * 500]}), 10.0)
    kept = store.find(job.id, owner, "/mcp/open", 69.0)
    gone = store.find(job.id, owner, "/mcp/open", 70.0)
    deleted = store.expire(70.0)
    with pytest.raises(DialectRefused, match="DIA-017"):
        store.add(asked(2, params={"arguments": "x" * 200}), 0.0)
    store.close()

    assert kept is not None
    assert kept.outcome is not None
    assert ("error", "DIA-017") == (kept.state, (kept.outcome.failure or {})["id"])
    assert (None, 1) == (gone, deleted)


@pytest.mark.claim("P-DIA-01")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "begin", "end", "cancel", "crash"]), st.integers(0, 3)), max_size=25))
def test_no_call_that_is_not_idempotent_ever_goes_out_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Whatever happens in whatever order, `begin` says yes once for each job, and an end is final."""
    path = tmp_path_factory.mktemp("jobs") / "jobs"
    store, begun, ended = JobStore(path), dict.fromkeys(range(4), 0), dict[int, str]()
    for step, number in steps:
        job = str(uuid.UUID(int=number + 100))
        match step:
            case "add":
                store.add(asked(number, id=job), time.time())
            case "begin":
                begun[number] += store.begin(job, idempotent=False, now=time.time())
            case "end" | "cancel":
                state = "success" if step == "end" else "cancelled"
                if store.end(job, state, Outcome({}), time.time()):  # type: ignore[arg-type]
                    assert number not in ended
                    ended[number] = state
            case _:
                store.close()
                store = JobStore(path)
                for one in store.recover(LOST, 3, time.time())[1]:
                    ended[uuid.UUID(one.id).int - 100] = "error"
    found = {
        n: store.find(str(uuid.UUID(int=n + 100)), asked().identity.owner, "/mcp/open", time.time()) for n in ended
    }
    store.close()

    assert max(begun.values()) <= 1
    assert ended == {number: one.state for number, one in found.items() if one is not None}


@pytest.mark.anyio
async def test_a_job_runs_for_who_may_still_use_its_endpoint_only(tmp_path: Path) -> None:
    """A job that waited is refused when the endpoint has come to ask for more than its owner has."""
    async with dialect_lab(tmp_path, jobs=JobBounds(running=1)) as lab:
        token = lab.stage.token()
        session = await lab.session(CLOSED, token)
        first = (await lab.invoke(CLOSED, token, session, mode="async", slow=True)).json()["job_id"]
        second = (await lab.invoke(CLOSED, token, session, mode="async")).json()["job_id"]
        await until(lambda: bool(lab.stage.server.calls))
        endpoint = lab.stage.app.endpoints["/mcp/closed"]
        endpoint.door.access = Access(anonymous=False, scopes=("admin",))
        more = lab.stage.token(scope="admin")
        said = [await lab.ended(job, CLOSED, more) for job in (first, second)]

    assert "success" == said[0]["status"]
    assert "DIA-027" == said[1]["error"]["id"]
    assert 1 == len(lab.stage.server.calls)


@pytest.mark.anyio
async def test_a_restart_takes_up_what_waited(tmp_path: Path) -> None:
    """What an orderly end left waiting is carried out by the next gateway, for the same owner, and found by it."""
    async with dialect_lab(tmp_path, jobs=JobBounds(running=1), drain=0.1) as lab:
        lab.stage.server.slow = 30.0
        session = await lab.session()
        jobs = [(await lab.invoke(session=session, mode="async", slow=True)).json()["job_id"] for _ in range(3)]
        await until(lambda: bool(lab.stage.server.calls))
    async with dialect_lab(tmp_path) as lab:
        said = [await lab.ended(job) for job in jobs]
        recovered = lab.stage.facts("job.recover")

    assert "DIA-014" == said[0]["error"]["id"]
    assert ["success", "success"] == [one["status"] for one in said[1:]]
    assert [(jobs[0], "interrupted")] == [(one["job"], one["how"]) for one in recovered]
    assert 2 == len(lab.stage.server.calls)


@pytest.mark.anyio
async def test_no_job_is_taken_that_cannot_be_recorded(tmp_path: Path) -> None:
    """Without the trail nothing is kept and nothing runs; with it the same request is taken."""
    async with dialect_lab(tmp_path) as lab:
        session = await lab.session()
        lab.stage.recorder.fails_at = frozenset(("job.accept",))
        refused = await lab.invoke(session=session, mode="async")
        listed = (await lab.send("GET", OPEN + "/jobs/")).json()["jobs"]
        lab.stage.recorder.fails_at = frozenset()
        taken = await lab.invoke(session=session, mode="async")
        await lab.ended(taken.json()["job_id"])

    assert (500, "GATE-037", []) == (refused.status_code, refused.json()["error"]["id"], listed)
    assert (202, 1) == (taken.status_code, len(lab.stage.server.calls))


@pytest.mark.anyio
async def test_numbers_of_any_size_are_exact_in_answers_and_outcomes(tmp_path: Path) -> None:
    """Integers beyond 64 bits come back as they went, at once and after a while on disk."""
    number = 2**70 + 1
    async with dialect_lab(tmp_path) as lab:
        session = await lab.session()
        body = json.dumps(invocation(session, a=number)).encode()
        at_once = await lab.send("POST", OPEN + "/invoke", body)
        later = json.dumps(invocation(session, mode="async", a=number)).encode()
        job = (await lab.send("POST", OPEN + "/invoke", later)).json()["job_id"]
        said = await lab.ended(job)

    assert number == json.loads(at_once.content)["result"]["a"] == said["result"]["a"]


@pytest.mark.anyio
async def test_a_list_of_jobs_reads_neither_their_arguments_nor_their_results(tmp_path: Path) -> None:
    """However large results are, a list says how jobs ended and holds none of them in memory."""
    big: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "x" * 200_000}]}}
    ends = [("success", Outcome(result=big["result"])), ("error", Outcome(result={**big["result"], "isError": True}))]
    async with dialect_lab(tmp_path) as lab:
        alice = lab.stage.token()
        jobs = [(await lab.invoke(CLOSED, alice, mode="async", a="y" * 9000)).json()["job_id"] for _ in range(3)]
        for job in jobs:
            await lab.ended(job, CLOSED, alice)
    with contextlib.closing(JobStore(tmp_path / "jobs.sqlite")) as store:
        for job, (state, outcome) in zip(jobs, ends, strict=False):
            values = (state, json.dumps(asdict(outcome)).encode(), job)
            store._db.execute("UPDATE jobs SET state=?, outcome=? WHERE id=?", values)
        owner, door = store._db.execute("SELECT owner, door FROM jobs").fetchone()
        listed = [job for _, job in store.of(owner, door, time.time())]
    async with dialect_lab(tmp_path) as lab:
        said = (await lab.send("GET", CLOSED + "/jobs/", token=lab.stage.token())).json()["jobs"]
        whole = await lab.ended(jobs[0], CLOSED, lab.stage.token())

    assert [(job, how) for job, how in zip(jobs, ("success", "error", "success"), strict=True)] == [
        (one["job_id"], one["status"]) for one in said
    ]
    assert all(len(repr(job)) < 8192 and job.params is None for job in listed)
    assert 200_000 == len(whole["result"]["content"][0]["text"])
