"""The honeypot rule, live: what an entity advertises about signing in is what its endpoint does."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from sandbox.cli.gateway.probing import probe
from tests.gateway_lab import lab
from tests.unit.registry.test_register import entity

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "auth", "expected"),
    [
        ("open", "none", None),
        ("closed", "bearer", None),
        ("closed", "none", "KNO-017"),
        ("open", "bearer", "KNO-017"),
        ("missing", "none", "KNO-016"),
    ],
)
async def test_an_endpoint_that_does_something_else_is_found(name: str, auth: str, expected: str | None) -> None:
    """Advertised open and closed in fact, and the reverse, are both reported; what agrees is not."""
    advertised = dataclasses.replace(entity(name), auth=auth)
    async with lab() as stage:
        found = await asyncio.to_thread(probe, advertised, stage.url)

    assert expected == (found.id if found else None)
