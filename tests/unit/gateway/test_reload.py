"""Drivers, policy, rules and gateway.toml that change while clients are connected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_lab import modern
from tests.reload_lab import CALLS, FORBID, RULES, found_in, reload_lab
from tests.unit.supervisor.test_pool import until

pytestmark = pytest.mark.anyio


def process(result: dict[str, Any]) -> int:
    """Return which process answered."""
    return int(result["structuredContent"]["process"])


async def test_nothing_changed_reloads_nothing(tmp_path: Path) -> None:
    """A reload without a change, and one after a mere touch, leave instances, sessions and trail alone."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        first = await session.call()
        (tmp_path / "drivers" / "one" / "DRIVER.md").touch()
        assert not await lab.reload()
        assert not await lab.reload(force=True)
        again = await session.call()

        assert process(first) == process(again) == 1
        assert not lab.facts("gateway.reload")


async def test_a_session_goes_on_with_a_fresh_instance_when_its_driver_changes(tmp_path: Path) -> None:
    """The same session, the same id; the next call is answered by a process of the new version."""
    async with reload_lab(tmp_path) as lab:
        session, other = await lab.session(), await lab.session("/mcp/two")
        before, before_other = await session.call(), await other.call()
        lab.place.driver("one", said="Another version.")
        assert await lab.reload()
        after, after_other = await session.call(), await other.call()

        assert process(before) != process(after)
        assert process(before_other) == process(after_other)
        [intent] = lab.facts("gateway.reload", "intent")
        assert (["one"], [], [], []) == tuple(intent[name] for name in ("changed", "added", "removed", "refused"))
        assert intent["before"] != intent["after"]
        await until(lambda: sum(one.open for one in lab.programs.processes) == 2)


async def test_a_call_in_progress_is_answered_by_the_instance_that_began_it(tmp_path: Path) -> None:
    """While it runs the driver changes; later calls of the same session use the new instance; neither waits."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        hanging = asyncio.create_task(session.call(number=70, wait=True))
        await until(lambda: lab.programs.waiting)
        lab.place.driver("one", said="Another version.")
        await lab.reload()
        fresh = await session.call(number=71)
        lab.programs.gate.set()
        old = await hanging

        assert (1, 2) == (process(old), process(fresh))
        assert not lab.facts("pool.cut")


async def test_a_call_that_outlasts_the_drain_is_told_so(tmp_path: Path) -> None:
    """Its deadline ends the old instance; the client gets an error and the session goes on."""
    async with reload_lab(tmp_path, drain=0.1) as lab:
        session = await lab.session()
        hanging = asyncio.create_task(session.call(number=70, wait=True))
        await until(lambda: lab.programs.waiting)
        lab.place.driver("one", said="Another version.")
        await lab.reload()
        said = await hanging
        fresh = await session.call(number=71)

        assert "structuredContent" not in said
        assert lab.facts("pool.cut")
        assert 2 == process(fresh)


@pytest.mark.claim("P-GATE-20")
async def test_a_rule_added_later_holds_for_an_open_session(tmp_path: Path) -> None:
    """Allowed before; after the reload the same call of the same session is refused and never reaches the server."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        control = await session.call()
        lab.place.rules(RULES + FORBID)
        await lab.reload()
        refused = await session.call()
        lab.place.rules()
        await lab.reload()
        again = await session.call()

        assert 1 == process(control) == process(again)
        assert refused["isError"]
        assert 2 == len(lab.programs.processes[0].calls)
        assert 1 == len(lab.programs.processes)


async def test_a_call_right_after_the_swap_is_decided_by_the_new_rules(tmp_path: Path) -> None:
    """However requests and reload interleave, what is sent after the reload returned is never decided by old rules."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        for turn in range(6):
            lab.place.rules(RULES + FORBID if turn % 2 == 0 else RULES)
            flood = [asyncio.create_task(session.call(number=100 + turn * 20 + one)) for one in range(8)]
            await lab.reload()
            after = await session.call(number=100 + turn * 20 + 9)
            await asyncio.gather(*flood)

            assert after.get("isError", False) is (turn % 2 == 0)


async def test_a_stateless_client_is_held_to_the_new_rules_too(tmp_path: Path) -> None:
    """Requests without a session are decided by what holds when they come."""
    async with reload_lab(tmp_path) as lab:
        body, headers = modern("tools/call", {"name": "tool-a", "arguments": {}})
        control = found_in(await lab.post("/mcp/one", body, **headers))
        lab.place.rules(RULES + FORBID)
        await lab.reload()
        refused = found_in(await lab.post("/mcp/one", body, **headers))

        assert not control.get("isError")
        assert refused["isError"]


async def test_rules_that_count_go_on_counting(tmp_path: Path) -> None:
    """A reload does not give a caller its allowance again."""
    limit = f'@id("two")\n@reason("a test")\nforbid ({CALLS}) when {{context.calls.target >= 2}};\n'
    async with reload_lab(tmp_path) as lab:
        lab.place.rules(RULES + limit)
        await lab.reload()
        session = await lab.session()
        allowed = [await session.call(), await session.call()]
        lab.place.rules(RULES + limit + "// another comment\n")
        await lab.reload()
        refused = await session.call()

        assert not any(one.get("isError") for one in allowed)
        assert refused["isError"]


async def test_a_driver_that_is_added_is_served_and_listed(tmp_path: Path) -> None:
    """Endpoint, aggregate and register know it after the reload; a session of the aggregate is told."""
    async with reload_lab(tmp_path) as lab:
        whole = await lab.session("/mcp")
        before = await whole.tools()
        async with whole.standing() as heard:
            lab.place.driver("three", ("tool-b",))
            lab.place.config("[limits]\ndrain = 5.0\n", ("one", "two", "three"))
            await lab.reload()
            told = await asyncio.wait_for(heard.get(), 5)
        after = await whole.tools()
        own = await (await lab.session("/mcp/three")).call("tool-b")
        through = await whole.call("three__tool-b")
        register = await lab.client.get(lab.url + "/v0.1/servers")

        assert ["one__tool-a", "two__tool-a"] == before
        assert {*before, "three__tool-b"} == set(after)
        assert "notifications/tools/list_changed" == told
        assert process(own) == process(through)
        assert "three" in register.text


async def test_a_driver_that_vanishes_is_served_no_more(tmp_path: Path) -> None:
    """Its calls in progress are answered, its sessions end, its endpoint is gone, and nothing of it is left."""
    async with reload_lab(tmp_path) as lab:
        session, whole = await lab.session("/mcp/two"), await lab.session("/mcp")
        hanging = asyncio.create_task(session.call(wait=True))
        await until(lambda: lab.programs.waiting)
        (tmp_path / "drivers" / "two" / "DRIVER.md").unlink()
        await lab.reload()
        gone = await session.ask("tools/list")
        tools = await whole.tools()
        lab.programs.gate.set()
        answered = await hanging
        register = await lab.client.get(lab.url + "/v0.1/servers")

        assert "two" == answered["structuredContent"]["driver"]
        assert 404 == gone.status_code
        assert ["one__tool-a"] == tools
        assert "two" not in register.text
        await until(lambda: not any(one.open for one in lab.programs.processes if one.driver == "two"))


async def test_a_tool_that_is_bound_no_more_is_refused_on_an_open_session(tmp_path: Path) -> None:
    """The session is told that its tools changed; calling the old one does not reach any server."""
    async with reload_lab(tmp_path) as lab:
        lab.place.driver("one", ("tool-a", "tool-b"))
        await lab.reload()
        session = await lab.session()
        control = await session.call("tool-b")
        async with session.standing() as heard:
            lab.place.driver("one", ("tool-a",))
            await lab.reload()
            told = await asyncio.wait_for(heard.get(), 5)
            refused = await session.call("tool-b")

        assert "structuredContent" in control
        assert "structuredContent" not in refused
        assert "notifications/tools/list_changed" == told
        assert ["tool-a"] == await session.tools()


@pytest.mark.parametrize(
    "broken", ["---\nname: half", "", "---\nname: one\nid: one\nkind: mcp\nserver: {kind: binary}\n---\n"]
)
async def test_a_broken_driver_goes_on_as_it_was(tmp_path: Path, broken: str) -> None:
    """What fails its review changes nothing for its clients, and is told; mended, it is taken."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        first = await session.call()
        good = (tmp_path / "drivers" / "one" / "DRIVER.md").read_text()
        (tmp_path / "drivers" / "one" / "DRIVER.md").write_text(broken)
        await lab.reload()
        still = await session.call()
        (tmp_path / "drivers" / "one" / "DRIVER.md").write_text(good.replace("A driver.", "Mended."))
        await lab.reload()
        mended = await session.call()

        assert process(first) == process(still) == 1
        assert 2 == process(mended)
        assert [1, 0] == [len(one["refused"]) for one in lab.facts("gateway.reload", "intent")]


@pytest.mark.parametrize(
    ("name", "text"),
    [("rules/own.cedar", "permit (principal"), ("policy.toml", "version = "), ("gateway.toml", "[driver")],
)
async def test_an_unreadable_policy_changes_nothing_at_all(tmp_path: Path, name: str, text: str) -> None:
    """The old one goes on for everybody, also where a driver changed at the same time."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        first = await session.call()
        (tmp_path / name).write_text(text)
        lab.place.driver("one", said="Another version.")
        assert not await lab.reload()
        still = await session.call()

        assert process(first) == process(still)
        assert [True] == [one["before"] == one["after"] and bool(one["reason"]) for one in lab.facts("gateway.reload")]


async def test_rules_that_misname_an_argument_are_refused_before_they_are_taken(tmp_path: Path) -> None:
    """Rules that could never hold are told at the reload, not by refusing every call later."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        lab.place.rules(
            RULES + f'@id("typo")\n@reason("a test")\nforbid ({CALLS}) when {{context.arguments.nosuch == 1}};\n'
        )
        assert not await lab.reload()

        assert not (await session.call()).get("isError")


async def test_a_driver_that_a_stricter_policy_refuses_is_served_no_more(tmp_path: Path) -> None:
    """The old version does not outlive the operator's word; the other driver does."""
    async with reload_lab(tmp_path) as lab:
        lab.place.driver("one", more="limits: {memory_mb: 300}")
        await lab.reload()
        session, other = await lab.session(), await lab.session("/mcp/two")
        control = await session.call()
        lab.place.policy('[limits.memory]\nmax = "100MiB"\ndefault = "100MiB"\nreason = "small"\n')
        await lab.reload()
        gone, still = await session.ask("tools/list"), await other.call()

        assert "structuredContent" in control
        assert 404 == gone.status_code
        assert "structuredContent" in still
        assert ["one"] == lab.facts("gateway.reload", "intent")[-1]["removed"]


async def test_an_endpoint_that_closes_is_closed_for_open_sessions(tmp_path: Path) -> None:
    """Whoever needed no credential before needs one after the reload, on the session that is open too."""
    async with reload_lab(tmp_path) as lab:
        session, other = await lab.session(), await lab.session("/mcp/two")
        control = await session.ask("tools/list")
        lab.place.config("[limits]\ndrain = 5.0\n", ("two",))
        await lab.reload()
        refused, still = await session.ask("tools/list"), await other.ask("tools/list")

        assert (200, 401, 200) == (control.status_code, refused.status_code, still.status_code)
        assert 1 == len(lab.app.sessions)


async def test_a_file_that_changes_while_it_is_read_is_never_taken_half(tmp_path: Path) -> None:
    """A folder that is written during its review is reviewed again; what is served in the end is what stands there."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        lab.place.driver("one", said="First of three.")
        reviewed = []
        inner = lab.reloader._wiring.review

        def meddling(folder: Path, config: Any) -> Any:
            made = inner(folder, config)
            reviewed.append(made.review.spec.description)
            if len(reviewed) == 1:
                lab.place.driver("one", said="Second of three.")
            return made

        object.__setattr__(lab.reloader._wiring, "review", meddling)
        await lab.reload()
        await session.call()

        assert ["First of three.", "Second of three."] == reviewed
        assert "Second of three." == lab.parts.mounted[0].review.spec.description


async def test_a_change_that_cannot_be_recorded_does_not_happen(tmp_path: Path) -> None:
    """The intent comes before the effect: without a trail the old state goes on."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        lab.place.rules(RULES + FORBID)
        lab.recorder.fails_at = frozenset(("gateway.reload",))
        assert not await lab.reload()
        lab.recorder.fails_at = frozenset()

        assert not (await session.call()).get("isError")
        assert await lab.reload()
        assert (await session.call())["isError"]


async def test_files_are_watched_until_they_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any signal a change is taken, once, after two looks that saw the same."""
    monkeypatch.setattr("sandbox.cli.gateway.reload.LOOK", 0.05)
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        watching = asyncio.create_task(lab.reloader.watch())
        lab.place.driver("one", said="Another version.")
        await until(lambda: lab.reloader.count)
        fresh = await session.call()
        watching.cancel()

        assert 2 == process(fresh)
        assert 1 == len(lab.facts("gateway.reload", "intent"))


async def test_what_needs_a_start_is_said_and_waits(tmp_path: Path) -> None:
    """The address stays as it was until the gateway is started again, and nobody is left to wonder; a limit holds."""
    async with reload_lab(tmp_path) as lab:
        lab.place.config('public-url = "https://mcp.example"\n[limits]\ndrain = 9.0\n')
        await lab.reload()

        assert ["public-url"] == lab.facts("gateway.reload", "intent")[0]["waiting"]
        assert "" == lab.parts.config.public_url
        assert (9.0, 9.0) == (lab.parts.config.limits.drain, lab.app.gateway.bounds.drain)


async def test_a_version_that_does_not_start_refuses_calls_until_it_is_mended(tmp_path: Path) -> None:
    """It passed its review and ends at once: the session stays, its calls are told, and later go on."""
    async with reload_lab(tmp_path) as lab:
        session = await lab.session()
        control = await session.call()
        lab.programs.broken = True
        lab.place.driver("one", said="Another version.")
        await lab.reload()
        refused = await session.call()
        lab.programs.broken = False
        lab.place.driver("one", said="Mended.")
        await lab.reload()
        mended = await session.call()

        assert "structuredContent" in control
        assert refused["isError"]
        assert "GATE-050" in str(refused)
        assert "structuredContent" in mended


async def test_whoever_was_let_in_without_signing_in_is_out_when_that_ends(tmp_path: Path) -> None:
    """`unsafe-tenant` goes from gateway.toml: sessions that it opened end, and nobody comes in."""
    async with reload_lab(tmp_path, config='unsafe-tenant = "me"\n') as lab:
        lab.place.config('unsafe-tenant = "me"\n[limits]\ndrain = 5.0\n', ())
        await lab.reload()
        session = await lab.session()
        control = await session.ask("tools/list")
        lab.place.config("[limits]\ndrain = 5.0\n", ())
        await lab.reload()
        refused = await session.ask("tools/list")

        assert (200, 401) == (control.status_code, refused.status_code)
        assert 0 == len(lab.app.sessions)
