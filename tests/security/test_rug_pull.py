"""Servers that change what they offer after it was approved: what reaches the client's wire, and what is left working.

The same server is asked without us first: what it changes can be seen there. Behind us nothing of it can.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import VetRefused
from sandbox.supervisor import Options
from sandbox.testing.servers.shifting import MARK, SECONDS, Shifting
from sandbox.vet.pinning import GONE, UNFIT
from tests.shifting import Stage, approve, playing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

WHENEVER = ["calls", "announced", "time", "tenant", "page", "flip"]
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


async def use(stage: Stage, rounds: int = 8) -> list[dict[str, Any]]:
    """Do what a client does for a while: call, list, fetch; return the answers of the tool that shifts."""
    answers = []
    for number in range(rounds):
        evil = {"tenant": "evil"} if number == 2 else {}
        answers.append(await stage.call("my-read", **evil))
        for method in LISTS:
            await stage.ask(method)
        if stage.server.mode == "time" and number == 3:
            await asyncio.sleep(SECONDS)
    return answers


def edit(folder: Path, old: str, new: str) -> None:
    """Change what was approved, as if the server had been another one then."""
    lock = folder / "driver.lock"
    assert old in lock.read_text()
    lock.write_text(lock.read_text().replace(old, new))


def ask(server: Shifting, method: str, **params: Any) -> str:
    """Ask the server itself."""
    return repr(server.take({"id": 1, "method": method, "params": params}))


@pytest.mark.parametrize("mode", [*WHENEVER, "widening"])
def test_without_us_the_change_is_there_to_be_seen(mode: str) -> None:
    """The control: the server that the tests below use does offer, and answer, what nobody approved."""
    clock = [0.0]
    server = Shifting(mode, lambda: clock[0])
    before = "".join(ask(server, method) for method in LISTS)
    for _ in range(3):
        ask(server, "tools/call", name="read", arguments={"tenant": "evil"})
    clock[0] = 2 * SECONDS
    more = {"cursor": "more"} if mode == "page" else {}
    after = "".join(ask(server, method, **more) for method in LISTS * 10)

    assert MARK not in before
    assert MARK in after


@pytest.mark.claim("P-VET-20")
@pytest.mark.parametrize("mode", WHENEVER)
async def test_nothing_unapproved_reaches_the_client(mode: str, tmp_path: Path) -> None:
    """After N calls, with or without a word, by time, by tenant, on a second page, to and fro: not one byte of it."""
    await approve(tmp_path, mode)

    async with playing(mode, tmp_path) as stage:
        answers = await use(stage)
        tools = await stage.tools()
        other = await stage.call("my-write")
        said = stage.said()

    assert MARK not in said
    assert not answers[0]["isError"], "it worked before"
    assert answers[-1]["isError"]
    assert "VET-140" in answers[-1]["content"][0]["text"]
    assert ["my-write"] == tools, "the rest goes on"
    assert not other["isError"]
    assert "notifications/tools/list_changed" in said
    held = stage.facts("vet.drift")[-1]["held"]
    assert ["read"] == list(held)
    assert MARK not in repr([fact.attrs for fact in stage.recorder.facts])


@pytest.mark.claim("P-VET-20")
async def test_a_first_use_is_held_to_what_it_said_first(tmp_path: Path) -> None:
    """Without pins, where the operator allows it, the first answer of the session stands in for them."""
    async with playing("calls", tmp_path) as stage:
        await use(stage)
        tools, said = await stage.tools(), stage.said()

    assert MARK not in said
    assert ["my-write"] == tools
    assert ["first use"] == [fact["trust"] for fact in stage.facts("vet.pins")]


@pytest.mark.claim("P-VET-21")
async def test_a_server_nobody_approved_is_refused_where_pins_are_asked_for(tmp_path: Path) -> None:
    """The operator decides whether there is a first use."""
    with pytest.raises(VetRefused) as caught:
        async with playing("honest", tmp_path, options=Options(pins_required=lambda: True)):
            pass

    assert "VET-130" == caught.value.id
    assert "pins approve" in caught.value.mend


@pytest.mark.claim("P-VET-21")
async def test_pins_for_other_capabilities_are_no_pins(tmp_path: Path) -> None:
    """What was approved for a client without roots is no word about what a client with roots is offered."""
    await approve(tmp_path, "capability", roots=False)

    async with playing("capability", tmp_path, roots=False) as stage:
        plain = await stage.call("my-read")
    with pytest.raises(VetRefused) as caught:
        async with playing("capability", tmp_path, roots=True):
            pass

    assert not plain["isError"]
    assert "VET-130" == caught.value.id
    assert '{"roots":{}}' in caught.value.message


@pytest.mark.claim("P-VET-20")
async def test_a_server_that_has_changed_before_it_starts_serves_the_rest(tmp_path: Path) -> None:
    """A new version offers a tool that reads differently: that tool is out from the start, and says why when called."""
    await approve(tmp_path, "honest")
    edit(tmp_path, "Returns the file.", "Returns a file.")

    async with playing("honest", tmp_path) as stage:
        tools = await stage.tools()
        refused = await stage.call("my-read")

    assert ["my-write"] == tools
    assert "VET-140" in refused["content"][0]["text"]
    assert "`description`" in refused["content"][0]["text"]
    assert stage.server.calls == 0, "the call was not forwarded"


async def test_nothing_left_is_refused_at_registration(tmp_path: Path) -> None:
    """Other instructions are about every tool; a server of which nothing is left is not served at all."""
    await approve(tmp_path, "honest")
    edit(tmp_path, "Be careful.", "Be quick.")

    with pytest.raises(VetRefused) as caught:
        async with playing("honest", tmp_path):
            pass

    assert "VET-132" == caught.value.id
    assert "`instructions`" in caught.value.message


async def test_narrowing_goes_on_and_is_recorded(tmp_path: Path) -> None:
    """A tool that takes shorter paths, still all that the contract sends, is not taken out."""
    await approve(tmp_path)

    async with playing("narrowing", tmp_path) as stage:
        answers = await use(stage)
        tools = await stage.tools()

    assert not any(answer["isError"] for answer in answers)
    assert ["my-read", "my-write"] == tools
    assert ["narrowing tools/read/inputSchema"] == stage.facts("vet.drift")[-1]["changes"]
    assert {} == stage.facts("vet.drift")[-1]["held"]


@pytest.mark.parametrize(("mode", "why"), [("misfit", UNFIT), ("gone", GONE), ("widening", "allows more")])
async def test_what_no_longer_serves_its_contract_is_out(mode: str, why: str, tmp_path: Path) -> None:
    """A narrowing that refuses what the contract sends, a tool that is gone and one that takes more are out."""
    await approve(tmp_path)

    async with playing(mode, tmp_path) as stage:
        answers = await use(stage)
        said = stage.said()

    assert answers[-1]["isError"]
    assert why in answers[-1]["content"][0]["text"]
    assert MARK not in said


async def test_lists_that_cannot_be_read_take_everything_out(tmp_path: Path) -> None:
    """A server that stops answering its lists may offer anything: nothing of it is used until it answers again."""
    await approve(tmp_path)

    async with playing("silent", tmp_path) as stage:
        answers = await use(stage)
        tools = await stage.tools()
        stage.server.mode = "honest"
        stage.live.revetter.server_notified("notifications/tools/list_changed", {})
        await stage.live.revetter.until(stage.live.revetter.announced)
        again = await stage.call("my-read")
        said = stage.said()

    assert answers[-1]["isError"]
    assert [] == tools
    assert not again["isError"]
    assert MARK not in said


async def test_a_result_is_withheld_when_the_tool_goes_out_meanwhile(tmp_path: Path) -> None:
    """The call was carried out, its result is not passed on, and the record says both."""
    await approve(tmp_path, "tenant")

    async with playing("announced", tmp_path) as stage:
        for _ in range(2):
            await stage.call("my-read")
        third = await stage.call("my-read")

    assert third["isError"]
    assert "VET-141" in third["content"][0]["text"]
    assert [{"tool": "my-read", "reason": "VET-141"}] == [
        {name: fact[name] for name in ("tool", "reason")} for fact in stage.facts("call.withhold")
    ]


async def test_what_cannot_be_recorded_goes_out_of_service(tmp_path: Path) -> None:
    """When a change cannot be recorded, nothing of the server is used any more."""
    await approve(tmp_path)

    async with playing("calls", tmp_path) as stage:
        stage.recorder.fails_at = frozenset({"vet.recheck"})
        answers = await use(stage)
        said = stage.said()

    assert answers[-1]["isError"]
    assert MARK not in said


async def test_a_defect_of_ours_leaves_nothing_in_service(tmp_path: Path) -> None:
    """When judging itself fails, calls are refused at once: none waits for a judgement that never comes."""
    await approve(tmp_path)

    async def fail(*_: Any) -> Any:
        raise ValueError("a defect")

    async with playing("calls", tmp_path) as stage:
        stage.live.revetter._judge = fail
        answers = await use(stage)
        said = stage.said()

    assert answers[-1]["isError"]
    assert MARK not in said
    assert "ValueError" in [fact.get("error") for fact in stage.facts("vet.recheck")]
