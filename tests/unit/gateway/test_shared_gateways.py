"""Two gateways on one store behind one address: what a client sees is one gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.interface import Store
from sandbox.testing.plans import baseline_plan
from tests import stores
from tests.gateway_lab import V25, call, modern, request
from tests.together_lab import KEPT, OPEN, Member, Options, together

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture(scope="module", params=("sqlite", "postgres", "redis"))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the URL of a store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path_factory.mktemp('state')}/state.db"
    else:
        with getattr(stores, request.param)() as peer:
            yield peer.url


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """Provide the URL of a fresh file."""
    return f"sqlite://{tmp_path}/state.db"


def said(answer: Any) -> Any:
    """Return what the tool said."""
    return answer.json()["result"]["structuredContent"]


async def test_round_robin_clients_see_one_gateway(url: str) -> None:
    """Sessions of both drivers and both eras go on while each request goes to another gateway; nothing is confused."""
    async with together(url) as (one, other):
        token = one.token(tenant="round", sub="robin")
        kept, free = await one.session(KEPT, token), await one.session(OPEN, token)
        answers = []
        for number in range(8):
            gateway = (one, other)[number % 2]
            answers.append(await gateway.post(KEPT, call(number, mark=number), token, **kept))
            answers.append(await gateway.post(OPEN, call(number, mark=number), token, **free))
            body, headers = modern("tools/call", {"name": "tool", "arguments": {"mark": number}}, number)
            answers.append(await gateway.post(KEPT, body, token, **headers))
        adopted = other.facts("gateway.adopt")
        homes = [(len(member.facts("gateway.home")), member.pool.figures()["instances"]) for member in (one, other)]

    assert [answer.status_code for answer in answers] == [200] * 24
    assert [said(answer)["mark"] for answer in answers] == [number for number in range(8) for _ in range(3)]
    assert len({said(answer)["process"] for answer in answers[::3]}) == 1, "the tenant's server ran twice"
    assert [fact["door"] for fact in adopted] == ["open"]
    assert homes == [(1, 2), (0, 1)]
    assert all(answer.headers["x-mcp-limit"].startswith("limit=1000;") for answer in answers)


@pytest.mark.claim("P-GATE-60")
async def test_a_session_is_bound_to_its_credential_at_every_gateway(url: str) -> None:
    """Attack: with another user's, client's or tenant's token the id is unknown everywhere; its owner goes on."""
    async with together(url) as (one, other):
        token = one.token(tenant="owners", sub="alice")
        for path in (OPEN, KEPT):
            headers = await one.session(path, token)
            strangers = [one.token(tenant="owners", sub="mallory"), one.token(tenant="others", sub="alice")]
            strangers.append(one.token(tenant="owners", sub="alice", azp="another-client"))
            for stranger in strangers:
                for gateway in (other, one):
                    refused = await gateway.post(path, call(1, mark="x"), stranger, **headers)
                    assert (refused.status_code, refused.json()["error"]["data"]["id"]) == (404, "GATE-016")
            for gateway in (other, one):
                assert (await gateway.post(path, call(2, mark="mine"), token, **headers)).status_code == 200
        reasons = {*one.reasons(), *other.reasons()}

    assert "GATE-017" in reasons
    assert {one.server.calls[number]["mark"] for number in range(len(one.server.calls))} == {"mine"}


async def test_a_deleted_session_is_gone_everywhere(url: str) -> None:
    """Deleted at one gateway, it cannot be used at any, also where it had been used already."""
    async with together(url) as (one, other):
        token = one.token(tenant="deleters")
        for path in (OPEN, KEPT):
            headers = await one.session(path, token)
            assert (await other.post(path, call(1), token, **headers)).status_code == 200
            sent = {"mcp-session-id": headers["mcp_session_id"], "authorization": f"Bearer {token}"}
            assert (await other.client.delete(other.url + path, headers=sent)).status_code == 200
            after = [(await gateway.post(path, call(2), token, **headers)).status_code for gateway in (one, other)]
            assert after == [404, 404]


async def test_a_session_that_nobody_uses_ends_everywhere(file_url: str) -> None:
    """The time without use is counted over all gateways."""
    async with together(file_url, options=Options(bounds={"session_idle": 2.0})) as (one, other):
        token = one.token()
        headers = await one.session(OPEN, token)
        for number in range(5):
            await asyncio.sleep(0.5)
            assert (await (one, other)[number % 2].post(OPEN, call(number), token, **headers)).status_code == 200
        await asyncio.sleep(2.3)
        assert [(await gateway.post(OPEN, call(9), token, **headers)).status_code for gateway in (other, one)] == [
            404,
            404,
        ]


async def test_limits_hold_over_all_gateways(url: str) -> None:
    """A tenant's rate, its number of sessions and of servers are one number, however its requests are spread."""
    options = Options(rate=Rate(0.001, 10), bounds={"sessions_of_tenant": 3}, pool={"of_tenant": 2})
    async with together(url, options=options) as (one, other):
        token = one.token(tenant="limited")
        calls = []
        for number in range(30):
            body, headers = modern("tools/call", {"name": "tool", "arguments": {}}, number)
            calls.append((one, other)[number % 2].post(OPEN, body, token, **headers))
        answered = [answer.status_code for answer in await asyncio.gather(*calls)]
        opened = [(await (one, other)[number % 2].initialize(OPEN, token)).status_code for number in range(5)]
        third = await one.initialize(KEPT, one.token(tenant="limited", sub="bob"))
        unlimited = (await other.initialize(OPEN, one.token(tenant="another"))).status_code

    assert sorted(answered) == [200] * 10 + [429] * 20
    assert opened == [200, 200, 200, 429, 429]
    assert third.status_code == 429
    assert unlimited == 200


async def test_servers_of_a_tenant_are_counted_over_all_gateways(file_url: str) -> None:
    """The instance beyond the bound is refused before it starts, wherever; another tenant is not concerned."""
    async with together(file_url, options=Options(pool={"of_tenant": 1})) as (one, other):
        token = one.token(tenant="counted")
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
        first = await one.post(OPEN, body, token, **headers)
        second = await other.post(OPEN, body, token, **headers)
        control = await other.post(OPEN, body, one.token(tenant="another"), **headers)

    assert (first.status_code, control.status_code) == (200, 200)
    assert (second.status_code, second.json()["error"]["data"]["id"]) == (503, "GATE-063")


async def test_two_tenants_never_write_one_folder_through_two_gateways(file_url: str) -> None:
    """Attack: the second tenant comes to the other gateway, whose own pool knows nothing of the first."""
    written = writing_plan()
    async with together(file_url, options=Options(plan=lambda _tenant: written)) as (one, other):
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}})
        first = await one.post(OPEN, body, one.token(tenant="first"), **headers)
        same = await other.post(OPEN, body, one.token(tenant="first"), **headers)
        second = await other.post(OPEN, body, one.token(tenant="second"), **headers)

    assert (first.status_code, same.status_code) == (200, 200)
    assert (second.status_code, second.json()["error"]["data"]["id"]) == (503, "GATE-066")


def writing_plan() -> Any:
    """Return a plan that writes to a folder of the host."""
    from dataclasses import replace

    from sandbox.plan.model import Mount

    return replace(baseline_plan(), mounts=(Mount(source="/srv/shared", target="/workspace", writable=True),))


@pytest.mark.claim("P-GATE-61")
async def test_a_killed_gateway_is_taken_over(url: str) -> None:
    """Its tenant's requests are refused until its lease ends, and then answered by the other with fresh servers.

    A session of a stateless driver goes on; one of another driver has ended with its server, and its client is told so.
    """
    async with together(url, options=Options(lease=2.5)) as (one, other):
        token = one.token(tenant="survivor")
        kept, free = await one.session(KEPT, token), await one.session(OPEN, token)
        before = await other.post(KEPT, call(1), token, **kept)
        await one.kill()
        free_after = await other.post(OPEN, call(2, mark="goes on"), token, **free)
        statuses = []
        for _ in range(200):
            answer = await other.post(KEPT, call(3), token, **kept)
            statuses.append((answer.status_code, answer.json()["error"]["data"]["id"]))
            if answer.status_code == 404:
                break
            await asyncio.sleep(0.05)
        fresh = await other.session(KEPT, token)
        after = await other.post(KEPT, call(4), token, **fresh)

    assert (before.status_code, said(free_after)["mark"], after.status_code) == (200, "goes on", 200)
    assert set(statuses[:-1]) == {(503, "GATE-062")}
    assert statuses[-1] == (404, "GATE-016")
    assert said(before)["process"] != said(after)["process"]


async def test_a_gateway_that_ends_in_order_is_taken_over_at_once(file_url: str) -> None:
    """Rolling restart: nothing waits for a lease, and sessions of stateless drivers go on."""
    async with together(file_url, options=Options(lease=600)) as (one, other):
        token = one.token()
        free, kept = await one.session(OPEN, token), await one.session(KEPT, token)
        await one.app.drain()
        await one.pool.close()
        await one.team.leave()
        after = [await other.post(OPEN, call(1), token, **free), await other.post(KEPT, call(1), token, **kept)]
        fresh = await other.initialize(KEPT, token)

    assert [answer.status_code for answer in after] == [200, 404]
    assert fresh.status_code == 200


@pytest.mark.claim("P-GATE-62")
@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_without_its_store_a_gateway_refuses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: the store freezes. Every call is refused and recorded, nothing reaches a server; later all goes on."""
    module = __import__(f"sandbox.serve.shared.{kind}", fromlist=["x"])
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.3)
    with getattr(stores, kind)() as peer:
        async with together(peer.url, options=Options(lease=3.0)) as (one, other):
            token = one.token()
            free = await one.session(OPEN, token)
            assert (await other.post(OPEN, call(1), token, **free)).status_code == 200
            reached = len(one.server.calls)
            peer.pause()
            sent = [gateway.post(path, call(2), token, **free) for gateway in (one, other) for path in (OPEN, KEPT)]
            refused = await asyncio.gather(*sent, one.initialize(OPEN, token))
            peer.resume()
            assert len(one.server.calls) == reached
            again = await until(other, 200, OPEN, token)

    assert {(answer.status_code, answer.json()["error"]["data"]["id"]) for answer in refused} == {(503, "GATE-060")}
    assert all(answer.headers["retry-after"] for answer in refused)
    assert "GATE-060" in one.reasons()
    assert again


async def until(gateway: Member, status: int, path: str, token: str) -> bool:
    """Return whether a call is answered with a status within a bounded number of tries."""
    for number in range(100):
        body, headers = modern("tools/call", {"name": "tool", "arguments": {}}, number)
        if (await gateway.post(path, body, token, **headers)).status_code == status:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_gateway_that_cannot_beat_lets_go_before_others_take_over(file_url: str) -> None:
    """Attack: a paused gateway wakes up. Its sessions and servers are ended, and no request is answered by two."""
    handles: list[Store] = []
    async with together(file_url, options=Options(lease=2.4), stores=handles) as (one, other):
        token = one.token()
        kept = await one.session(KEPT, token)
        assert one.pool.figures()["instances"] == 1
        one.team._task.cancel()  # it is stopped, and so is its heartbeat
        with contextlib.suppress(asyncio.CancelledError):
            await one.team._task
        await asyncio.sleep(2.5)
        taken = await other.initialize(KEPT, token)
        late = await one.post(KEPT, call(1), token, **kept)
        assert not one.team.well
        one.team._task = asyncio.create_task(one.team._keep())
        for _ in range(100):
            if one.facts("gateway.lose") and not one.pool.figures()["instances"]:
                break
            await asyncio.sleep(0.05)
        ended = (len(one.app.sessions), one.pool.figures()["instances"])
        moved = await one.initialize(KEPT, token)

    assert taken.status_code == 200
    assert (late.status_code, late.json()["error"]["data"]["id"]) == (503, "GATE-060")
    assert ended == (0, 0)
    assert moved.status_code == 200
    fences = [fact["fence"] for member in (one, other) for fact in member.facts("gateway.home")]
    assert len(fences) == 2
    assert fences[0] < fences[1]


async def test_what_cannot_be_forwarded_is_refused(file_url: str) -> None:
    """Without `peers`, or with an address in the store that the operator never named, no token leaves this gateway."""
    handles: list[Store] = []
    async with together(file_url, options=Options(forward=False), stores=handles) as (one, other):
        token = one.token()
        await one.session(KEPT, token)
        refused = await other.initialize(KEPT, token)
        free = await other.initialize(OPEN, token)

    assert (refused.status_code, refused.json()["error"]["data"]["id"]) == (503, "GATE-061")
    assert free.status_code == 200


@pytest.mark.claim("P-GATE-63")
async def test_who_writes_to_the_store_learns_no_token(tmp_path: Path) -> None:
    """Attack: the home of a tenant is changed to a listener of the attacker. It is never asked."""
    asked: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(4096))
        writer.close()

    thief = await asyncio.start_server(listen, "127.0.0.1", 0)
    place = f"http://127.0.0.1:{thief.sockets[0].getsockname()[1]}"
    handles: list[Store] = []
    async with together(f"sqlite://{tmp_path}/s.db", stores=handles) as (one, other):
        token = one.token()
        await one.session(KEPT, token)
        import sqlite3

        with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as db:
            kept = json.dumps([list(row) for row in db.execute("SELECT * FROM mcps_record")])
            db.execute("UPDATE mcps_record SET value = ? WHERE kind = 'home'", (place,))
            db.commit()
        refused = await other.initialize(KEPT, token)
    thief.close()

    assert (refused.status_code, refused.json()["error"]["data"]["id"]) == (503, "GATE-061")
    assert asked == []
    assert token not in kept
    assert "acme" not in kept


async def test_streams_and_cancellation_pass_through_another_gateway(file_url: str) -> None:
    """Progress arrives while the call runs, a standing stream is read, and a client that leaves ends its request."""
    async with together(file_url) as (one, other):
        token = one.token()
        kept = await one.session(KEPT, token)
        body = request(
            "tools/call", {"name": "tool", "arguments": {"steps": 3, "slow": True}, "_meta": {"progressToken": "p"}}
        )
        streamed = await other.post(KEPT, body, token, **kept)
        sent = {
            "mcp-session-id": kept["mcp_session_id"], "mcp-protocol-version": V25, "accept": "text/event-stream",
            "authorization": f"Bearer {token}",
        }  # fmt: skip
        async with other.client.stream("GET", other.url + KEPT, headers=sent) as standing:
            parts = standing.aiter_raw()
            first = await anext(parts)
            busy = await other.client.get(other.url + KEPT, headers=sent)
        body, headers = modern("tools/call", {"name": "tool", "arguments": {"slow": True}}, 77)
        one.server.slow = 30
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(other.post(KEPT, body, token, **headers), 0.5)
        for _ in range(100):
            if one.server.cancelled:
                break
            await asyncio.sleep(0.02)

    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.count("notifications/progress") == 3
    assert '"isError"' not in streamed.text.split("progress")[0]
    assert first.startswith(b"id: ")
    assert (standing.status_code, busy.status_code) == (200, 409)
    assert len(one.server.cancelled) == 1


async def test_an_event_of_another_gateway_is_not_mistaken_for_an_own_one(file_url: str) -> None:
    """Attack: ids of events are of one gateway; at another they belong to no stream, and no other answer comes out."""
    async with together(file_url) as (one, other):
        token = one.token()
        free = await one.session(OPEN, token)
        body = request("tools/call", {"name": "tool", "arguments": {"slow": True, "mark": "secret"}})
        streamed = await one.post(OPEN, body, token, **free)
        event = next(line for line in streamed.text.splitlines() if line.startswith("id: ")).removeprefix("id: ")
        sent = {
            "mcp-session-id": free["mcp_session_id"], "mcp-protocol-version": V25, "accept": "text/event-stream",
            "authorization": f"Bearer {token}", "last-event-id": event,
        }  # fmt: skip
        await other.post(OPEN, call(5, mark="other"), token, **free)
        elsewhere = await other.client.get(other.url + OPEN, headers=sent)
        here = await one.client.get(one.url + OPEN, headers=sent)

    assert (elsewhere.status_code, elsewhere.json()["error"]["data"]["id"]) == (400, "GATE-018")
    assert "secret" in here.text


async def test_any_gateway_cleans_up_after_one_that_ended(file_url: str) -> None:
    """The containers of a gateway whose heartbeat ended are removed by label; those of living ones never."""
    cleaned: list[str] = []

    async def clean(label: str) -> int:
        cleaned.append(label)
        return 2

    handles: list[Store] = []
    options = Options(lease=2.4, duties={"clean": clean})
    async with together(file_url, 3, options=options, stores=handles) as (one, other, third):
        for number, member in enumerate((one, other, third)):
            member.team.duties.owner = f"owner-{number}"
            await member.team._join()
        await other.team.clean_up()
        assert cleaned == []
        await one.kill()
        await asyncio.sleep(2.5)
        await other.team.clean_up()
        await other.team.clean_up()
        reaped, seen = other.facts("gateway.reap"), list(cleaned)

    assert set(seen) == {"owner-0"}
    assert [(fact["gateway"], fact["removed"]) for fact in reaped] == [(one.team.id, 2)]
