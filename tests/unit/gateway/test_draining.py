"""SIGTERM: nothing new is taken, what is in progress is answered, what stays open ends, and nothing is left."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx2
import pytest

from tests.gateway_lab import modern
from tests.reload_lab import FORBID, RULES, found_in, reload_lab
from tests.unit.supervisor.test_pool import until

pytestmark = pytest.mark.anyio


async def test_what_is_in_progress_is_answered_and_nothing_new_is_taken(tmp_path: Path) -> None:
    """Calls of both eras get their answers, new requests 503, `/readyz` says so, and the command ends with 0."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        body, headers = modern("tools/call", {"name": "tool-a", "arguments": {"wait": True}})
        ready = await lab.client.get(lab.url + "/readyz")
        hanging = [
            asyncio.create_task(session.ask("tools/call", {"name": "tool-a", "arguments": {"wait": True}})),
            asyncio.create_task(lab.post("/mcp/two", body, **headers)),
        ]
        await until(lambda: lab.programs.waiting == 2)
        lab.signal(signal.SIGTERM)
        await until(lambda: lab.app.draining)
        unready, refused = await lab.client.get(lab.url + "/readyz"), await session.ask("tools/list")
        lab.programs.gate.set()
        answers = [found_in(one) for one in await asyncio.gather(*hanging)]
        status = await lab.task

        assert (200, 503, 503) == (ready.status_code, unready.status_code, refused.status_code)
        assert refused.headers["retry-after"]
        assert {"one", "two"} == {one["structuredContent"]["driver"] for one in answers}
        assert 0 == status
        assert 1 == len(lab.facts("gateway.stop"))


async def test_open_streams_end_in_an_orderly_way(tmp_path: Path) -> None:
    """The standing stream of a session and a subscription of the stateless era are closed, not cut."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        plain = {name.replace("_", "-"): value for name, value in session.headers.items()}
        body, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        sent = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        opened, ended = asyncio.Event(), []

        async def read(stream: httpx2.Response) -> str:
            opened.set()
            return "".join([line async for line in stream.aiter_lines()])

        async def standing() -> None:
            own = {"accept": "text/event-stream", **plain}
            async with lab.client.stream("GET", lab.url + "/mcp/one", headers=own) as stream:
                ended.append(await read(stream))

        async def listening() -> None:
            async with lab.client.stream("POST", lab.url + "/mcp/two", json=body, headers=sent) as stream:
                assert stream.status_code == 200
                ended.append(await read(stream))

        for one in (standing, listening):
            opened.clear()
            asyncio.get_running_loop().create_task(one())
            await opened.wait()
        await until(lambda: lab.app.endpoints["/mcp/two"]._listening)  # type: ignore[union-attr]
        lab.signal(signal.SIGTERM)
        assert 0 == await lab.task
        await until(lambda: len(ended) == 2)

        assert any('"result"' in text for text in ended)


async def test_what_takes_longer_than_the_drain_does_not_hold_the_gateway(tmp_path: Path) -> None:
    """After its time the call is given up, the session ends, and every process is gone."""
    async with reload_lab(tmp_path, drain=0.2) as lab:
        session = await lab.session()
        hanging = asyncio.create_task(session.ask("tools/call", {"name": "tool-a", "arguments": {"wait": True}}))
        await until(lambda: lab.programs.waiting)
        lab.signal(signal.SIGTERM)

        assert 0 == await asyncio.wait_for(lab.task, 10)
        assert "structuredContent" not in (await hanging).text


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """Though a call is in progress and a minute is left for it."""
    async with reload_lab(tmp_path, drain=60.0) as lab:
        session = await lab.session()
        hanging = asyncio.create_task(session.ask("tools/call", {"name": "tool-a", "arguments": {"wait": True}}))
        await until(lambda: lab.programs.waiting)
        lab.signal(signal.SIGTERM)
        await until(lambda: lab.app.draining)
        assert not lab.task.done()
        lab.signal(signal.SIGTERM)

        assert 0 == await asyncio.wait_for(lab.task, 10)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_warm_and_idle_instances_end_too(tmp_path: Path) -> None:
    """What waits for a tenant, frozen, and what nobody uses now are gone with the rest."""
    async with reload_lab(tmp_path, warm=1) as lab:
        await until(lambda: len(lab.facts("pool.warm")) == 2)
        body, headers = modern("tools/call", {"name": "tool-a", "arguments": {}})
        await lab.post("/mcp/one", body, **headers)
        assert len([one for one in lab.programs.processes if one.open]) >= 2
        lab.signal(signal.SIGTERM)
        await lab.task


async def test_sighup_reloads_and_ends_nothing(tmp_path: Path) -> None:
    """The signal that would end a process without a handler takes the changed rules, and the session goes on."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        control = await session.call()
        lab.place.rules(RULES + FORBID)
        lab.signal(signal.SIGHUP)
        await until(lambda: lab.reloader.count)
        refused = await session.call()

        assert not control.get("isError")
        assert refused["isError"]
        assert ["signal"] == [one["why"] for one in lab.facts("gateway.reload", "intent")]
