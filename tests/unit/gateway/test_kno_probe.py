"""The honeypot rule, live: what an entity advertises is what its endpoint does and what strangers are told."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from sandbox.cli.gateway.probing import probe
from tests.register_lab import CLOSED, OPEN, register_lab
from tests.unit.registry.test_register import entity

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        (OPEN, None),
        (CLOSED, None),
        (dataclasses.replace(CLOSED, visibility="internal"), None),
        (dataclasses.replace(CLOSED, auth="none", visibility="public"), "KNO-017"),
        (dataclasses.replace(OPEN, auth="bearer", visibility="authenticated"), "KNO-017"),
        (dataclasses.replace(OPEN, visibility="internal"), "KNO-027"),
        (dataclasses.replace(OPEN, slug="another"), "KNO-027"),
        (entity("missing", auth="none", visibility="public"), "KNO-016"),
        (entity("missing"), "KNO-016"),
    ],
    ids=lambda value: f"{value.slug}-{value.auth}-{value.visibility}" if value and not isinstance(value, str) else None,
)
@pytest.mark.claim("P-REG-05")
async def test_an_endpoint_that_does_something_else_is_found(tmp_path: Path, advertised: object, expected: str) -> None:
    """Advertised open and closed in fact, told and hidden in fact, and the reverse of each; what agrees is not."""
    async with register_lab(tmp_path) as stage:
        found = await asyncio.to_thread(probe, advertised, stage.url)  # type: ignore[arg-type]

    assert expected == (found.id if found else None)


async def test_a_gateway_that_is_not_there_is_found() -> None:
    """Nothing listens: that is said, rather than believed."""
    found = await asyncio.to_thread(probe, OPEN, "http://127.0.0.1:9")

    assert found is not None
    assert "KNO-016" == found.id
