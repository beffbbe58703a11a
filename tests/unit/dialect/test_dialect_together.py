"""The dialect at two gateways on one store: what its client sees through a balancer is one gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.dialect.jobs import desk
from sandbox.dialect.jobs.claims import SharedClaims
from sandbox.dialect.registrations import SCOPE
from sandbox.errors import PlatformError
from sandbox.serve.http.app import App
from sandbox.serve.http.together import MARK
from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.memory import MemoryStore
from tests import stores
from tests.dialect_lab import DialectLab, invocation, shake, until
from tests.gateway_lab import request
from tests.together_lab import Member, Options, again, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

FREE, HOME, ALL = "/mcp/open/2025-11", "/mcp/closed/2025-11", "/mcp/2025-11"
"""Below the endpoints of a driver that is declared stateless, of one that is not, and of both."""


@pytest.fixture(scope="module", params=("sqlite", "postgres", "redis"))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the URL of a store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


class Pair:
    """Two gateways as a client sees them, and as they are."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.one, self.other = (DialectLab(member) for member in members)
        self.server = members[0].server

    def token(self, tenant: str = "acme", **claims: Any) -> str:
        """Return a token for every endpoint of both."""
        return self.members[0].token(tenant=tenant, **claims)


@contextlib.asynccontextmanager
async def fleet(folder: Path, store: str = "", jobs: JobBounds | None = None, **more: Any) -> AsyncIterator[Pair]:
    """Open two gateways that speak the dialect, each with a file of jobs of its own."""

    def speaks(app: App, number: int) -> Any:
        file = folder / f"jobs-{number}.sqlite"
        known = Dialect(
            "com.example", file, Rate(1000, 1000), lambda _name: True, registry=True, bounds=jobs or JobBounds()
        )
        return speaking(app, known)

    options = Options(speaks=speaks, sockets=MAX_MESSAGE, **more)
    async with together(store or f"sqlite://{folder}/state.db", options=options) as members:
        yield Pair(members)


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """Return status and id of a refusal."""
    return answer.status_code, answer.json()["error"]["id"]


async def wait_ended(at: DialectLab, job: str, base: str, token: str) -> dict[str, Any]:
    """Poll a job, also while its gateway is away, until it has ended."""
    async with asyncio.timeout(60):
        while True:
            answer = await at.send("GET", f"{base}/jobs/{job}", token=token)
            if answer.status_code == 200 and answer.json()["status"] != "in_progress":
                return dict(answer.json())
            await asyncio.sleep(0.05)


# --- one gateway to its clients ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("base", [FREE, HOME, ALL], ids=["stateless", "at-home", "aggregate"])
async def test_each_request_may_come_to_another_gateway(tmp_path: Path, url: str, base: str) -> None:
    """Shaken hands here, called there, asked for the job here, listed and cancelled there; calls and files as well."""
    tool = "open__tool" if base == ALL else "tool"
    async with fleet(tmp_path, url) as pair:
        alice = pair.token(tenant=f"round-{base[5:9]}")
        session = await pair.one.session(base, alice)
        call = {"tool": tool}
        results = [await at.invoke(base, alice, session, a=1, **call) for at in (pair.other, pair.one)]
        files = [await at.send("GET", f"{base}/tools/", token=alice) for at in (pair.other, pair.one)]
        about = [await at.send("GET", f"{base}/metadata", token=alice) for at in (pair.other, pair.one)]
        first = await pair.other.invoke(base, alice, session, mode="async", a=2, **call)
        second = await pair.one.invoke(base, alice, session, mode="async", a=3, **call)
        jobs = [answer.json()["job_id"] for answer in (first, second)]
        said = [await at.ended(job, base, alice) for job in jobs for at in (pair.one, pair.other)]
        listed = [(await at.send("GET", f"{base}/jobs/", token=alice)).json() for at in (pair.one, pair.other)]
        pair.server.slow = 30.0
        long = (await pair.one.invoke(base, alice, session, mode="async", slow=True, **call)).json()["job_id"]
        await until(lambda: len(pair.server.calls) == 5)
        cancelled = await pair.other.send("DELETE", f"{base}/jobs/{long}", token=alice)
        await until(lambda: bool(pair.server.cancelled))
        seen = await pair.one.send("GET", f"{base}/jobs/{long}", token=alice)

    assert [(200, 1)] * 2 == [(one.status_code, one.json()["result"]["a"]) for one in results]
    assert files[0].json() == files[1].json()
    assert about[0].json() == about[1].json()
    assert [202, 202] == [first.status_code, second.status_code]
    assert [2, 2, 3, 3] == [one["result"]["a"] for one in said]
    assert listed[0] == listed[1]
    assert set(jobs) == {one["job_id"] for one in listed[0]["jobs"]}
    assert ["DIA-016"] * 2 == [one.json()["error"]["id"] for one in (cancelled, seen)]
    assert all(one.headers["x-mcp-limit"] for one in (*results, first, second, cancelled, *files))
    if base == HOME:
        assert 1 == pair.server.starts, "the tenant's server ran twice"


async def test_progress_comes_through_another_gateway(tmp_path: Path) -> None:
    """Events of a call at home arrive one by one, and the response last; a client that leaves ends its call there."""
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        await pair.one.invoke(HOME, alice)
        session = await pair.other.session(HOME, alice)
        body = invocation(session, steps=2, slow=True)
        streamed = await pair.other.send("POST", HOME + "/invoke", body, alice, {"accept": "text/event-stream"})
        pair.server.slow = 30.0
        with contextlib.suppress(asyncio.TimeoutError):
            leaving = pair.other.send("POST", HOME + "/invoke", invocation(session, slow=True), alice)
            await asyncio.wait_for(leaving, 0.5)
        await until(lambda: bool(pair.server.cancelled))

    assert "text/event-stream" == streamed.headers["content-type"]
    assert (2, 1) == (streamed.text.count("event: progress"), streamed.text.count("event: response"))


@pytest.mark.claim("P-DIA-30")
async def test_a_repeated_request_is_one_job_whichever_gateway_it_comes_to(tmp_path: Path, url: str) -> None:
    """Attack: the same request twenty times at once at both. One call goes out; who lost the race may ask again."""
    async with fleet(tmp_path, url) as pair:
        for base in (FREE, HOME):
            alice = pair.token(tenant=f"repeat-{base[5:9]}")
            session, before = await pair.one.session(base, alice), len(pair.server.calls)
            body = invocation(session, mode="async", a=1)
            sent = [(pair.one, pair.other)[n % 2].send("POST", base + "/invoke", body, alice) for n in range(20)]
            answers = await asyncio.gather(*sent)
            answers += [await at.send("POST", base + "/invoke", body, alice) for at in (pair.one, pair.other)]
            jobs = {one.json()["job_id"] for one in answers if one.status_code < 300}
            other = {**body, "arguments": {"a": 2}}
            misused = [await at.send("POST", base + "/invoke", other, alice) for at in (pair.one, pair.other)]
            said = [await at.ended(next(iter(jobs)), base, alice) for at in (pair.one, pair.other)]

            assert 1 == len(jobs)
            assert {"DIA-081"} >= {one.json()["error"]["id"] for one in answers if one.status_code >= 300}
            assert {200, 202} >= {one.status_code for one in answers[-2:]}
            assert [(409, "DIA-009")] * 2 == [error_of(one) for one in misused]
            assert {"success"} == {one["status"] for one in said}
            assert 1 == len(pair.server.calls) - before


# --- whose it is ------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-DIA-02")
@pytest.mark.parametrize("base", [FREE, HOME], ids=["stateless", "at-home"])
async def test_somebody_else_s_job_and_session_do_not_exist_at_either_gateway(tmp_path: Path, base: str) -> None:
    """Attack: another tenant's, user's or client's token, with ids that name the gateway; its owner goes on."""
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        session = await pair.one.session(base, alice)
        job = (await pair.one.invoke(base, alice, session, mode="async", slow=True)).json()["job_id"]
        nothing = await pair.one.send("GET", f"{base}/jobs/{uuid.uuid4()}", token=alice)
        strangers = [pair.token("other"), pair.token(sub="bob"), pair.token(client_id="another-client")]
        for stranger in strangers:
            for at in (pair.one, pair.other):
                for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                    answer = await at.send(method, f"{base}/jobs/{job}{path}", token=stranger)
                    assert (404, nothing.json()["error"]) == (answer.status_code, answer.json()["error"])
                assert [] == (await at.send("GET", base + "/jobs/", token=stranger)).json()["jobs"]
                used = await at.invoke(base, stranger, session, a="stolen")
                assert (404, "DIA-005") == error_of(used)
                unsigned = await at.send("GET", f"{base}/jobs/{job}")
                assert 401 == unsigned.status_code
        elsewhere = await pair.other.send("GET", f"{HOME if base == FREE else FREE}/jobs/{job}", token=alice)
        said = await pair.other.ended(job, base, alice)
        control = await pair.other.invoke(base, alice, session, a="mine")

    assert (404, "DIA-013") == error_of(elsewhere)
    assert ("success", 200) == (said["status"], control.status_code)
    assert "stolen" not in {call.get("a") for call in pair.server.calls}


async def test_a_forwarded_request_cannot_be_forged(tmp_path: Path) -> None:
    """Attack: a client says that a gateway sent it. It gains nothing: it signs in, is counted and owns what it owns."""
    async with fleet(tmp_path) as pair:
        alice, mallory = pair.token(), pair.token("other")
        session = await pair.one.session(FREE, alice)
        job = (await pair.one.invoke(FREE, alice, session, mode="async")).json()["job_id"]
        await pair.one.ended(job, FREE, alice)
        marked = {MARK: pair.members[1].team.id}
        path = f"{FREE}/jobs/{job}"
        unsigned = await pair.one.send("GET", path, headers=marked)
        stranger = await pair.one.send("GET", path, token=mallory, headers=marked)
        plain = await pair.one.send("GET", path, token=alice)
        owner = await pair.one.send("GET", path, token=alice, headers=marked)
        not_again = await pair.other.send("GET", path, token=alice, headers=marked)
        own_list = await pair.other.send("GET", FREE + "/jobs/", token=alice, headers=marked)
        left = [int(one.headers["x-mcp-limit"].rpartition("=")[2]) for one in (plain, owner)]

    assert (401, 404, 200) == (unsigned.status_code, stranger.status_code, owner.status_code)
    assert (503, "DIA-081") == error_of(not_again)
    assert [] == own_list.json()["jobs"]
    assert left[1] <= left[0], "the marked request was not counted"


@pytest.mark.claim("P-GATE-63")
async def test_who_writes_to_the_store_learns_no_token_of_the_dialect(tmp_path: Path) -> None:
    """Attack: the keeper of a job becomes a listener of the attacker. It is never asked, with peers or without."""
    asked: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(4096))
        writer.close()

    thief = await asyncio.start_server(listen, "127.0.0.1", 0)
    place = f"http://127.0.0.1:{thief.sockets[0].getsockname()[1]}"
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        job = (await pair.one.invoke(FREE, alice, mode="async")).json()["job_id"]
        control = await pair.other.send("GET", f"{FREE}/jobs/{job}", token=alice)
        with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db:
            text = json.dumps([list(row) for row in db.execute("SELECT * FROM mcps_record")])
            for name, value in db.execute("SELECT name, value FROM mcps_record WHERE kind = 'keeper'").fetchall():
                forged = json.dumps({**json.loads(value), "address": place})
                db.execute("UPDATE mcps_record SET value = ? WHERE name = ?", (forged, name))
            db.commit()
        refused = await pair.other.send("GET", f"{FREE}/jobs/{job}", token=alice)
        listed = await pair.other.send("GET", FREE + "/jobs/", token=alice)
    thief.close()

    assert 200 == control.status_code
    assert (503, "DIA-081") == error_of(refused)
    assert {"jobs": [], "incomplete": True} == listed.json()
    assert ([], False, False) == (asked, alice in text, "acme" in text)


async def test_without_peers_it_is_said_where_nothing_can_be_forwarded(tmp_path: Path) -> None:
    """The job and the tenant's servers are refused with an id each, and what runs everywhere is not."""
    async with fleet(tmp_path, forward=False) as pair:
        alice = pair.token()
        free = (await pair.one.invoke(FREE, alice, mode="async")).json()["job_id"]
        await pair.one.invoke(HOME, alice)
        job = await pair.other.send("GET", f"{FREE}/jobs/{free}", token=alice)
        session = await pair.other.session(HOME, alice)
        called = await pair.other.invoke(HOME, alice, session)
        control = await pair.other.invoke(FREE, alice)

    assert (503, "DIA-081") == error_of(job)
    assert (503, "GATE-061") == error_of(called)
    assert 200 == control.status_code


async def test_ids_that_name_no_keeper_are_no_job(tmp_path: Path) -> None:
    """Attack: ids by chance, in disguise or with a keeper that never was are told as no job, and nobody is asked."""
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        unknown = SharedClaims(MemoryStore(lambda: 0.0), "0123456789ab").fresh()
        said = [await pair.one.send("GET", f"{FREE}/jobs/{one}", token=alice) for one in (unknown, uuid.uuid4(), "x")]
        hidden = await pair.one.send("GET", f"{FREE}/jobs/..%2f{unknown}", token=alice)

    assert [(404, "DIA-013")] * 3 == [error_of(one) for one in said]
    assert (404, "DIA-022") == error_of(hidden)


async def test_a_websocket_says_that_a_job_is_elsewhere(tmp_path: Path) -> None:
    """It answers for jobs of its own gateway, and refuses those of another with an id that says so."""
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        jobs = [(await at.invoke(FREE, alice, mode="async")).json()["job_id"] for at in (pair.other, pair.one)]
        where = pair.other.stage.url.replace("http", "ws", 1) + FREE + "/ws"
        async with connect(where, additional_headers={"Authorization": f"Bearer {alice}"}, proxy=None) as socket:
            said = []
            for body in (shake("ws"), *({word: job} for word in ("resume", "cancel") for job in jobs)):
                await socket.send(json.dumps(body))
                said.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
        await pair.one.ended(jobs[1], FREE, alice)

    own, other = [said[1], said[3]], [said[2], said[4]]
    assert ["DIA-081"] * 2 == [one["error"]["id"] for one in other]
    assert [jobs[0]] * 2 == [one["job_id"] for one in own]


async def test_a_task_of_mcp_is_found_in_its_session_at_either_gateway(tmp_path: Path) -> None:
    """Where sessions go on anywhere, so do their tasks: asked, waited for, cancelled; nobody else's; 503 when gone."""
    path = "/mcp/open"
    async with fleet(tmp_path) as pair:
        one, other = pair.members
        alice, mallory = pair.token(), pair.token("other")
        headers, strange = await one.session(path, alice), await other.session(path, mallory)

        async def ask(at: Member, method: str, task: str, **more: Any) -> Any:
            token, sent = more.get("token", alice), more.get("headers", headers)
            answer = await at.post(path, request(method, {"taskId": task}), token, **sent)
            if answer.headers["content-type"].startswith("text/event-stream"):
                return json.loads(answer.text.split("data: ")[-1])
            return answer.json()

        async def begin(at: Member, **arguments: Any) -> str:
            called = {"name": "tool", "arguments": arguments, "task": {"ttl": 60_000}}
            answer = await at.post(path, request("tools/call", called), alice, **headers)
            return str(answer.json()["result"]["task"]["taskId"])

        tasks = [await begin(at, slow=True, a=number) for number, at in enumerate((one, other))]
        early = [await ask(at, "tasks/get", task) for at in (one, other) for task in tasks]
        waited = [await ask(at, "tasks/result", task) for at in (one, other) for task in tasks]
        stolen = [await ask(at, "tasks/get", tasks[0], token=mallory, headers=strange) for at in (one, other)]
        pair.server.slow = 600.0
        last = await begin(one, slow=True)
        cancelled = await ask(other, "tasks/cancel", last)
        pair.server.slow = 0.01
        called = await other.post(
            path, request("tools/call", {"name": "tool", "arguments": {"note": "tasks/"}}), alice, **headers
        )
        await one.kill()
        gone = [await ask(other, "tasks/get", task) for task in tasks]

    assert {"working", "completed"} >= {said["result"]["status"] for said in early}
    assert [0, 1, 0, 1] == [said["result"]["structuredContent"]["a"] for said in waited]
    assert [-32602, -32602] == [said["error"]["code"] for said in stolen]
    assert "cancelled" == cancelled["result"]["status"]
    assert "tasks/" == called.json()["result"]["structuredContent"]["note"]
    assert ("DIA-080", "completed") == (gone[0]["error"]["data"]["id"], gone[1]["result"]["status"])


# --- gateways that go away --------------------------------------------------------------------------------------------
@pytest.mark.claim("P-DIA-30")
async def test_jobs_of_a_gateway_that_is_gone_wait_for_it(tmp_path: Path, url: str) -> None:
    """Attack: the keeper is killed. Its jobs are 503 until it is back, no repetition is called, and each ends once."""
    async with fleet(tmp_path, url, JobBounds(running=1)) as pair:
        alice = pair.token("keeper")
        pair.server.slow = 600.0
        session = await pair.one.session(FREE, alice)
        bodies = [invocation(session, mode="async", slow=True, mark=n) for n in range(2)]
        taken = [await pair.one.send("POST", FREE + "/invoke", body, alice) for body in bodies]
        jobs = [answer.json()["job_id"] for answer in taken]
        await until(lambda: len(pair.server.calls) == 1)
        await pair.members[0].kill()
        pair.server.slow = 0.01
        gone = [
            await pair.other.send(how, f"{FREE}/jobs/{job}", token=alice) for job in jobs for how in ("GET", "DELETE")
        ]
        repeated = [await pair.other.send("POST", FREE + "/invoke", body, alice) for body in bodies]
        stranger = await pair.other.send("GET", f"{FREE}/jobs/{jobs[0]}", token=pair.token("stranger"))
        listed = (await pair.other.send("GET", FREE + "/jobs/", token=alice)).json()
        control = await pair.other.invoke(FREE, alice, session, mark="control")
        meanwhile = [call.get("mark") for call in pair.server.calls]
        async with again(pair.members[0]) as back:
            said = [await wait_ended(pair.other, job, FREE, alice) for job in jobs]
            repeats = [
                await at.send("POST", FREE + "/invoke", bodies[1], alice) for at in (pair.other, DialectLab(back))
            ]
            whole = (await pair.other.send("GET", FREE + "/jobs/", token=alice)).json()

    assert {(503, "DIA-080")} == {error_of(one) for one in (*gone, *repeated)}
    assert all(one.headers["retry-after"] and one.json()["error"]["retryable"] for one in (*gone, *repeated))
    assert 503 == stranger.status_code, "what belongs to whom is known to the gateway that is gone only"
    assert ({"jobs": [], "incomplete": True}, 200) == (listed, control.status_code)
    assert [0, "control"] == meanwhile
    assert ["DIA-014", 1] == [said[0]["error"]["id"], said[1]["result"]["mark"]]
    assert [jobs[1]] * 2 == [one.json()["job_id"] for one in repeats]
    assert ([0, "control", 1], None) == ([call.get("mark") for call in pair.server.calls], whole.get("incomplete"))
    assert set(jobs) == {one["job_id"] for one in whole["jobs"]}


@pytest.mark.claim("P-DIA-30")
async def test_a_job_whose_tenant_has_moved_waits_for_the_home_and_is_called_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease moves while its gateway is away: back again, it neither calls nor fails until the home is free."""
    monkeypatch.setattr(desk, "MAX_STARTS", 1)  # no refusal but that of the home is survived
    async with fleet(tmp_path, jobs=JobBounds(running=1), lease=2.5) as pair:
        alice = pair.token()
        pair.server.slow = 600.0
        session = await pair.one.session(HOME, alice)
        jobs = [
            (await pair.one.invoke(HOME, alice, session, mode="async", slow=True, mark=n)).json()["job_id"]
            for n in range(2)
        ]
        await until(lambda: len(pair.server.calls) == 1)
        await pair.members[0].kill()
        pair.server.slow = 0.01
        taken = 0
        async with asyncio.timeout(60):
            while taken != 200:
                taken = (await pair.other.invoke(HOME, alice, session, mark="taken over")).status_code
                await asyncio.sleep(0.1)
        away = await pair.other.send("GET", f"{HOME}/jobs/{jobs[1]}", token=alice)
        async with again(pair.members[0]) as back:
            lost = await wait_ended(pair.other, jobs[0], HOME, alice)
            await asyncio.sleep(2.5)  # time for one look at the home, and another
            waits = (await pair.other.send("GET", f"{HOME}/jobs/{jobs[1]}", token=alice)).json()["status"]
            called = [call.get("mark") for call in pair.server.calls]
            moved = pair.members[1]
            await moved.app.drain()
            await moved.pool.close()
            await moved.team.leave()
            said = await wait_ended(DialectLab(back), jobs[1], HOME, alice)

    assert (503, "DIA-080") == error_of(away)
    assert ("DIA-014", "in_progress", [0, "taken over"]) == (lost["error"]["id"], waits, called)
    assert 1 == said["result"]["mark"]
    assert [0, "taken over", 1] == [call.get("mark") for call in pair.server.calls]


async def test_a_job_does_not_wait_for_the_home_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over and the tenant is still at home elsewhere, it ends as refused, and has called nothing."""
    monkeypatch.setattr(desk, "MAX_STARTS", 1)
    monkeypatch.setattr(desk, "AWAY_FOR", 0.0)
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        await pair.other.invoke(HOME, alice, mark="at home here")
        where = pair.one.stage.url.replace("http", "ws", 1) + HOME + "/ws"  # what comes so is not sent to the home
        async with connect(where, additional_headers={"Authorization": f"Bearer {alice}"}, proxy=None) as socket:
            for body in (shake("ws"), invocation(mode="async", mark="never")):
                await socket.send(json.dumps(body))
                said = json.loads(await asyncio.wait_for(socket.recv(), 30))
        ended = await pair.other.ended(said["job_id"], HOME, alice)

    assert "GATE-061" == ended["error"]["id"]
    assert ["at home here"] == [call.get("mark") for call in pair.server.calls]


@pytest.mark.claim("P-DIA-30")
async def test_a_job_whose_request_became_another_gateway_s_calls_nothing(tmp_path: Path) -> None:
    """Attack: the store forgets a claim and another gateway takes the request. The one that waited ends uncalled."""
    async with fleet(tmp_path, jobs=JobBounds(running=1)) as pair:
        alice = pair.token()
        session = await pair.one.session(FREE, alice)
        pair.server.slow = 3.0
        first = (await pair.one.invoke(FREE, alice, session, mode="async", slow=True)).json()["job_id"]
        body = invocation(session, mode="async", mark="once")
        waiting = (await pair.one.send("POST", FREE + "/invoke", body, alice)).json()["job_id"]
        with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db:
            db.execute("DELETE FROM mcps_record WHERE kind = 'request'")
            db.commit()
        taken = (await pair.other.send("POST", FREE + "/invoke", body, alice)).json()["job_id"]
        said = [await pair.other.ended(job, FREE, alice) for job in (first, waiting, taken)]

    assert waiting != taken
    assert ["success", "error", "success"] == [one["status"] for one in said]
    assert "DIA-082" == said[1]["error"]["id"]
    assert 1 == len([call for call in pair.server.calls if call.get("mark") == "once"])


async def test_a_copied_file_of_jobs_is_not_used_beside_the_first(tmp_path: Path) -> None:
    """Attack on at most once: a gateway is given a copy of another's file. It does not start while that one runs."""
    store = f"sqlite://{tmp_path}/state.db"
    (tmp_path / "one").mkdir()
    (tmp_path / "copy").mkdir()
    async with fleet(tmp_path / "one", store) as pair:
        (await pair.one.invoke(FREE, pair.token(), mode="async")).json()
        for file in (tmp_path / "one").glob("jobs-0.sqlite*"):
            if not file.name.endswith(".lock"):
                (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
        with pytest.raises(PlatformError, match="DIA-019"):
            async with fleet(tmp_path / "copy", store):
                pass
    async with fleet(tmp_path / "copy", store) as pair:  # the control: the first has ended
        assert 200 == (await pair.one.invoke(FREE, pair.token())).status_code


async def test_refusals_for_a_gateway_that_is_gone_are_counted_here(tmp_path: Path) -> None:
    """Attack: polling a dead keeper's job without end. It is held to the rate like what is answered."""
    async with fleet(tmp_path, overall=Rate(0.001, 8)) as pair:
        alice = pair.token()
        job = (await pair.one.invoke(FREE, alice, mode="async")).json()["job_id"]
        await pair.members[0].kill()
        said = [error_of(await pair.other.send("GET", f"{FREE}/jobs/{job}", token=alice)) for _ in range(10)]

    assert {(503, "DIA-080"), (429, "GATE-012")} == set(said)
    assert (429, "GATE-012") == said[-1]


async def test_without_the_store_no_job_is_taken(tmp_path: Path) -> None:
    """The store is gone: handshakes, invocations and jobs are refused and recorded, and nothing reaches a server."""
    async with fleet(tmp_path) as pair:
        alice = pair.token()
        session = await pair.one.session(FREE, alice)
        control = await pair.one.invoke(FREE, alice, session)
        (tmp_path / "state.db").rename(tmp_path / "away.db")
        refused = [
            await pair.one.send("POST", FREE + "/handshake", shake(), alice),
            await pair.one.invoke(FREE, alice, session), await pair.one.invoke(FREE, alice, session, mode="async"),
            await pair.one.send("GET", f"{FREE}/jobs/", token=alice),
        ]  # fmt: skip
        (tmp_path / "away.db").rename(tmp_path / "state.db")
        reached = len(pair.server.calls)
        after = await pair.one.invoke(FREE, alice, session)

    assert {(503, "GATE-060")} == {error_of(one) for one in refused}
    assert ([200, 200], 1) == ([control.status_code, after.status_code], reached)
    assert "GATE-060" in pair.members[0].reasons()


# --- the registry -----------------------------------------------------------------------------------------------------
def entry(**more: Any) -> dict[str, Any]:
    """Return a registration."""
    return {
        "server_id": "org.example/files", "version": "1.0.0", "endpoint": "https://files.example.org/mcp",
        "tools": ["read"], "auth": "bearer", "capabilities": [], "ttl": 60, "visibility": "public", **more,
    }  # fmt: skip


async def test_a_registration_is_one_at_both_and_survives_their_restart(tmp_path: Path, url: str) -> None:
    """Registered here, told, renewed and removed there; after both are killed, what is in the store is told on."""
    place, name = HOME + "/registry/", "org.example/files"
    async with fleet(tmp_path, url) as pair:
        alice, bob = pair.token("reg", scope=SCOPE), pair.token("reg", sub="bob", scope=SCOPE)
        first = await pair.one.send("POST", place, entry(), alice)
        told = await pair.other.send("GET", place + name, token=bob)
        renewed = await pair.other.send("PUT", place + name, entry(version="2.0.0"), alice)
        taken = await pair.other.send("POST", place, entry(endpoint="https://evil.example/"), bob)
        for member in pair.members:
            await member.kill()
        async with again(pair.members[0]) as one, again(pair.members[1]) as other:
            after = [await DialectLab(at).send("GET", place + name, token=bob) for at in (one, other)]
            not_his = await DialectLab(one).send("DELETE", place + name, token=bob)
            removed = await DialectLab(other).send("DELETE", place + name, token=alice)
            gone = await DialectLab(one).send("GET", place, token=alice)

    assert [200, 200, 200] == [one.status_code for one in (first, told, renewed)]
    assert (409, "DIA-073") == error_of(taken)
    assert ["2.0.0", "2.0.0"] == [one.json()["version"] for one in after]
    assert ((404, "DIA-074"), 200, {"servers": []}) == (error_of(not_his), removed.status_code, gone.json())


async def test_a_registration_that_nobody_renews_ends_at_both(tmp_path: Path) -> None:
    """Its time passes in the store: it is gone at both gateways, and the name is free for another holder."""
    place = HOME + "/registry/"
    async with fleet(tmp_path) as pair:
        alice, bob = pair.token(scope=SCOPE), pair.token(sub="bob", scope=SCOPE)
        await pair.one.send("POST", place, entry(), alice)
        before = [len((await at.send("GET", place, token=bob)).json()["servers"]) for at in (pair.one, pair.other)]
        with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db:
            db.execute("UPDATE mcps_record SET ends = ends - 60000000 WHERE kind IN ('registration', 'public')")
            db.commit()
        after = [(await at.send("GET", place, token=alice)).json()["servers"] for at in (pair.one, pair.other)]
        free = await pair.other.send("POST", place, entry(), bob)

    assert ([1, 1], [[], []], 200) == (before, after, free.status_code)
