"""The Docker backend keeps every promise that a container backend makes."""

from __future__ import annotations

import dataclasses

import pytest

from sandbox.testing.conformance import Rig, backend_conformance, rows
from sandbox.testing.plans import SMALL, baseline_plan
from tests.probe_kit import backend_for, shipped_image

pytestmark = [pytest.mark.engine, pytest.mark.anyio]


@pytest.mark.parametrize("row", rows())
async def test_docker_conforms(row: str) -> None:
    """One promise of the conformance suite holds on a real engine."""
    async with backend_for() as backend:
        plan = baseline_plan(image_id=shipped_image("python"), image_named="mcp-sandbox/python")
        [finding] = await backend_conformance(Rig(backend, plan), [row])

    assert "" == finding.problem


@pytest.mark.parametrize("row", ["own-processes", "bounded-processes"])
async def test_a_row_can_fail(row: str) -> None:
    """A row is a test and not a formality: a plan with more than it allows fails it."""
    async with backend_for() as backend:
        plan = baseline_plan(image_id=shipped_image("python"), limits=dataclasses.replace(SMALL, pids=400))
        rig = _Wider(backend, plan) if row == "bounded-processes" else _Busier(backend, plan)
        [finding] = await backend_conformance(rig, [row])

    assert finding.problem


class _Wider(Rig):
    """Grants more processes than a row asks for."""

    def limits(self, **parts: object) -> object:
        """Return the plan's own limits."""
        return self.plan.limits


class _Busier(Rig):
    """Starts a program that has children of its own."""

    def server(self, **parts: object) -> object:
        """Return a plan whose server forks before it answers."""
        plan = Rig.server(self, **parts)
        program = plan.argv[-1].replace(
            "for line in sys.stdin", "for _ in 'abc':\n    os.fork() or signal.pause()\nfor line in sys.stdin"
        )
        return dataclasses.replace(plan, argv=(*plan.argv[:-1], program))
