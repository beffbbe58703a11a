"""Limits that are changed in gateway.toml: a stricter one holds for the next request, and what is open goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from sandbox.cli.gateway.config import GatewayConfig, LimitConfig, StateConfig
from sandbox.cli.gateway.differences import BOUNDS, RATES, adopted
from sandbox.serve.ratelimit import Rate
from tests.dialect_lab import OPEN, dialect_lab, shake
from tests.gateway_lab import V25, modern, request
from tests.reload_lab import ReloadLab, reload_lab

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
INITIALIZE = {"protocolVersion": V25, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def limited(lab: ReloadLab, **limits: float) -> None:
    """Reload with limits."""
    told = "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in {"drain": 5.0, **limits}.items())
    lab.place.config(f"[limits]\n{told}")
    await lab.reload()


async def status(lab: ReloadLab) -> tuple[int, str]:
    """Call a tool without a session; return the status, and where the caller stands."""
    body, headers = modern("tools/call", {"name": "tool-a", "arguments": {}})
    answer = await lab.post("/mcp/one", body, **headers)
    return answer.status_code, answer.headers.get("x-mcp-limit", "")


async def test_a_stricter_rate_holds_for_the_next_call_of_everybody_and_a_wider_one_too(tmp_path: Path) -> None:
    """On an open session and without one; who was beyond the stricter rate may call as soon as it is lifted."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        before = [(await status(lab))[0] for _ in range(4)]
        await limited(lab, calls_per_second=0.001, calls_at_once=2)
        strict = [await status(lab) for _ in range(3)]
        on_session = (await session.ask("tools/call", {"name": "tool-a", "arguments": {}})).status_code
        listed = (await session.ask("tools/list")).status_code
        await limited(lab, calls_per_second=20, calls_at_once=60)
        wide = await status(lab)

    assert [200] * 4 == before
    assert [200, 200, 429] == [code for code, _ in strict]
    assert ["limit=2;window=2000;remaining=1", "limit=2;window=2000;remaining=0"] == [told for _, told in strict[:2]]
    assert (429, 200) == (on_session, listed)
    assert (200, "limit=60;window=3;remaining=59") == wide
    assert [[], []] == [fact["waiting"] for fact in lab.facts("gateway.reload", "intent")]


async def test_a_reload_that_leaves_rates_alone_gives_nobody_a_full_bucket(tmp_path: Path) -> None:
    """Whoever has called too often stays refused when another limit, or a driver, changes."""
    async with reload_lab(tmp_path) as lab:
        await limited(lab, calls_per_second=0.001, calls_at_once=1)
        spent = [(await status(lab))[0] for _ in range(2)]
        await limited(lab, calls_per_second=0.001, calls_at_once=1, sessions=7)
        lab.place.driver("two", said="Another.")
        await lab.reload()
        after = (await status(lab))[0]

    assert [200, 429] == spent
    assert 429 == after


async def test_calls_in_progress_go_on_beyond_a_stricter_bound_and_new_ones_wait(tmp_path: Path) -> None:
    """Two are under way when one is allowed: both are answered, and until then nobody else comes in."""
    async with reload_lab(tmp_path) as lab:
        session, other = await lab.session(), await lab.session("/mcp/two")
        calls = [asyncio.create_task(session.call(number=number, wait=True)) for number in (1, 2)]
        async with asyncio.timeout(60):
            while lab.programs.waiting < 2:  # noqa: ASYNC110 - until the server has both
                await asyncio.sleep(0.01)
        control = (await other.ask("tools/list")).status_code
        await limited(lab, in_progress=1)
        refused = await other.ask("tools/list")
        lab.programs.gate.set()
        answered = await asyncio.gather(*calls)
        after = (await other.ask("tools/list")).status_code

    assert (200, 429, 200) == (control, refused.status_code, after)
    assert "GATE-013" in refused.text
    assert [1, 1] == [one["structuredContent"]["process"] for one in answered]


async def test_fewer_sessions_close_none_and_open_none(tmp_path: Path) -> None:
    """Those that are open go on; new ones are refused until there is room, or more are allowed."""
    async with reload_lab(tmp_path) as lab:
        first, second = await lab.session(), await lab.session()
        await limited(lab, sessions=1)
        refused = await lab.post("/mcp/one", request("initialize", INITIALIZE))
        still = [(await one.ask("tools/list")).status_code for one in (first, second)]
        await limited(lab, sessions=3)
        third = await lab.session()

        assert refused.status_code in (429, 503)
        assert "GATE-0" in refused.text
        assert [200, 200] == still
        assert 200 == (await third.ask("tools/list")).status_code


async def test_a_shorter_idle_time_ends_sessions_that_are_unused_already(tmp_path: Path) -> None:
    """The next look finds them; without the change nothing happens to them (control)."""
    async with reload_lab(tmp_path, config="") as lab:
        await lab.session()
        await limited(lab, session_idle=900)
        kept = len(lab.app.sessions)
        await limited(lab, session_idle=0.01)
        async with asyncio.timeout(90):
            while len(lab.app.sessions):  # noqa: ASYNC110 - until the next look
                await asyncio.sleep(0.05)

        assert 1 == kept


@pytest.mark.parametrize("rate", ["inf", "1e-310"])
async def test_a_rate_that_is_no_number_to_count_by_changes_nothing(
    tmp_path: Path, rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reload is refused before anything is taken, and the limits of before hold."""
    async with reload_lab(tmp_path) as lab:
        await limited(lab, calls_per_second=rate, sessions=1)  # type: ignore[arg-type]
        sessions = [await lab.session() for _ in range(2)]

        assert "nothing is reloaded: CLI-180" in capsys.readouterr().err
        assert 200 == (await sessions[1].ask("tools/list")).status_code
        assert [] == lab.facts("gateway.reload", "intent")


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with others"])
def test_each_limit_holds_at_once_or_is_named_as_waiting(shared: bool) -> None:
    """Rates of gateways that count in one store wait for a start, for all have to count by the same."""
    state = StateConfig(url="sqlite:state.db") if shared else None
    old = GatewayConfig(state=state)
    for name in LimitConfig.__struct_fields__:
        other = getattr(old.limits, name) + 1
        new = GatewayConfig(state=state, limits=msgspec.structs.replace(old.limits, **{name: other}))
        got, waiting = adopted(old, new)
        at_once = name in BOUNDS or (name in RATES and not shared)

        assert (() if at_once else (f"limits.{name.replace('_', '-')}",)) == waiting
        assert (other if at_once else getattr(old.limits, name)) == getattr(got.limits, name)


async def test_the_dialect_tells_the_rate_that_is_held(tmp_path: Path) -> None:
    """A handshake after a reload names the new rate, and the call after it is counted by that one."""
    async with dialect_lab(tmp_path, rate=Rate(5, 9)) as lab:
        before = (await lab.send("POST", OPEN + "/handshake", shake())).json()["limits"]
        lab.stage.app.gateway.quotas.renew(Rate(0.001, 1), Rate(1000, 1000))
        after = (await lab.send("POST", OPEN + "/handshake", shake())).json()["limits"]
        session = await lab.session()
        calls = [(await lab.invoke(session=session, id=f"call-{number}")).status_code for number in range(2)]

    assert (9, 1) == (before["calls_at_once"], after["calls_at_once"])
    assert (5, 0.001) == (before["calls_per_second"], after["calls_per_second"])
    assert [200, 429] == calls
