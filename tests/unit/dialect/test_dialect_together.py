"""The dialect at two gateways on one store: what its client sees through a balancer is one gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from sandbox.dialect.jobs.claims import SharedClaims
from sandbox.serve.http.together import MARK
from sandbox.serve.shared.memory import MemoryStore
from tests import stores
from tests.dialect_lab import invocation, shake, until
from tests.fleet_lab import ALL, FREE, HOME, error_of, fleet
from tests.gateway_lab import request
from tests.together_lab import Member

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=("sqlite", "postgres", "redis"))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the URL of a store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


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
