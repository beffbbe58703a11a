"""Brokers and holders killed at any moment, a thousand opens and closes: nothing is opened by it, nothing is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from sandbox.errors import PlatformError, SandboxError
from sandbox.events import Scope, Trace
from sandbox.launch.interface import LABEL_ROLE, LABEL_RUN
from sandbox.plan.model import NetworkPlan
from sandbox.policy.hosts import parse_rules
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.egress_lab import ALLOWED_CIDRS, Box, Lab, laboratory
from tests.probe_kit import with_label

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

RULES = ("http://allowed.test", "allowed.test:7777", "*.wild.test:7777")
CYCLES = 25
"""Sandboxes opened and closed after one another; each carries connections, a thousand of them in all."""

EACH = 40


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=80) as made:
        yield made


async def of_run(lab: Lab, run: str, role: str) -> list[str]:
    """Return the ids of a run's containers of one role."""
    rows = await lab.engine.labelled("containers", f"{LABEL_RUN}={run}")
    return [row["Id"] for row in rows if row["Labels"].get(LABEL_ROLE) == role]


async def killed(lab: Lab, run: str, role: str) -> int:
    """Kill every container of one role that runs at this moment; return how many there were."""
    found = await of_run(lab, run, role)
    for container in found:
        try:
            await lab.engine.kill(container, "KILL")
        except PlatformError:
            continue  # it is not running yet, or not any more
    return len(found)


async def hammer(box: Box, lab: Lab) -> list[str]:
    """Try what is allowed and what is not, again and again, for a second; return the errors of what is not."""
    errors = []
    for _ in range(20):
        await box.ask("timed(lambda: tcp('allowed.test', 7777))")
        errors.append(await box.error(f"connect({lab.evil!r}, 80).recv(1)"))
        errors.append(await box.error("connect('198.18.1.0', 443).recv(1)"))
        await asyncio.sleep(0.03)
    return errors


@pytest.mark.claim("P-EGR-10")
@pytest.mark.parametrize("role", ["broker", "holder"])
@pytest.mark.parametrize("milliseconds", [0, 20, 60, 150, 300, 600, 1200])
async def test_a_death_at_any_moment_opens_nothing_and_leaves_nothing(milliseconds: int, role: str, lab: Lab) -> None:
    """While it starts, is attached or carries: a refused destination stays refused, and closing removes everything."""
    await lab.forget()
    async with lab.backend() as (backend, provider):

        async def live() -> list[str]:
            try:
                box = await lab.launch(backend, RULES)
            except SandboxError:
                return []  # it died before there was a sandbox
            try:
                return await hammer(box, lab)
            except ConnectionError:
                return []  # the server was ended with its way out
            finally:
                await box.instance.stop(0)
                box.instance.stream.close()

        living = asyncio.create_task(live())
        await asyncio.sleep(milliseconds / 1000)
        await killed(lab, provider.run_id, role)
        async with asyncio.timeout(90):
            errors = await living
        run = provider.run_id

    assert await with_label(f"{LABEL_RUN}={run}") == []
    assert await lab.arrived("evil") == []
    assert set(errors) <= {"ECONNREFUSED", "ECONNRESET"}


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the listing itself is one of them


async def test_a_thousand_opens_and_closes_leave_nothing_behind(lab: Lab) -> None:
    """Sandboxes come and go under one broker: neither it nor the supervisor keeps a descriptor, container or file."""
    async with lab.backend() as (backend, provider):
        channel = (await provider._broker_task()).channel
        figures = []
        for _ in range(CYCLES):
            box = await lab.launch(backend, RULES)
            opened = await box.value(f"sum(tcp('allowed.test', 7777) == 'ping' for _ in range({EACH}))")
            await box.instance.stop(0)
            box.instance.stream.close()
            assert opened == EACH
            await asyncio.sleep(0.05)
            figures.append(((await channel.ask("status"))["descriptors"], descriptors()))
        status = await channel.ask("status")
        holders = await of_run(lab, provider.run_id, "holder")
        left = await with_label(f"{LABEL_RUN}={provider.run_id}")
        asked = {task.get_name() for task in provider._tasks}

    assert status["flows"] == {}
    assert figures[-1] == figures[1], "descriptors of broker and supervisor"
    assert len(holders) <= 1, "the next one, kept ready"
    assert len([row for row in left if row.startswith("volumes")]) == 1
    assert len(asked) <= 1
    assert await with_label(f"{LABEL_RUN}={provider.run_id}") == []


async def test_names_and_addresses_of_a_closed_sandbox_are_free_again(lab: Lab) -> None:
    """A policy that was detached keeps no name: the same holderless broker serves the same names to the next one."""
    provider = await lab.provider(os.urandom(16).hex())
    plan = baseline_plan(network=NetworkPlan("broker", parse_rules(RULES), ALLOWED_CIDRS))
    try:
        for _ in range(3):
            attachment = await provider.attach(plan, Scope(MemoryRecorder(), Trace.new()), provider.run_id)
            assert attachment.names == {}
            await attachment.close()
            await attachment.close()
        assert provider._attached == {}
    finally:
        await provider.close()
    assert await with_label(f"{LABEL_RUN}={provider.run_id}") == []
