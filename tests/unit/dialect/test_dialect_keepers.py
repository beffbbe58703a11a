"""The dialect at two gateways one of which goes away: jobs wait for their keeper, registrations for nobody."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.cli.gateway.registering import TOKEN, publishing
from sandbox.dialect.bounds import MAX_MESSAGE, JobBounds
from sandbox.dialect.jobs import desk
from sandbox.dialect.registrations import SCOPE
from sandbox.errors import PlatformError
from sandbox.serve.identity.model import Access
from sandbox.serve.ratelimit import Rate
from tests import stores
from tests.dialect_lab import DialectLab, invocation, shake, until
from tests.fleet_lab import FREE, HOME, error_of, fleet, wait_ended
from tests.gateway_lab import lab
from tests.together_lab import again, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=("sqlite", "postgres", "redis"))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the URL of a store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


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


async def test_the_last_of_several_gateways_removes_what_they_registered_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends in order while the other serves on: the registry still tells of them, until the other ends too."""
    said: list[str] = []
    monkeypatch.setattr("sandbox.cli.gateway.registering.say", said.append)
    place = HOME + "/registry/"
    known = Dialect("com.hub", tmp_path / "hub.sqlite", Rate(1000, 1000), lambda _name: True, registry=True)
    async with (
        lab(speaks=lambda app: speaking(app, known), sockets=MAX_MESSAGE) as stage,
        together(f"sqlite://{tmp_path}/state.db") as members,
        contextlib.AsyncExitStack() as last,
    ):
        hub, token = DialectLab(stage), stage.token(scope=SCOPE)
        monkeypatch.setenv(TOKEN, token)
        given = argparse.Namespace(register=stage.url + place)
        ends = []
        for member in members:
            next(door for door in member.app.doors if door.name == "open").access = Access(visibility="public")
            end = await last.enter_async_context(contextlib.AsyncExitStack())
            await end.enter_async_context(publishing(given, member.app, "com.x", "https://x.example", lambda _door: ()))
            ends.append(end)
        await until(lambda: len(said) == 2)

        async def told() -> list[str]:
            return [one["server_id"] for one in (await hub.send("GET", place, token=token)).json()["servers"]]

        both = await told()
        await ends[0].aclose()
        one = await told()
        await members[0].team.leave()
        await ends[1].aclose()
        none = await told()

    assert (["com.x/open"], ["com.x/open"], []) == (both, one, none)
