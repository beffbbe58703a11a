"""What waits for approval: kept by the last judgement, decided by digest, and held against the lock as it is then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import VetRefused
from sandbox.events import Scope, Trace
from sandbox.supervisor import Options
from sandbox.supervisor.desk import MAX_OFFERS, Desk
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet import pins
from tests import shifting

pytestmark = pytest.mark.anyio


async def until(stage: Any, desk: Desk, *, waits: bool) -> None:
    """Call the other tool until something waits, or nothing does."""
    async with asyncio.timeout(10):
        while bool(desk.pending()) is not waits:
            await stage.call("my-write")


async def test_a_live_server_goes_on_with_what_was_approved(tmp_path: Path) -> None:
    """The tool comes back into the open session, told by `list_changed`, and the pins are those of the offer."""
    await shifting.approve(tmp_path)
    desk, scope = Desk(), Scope(MemoryRecorder(), Trace.new())
    async with shifting.playing("announced", tmp_path, options=Options(judged=desk.judged)) as stage:
        stage.live.revetter.subscribe(lambda _exposure: None)
        for _ in range(3):
            await stage.call("my-read")
        await until(stage, desk, waits=True)
        offer, held = desk.pending()[0], await stage.tools()
        await desk.approve(offer.spec.id, offer.digest, offer.base, scope, by="me")
        after = await stage.tools()

    known = pins.read(str(tmp_path))
    assert known is not None
    assert (["my-write"], ["my-read", "my-write"]) == (held, sorted(after))
    assert ([], offer.digest) == (desk.pending(), pins.digest_of(next(iter(known.surfaces.values()))))


async def test_a_server_that_goes_back_leaves_nothing_to_approve(tmp_path: Path) -> None:
    """What it offered in between is pending no more and cannot be approved later; the tool stays held."""
    await shifting.approve(tmp_path)
    desk, scope = Desk(), Scope(MemoryRecorder(), Trace.new())
    async with shifting.playing("flip", tmp_path, options=Options(judged=desk.judged)) as stage:
        for _ in range(3):
            await stage.call("my-read")
        async with asyncio.timeout(10):
            while not desk.pending():
                await stage.ask("tools/list")
                await stage.call("my-read")
        offer = desk.pending()[0]
        await until(stage, desk, waits=False)
        with pytest.raises(VetRefused) as caught:
            await desk.approve(offer.spec.id, offer.digest, offer.base, scope)
        held = await stage.tools()

    assert ("VET-133", ["my-write"]) == (caught.value.id, held)


async def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    """However many tenants a driver has, the last judgements are kept and no more, and equal ones are shown as one."""
    await shifting.approve(tmp_path)
    desk = Desk()
    judged: list[Any] = []
    async with shifting.playing(
        "announced", tmp_path, options=Options(judged=lambda *one: judged.append(one))
    ) as stage:
        async with asyncio.timeout(10):
            while not any(change.waits for one in judged for change in one[2].changes):
                await stage.call("my-write")
    approval, surface, standing, _ = judged[-1]
    for number in range(MAX_OFFERS + 50):
        desk.judged(approval, surface, standing, f"tenant-{number}")

    (offer,) = desk.pending()
    assert MAX_OFFERS == len(offer.tenants)
    assert "tenant-0" not in offer.tenants
