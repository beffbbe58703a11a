"""Reloads and the register: what is told of a driver and who may use it change at one moment, or not at all."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.gateway import register, swapping
from tests.gateway_lab import modern
from tests.reload_lab import ReloadLab, reload_lab

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


async def shown(lab: ReloadLab) -> tuple[bool, bool]:
    """Return whether strangers are told of a driver, and whether they may use it."""
    listed = (await lab.client.get(lab.url + "/v0.1/servers")).json()["servers"]
    body, headers = modern("tools/list")
    used = await lab.post("/mcp/one", body, **headers)
    return any(one["server"]["name"].endswith("/one") for one in listed), used.status_code == 200


async def test_a_driver_that_closes_is_told_of_no_longer_than_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history of a register may take its time: strangers do not read meanwhile of what is closed to them."""
    made, begun, go = register.catalog_of, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return made(*arguments)

    async with reload_lab(tmp_path) as lab:
        before = await shown(lab)
        monkeypatch.setattr(swapping, "catalog_of", slowly)
        lab.place.config(auth=("two",))
        reloading = asyncio.create_task(lab.reload())
        assert await asyncio.to_thread(begun.wait, 60)
        meanwhile = await shown(lab)
        go.set()
        assert await reloading
        after = await shown(lab)

    assert before == (True, True)
    assert meanwhile in ((True, True), (False, False))
    assert after == (False, False)


async def test_a_register_that_cannot_be_made_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the middle of a reload: what is told and what is served stay the same, and later both change."""

    def fail(*_arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    async with reload_lab(tmp_path) as lab:
        with monkeypatch.context() as full:
            full.setattr(swapping, "catalog_of", fail)
            lab.place.config(auth=("two",))
            failed = await lab.reload()
            meanwhile = await shown(lab)
        again = await lab.reload(force=True)
        after = await shown(lab)

    assert (failed, meanwhile) == (False, (True, True))
    assert (again, after) == (True, (False, False))
