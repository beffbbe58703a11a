"""T02 at scale: a thousand concurrent calls of twenty tenants through one supervisor, whole pipeline included.

The servers answer late and in random order; in the second test they also die at random. Every answer names the process
and the arguments that reached it, so that one answer at a wrong place is seen.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.events import Scope, Trace
from sandbox.policy.cedar import PolicySet
from sandbox.serve.calls import BoundTool, Caller, Collaborators, Pipeline
from sandbox.serve.decide import CedarDecider
from sandbox.serve.guard import ContextInjector, ToolGuard
from sandbox.serve.paths import Roots
from sandbox.serve.ratelimit import Buckets, Rate, RateLimiter
from sandbox.serve.results import ResultCleaner
from sandbox.serve.uris import UriRules
from sandbox.supervisor.bounds import PoolBounds
from sandbox.supervisor.breaker import Patience
from sandbox.supervisor.fair import Gate
from sandbox.supervisor.held import Served
from sandbox.supervisor.opening import opening
from sandbox.supervisor.pool import Instances
from sandbox.tenant import TenantContext, TenantId
from sandbox.testing.backend import FakeBackend
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from sandbox.vet.bind import bind
from tests.fake_servers import Whoami
from tests.unit.serve.builders import contract_of, spec_of, surface_of
from tests.unit.supervisor.test_pool import ROOMY

pytestmark = pytest.mark.anyio
TENANTS = tuple(f"tenant-{number:02}" for number in range(20))
CALLS = 1000
RULES = UriRules(Roots(["/workspace"]), "/workspace")
OPEN = '@id("all") @reason("r") permit(principal, action, resource);'
ENDED = Patience(first=0.001, longest=0.002, failures=10**6)
"""Restarts at once: how they are spaced is tested elsewhere."""


class Supervisor:
    """Pool and pipeline of one driver, as a gateway has them."""

    def __init__(self, server: Whoami, *, idempotent: bool) -> None:
        self.recorder = MemoryRecorder()
        self.scope = Scope(self.recorder, Trace.new())
        inputs = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        contract = contract_of(inputs=inputs, outputs={"type": "string"}, idempotent=idempotent)
        context = {"tenant_id": "tenant.id", "user": "user.sub"}
        made = spec_of(contract, tool_name="whoami", context=context)
        self.spec = made.model_copy(update={"protocol_version": "2025-11-25"})
        self.backend = FakeBackend(server)
        bounds = PoolBounds(restarts=ENDED, starting=8, waiting_of_tenant=CALLS)
        self.pool = Instances(opening(self.backend, self.scope), self.scope, bounds, lambda: ROOMY)
        self.pool.add(Served(self.spec, lambda _tenant: baseline_plan()))
        exposure = bind(self.spec, surface_of(self.spec))
        gate = Gate(total=200, of_tenant=50, waiting=CALLS, patience=60)
        limiter = RateLimiter(Buckets(Rate(1e6, 10**6)), gate, lambda: 0.0)
        decider = CedarDecider(PolicySet.load([("r.cedar", OPEN)]), self.spec, exposure)
        self.pipeline = Pipeline(exposure, Collaborators(decider, limiter, ResultCleaner(RULES)), self._equip)
        self.idempotent = idempotent

    @staticmethod
    def _equip(bound: BoundTool) -> BoundTool:
        bound.guard = ToolGuard(bound.tool.binding, RULES)
        bound.injector = ContextInjector(bound.tool.binding)
        return bound

    async def call(self, tenant: str, number: int) -> dict[str, Any]:
        """Make one call and return what the server says it got, or the refusal."""
        who = Caller(TenantContext(TenantId(tenant), f"user-{number}"))

        async def forward(name: str, sent: dict[str, Any]) -> Mapping[str, Any]:
            async with self.pool.lease(self.spec.id, who.tenant.tenant, who.tenant.user) as lease:
                params = {"name": name, "arguments": sent}
                return await lease.request("tools/call", params, timeout=30, idempotent=self.idempotent, id=number)

        scope = self.scope.child().within(driver=self.spec.id, tenant=tenant)
        result = await self.pipeline.call("tool", {"n": number}, who, scope, forward)
        text = result["content"][0]["text"]
        return {"error": text} if result["isError"] else dict(json.loads(text))


async def run(server: Whoami, *, idempotent: bool = False) -> tuple[Supervisor, dict[int, tuple[str, dict[str, Any]]]]:
    """Make all calls at once, in random order; return what each caller got."""
    supervisor = Supervisor(server, idempotent=idempotent)
    calls = [(TENANTS[number % len(TENANTS)], number) for number in range(CALLS)]
    random.Random(5).shuffle(calls)
    async with supervisor.pool, asyncio.timeout(120):
        answers = await asyncio.gather(*(supervisor.call(*one) for one in calls))
    return supervisor, {number: (tenant, said) for (tenant, number), said in zip(calls, answers, strict=True)}


def check_answers(answers: Mapping[int, tuple[str, dict[str, Any]]]) -> None:
    """Every answer is of the call that was made, with the context of its caller."""
    for number, (tenant, said) in answers.items():
        if "error" not in said:
            assert (number, tenant, f"user-{number}") == (said["n"], said["tenant_id"], said["user"])


def check_processes(server: Whoami) -> None:
    """No process saw a second tenant."""
    owners: dict[int, set[str]] = {}
    for pid, given in server.seen:
        owners.setdefault(pid, set()).add(given["tenant_id"])
    assert {1} == {len(tenants) for tenants in owners.values()}


@pytest.mark.claim("P-TENANT-01")
@pytest.mark.claim("P-TENANT-03")
async def test_a_thousand_calls_of_twenty_tenants_each_reach_their_own_server() -> None:
    """T02: 1 000 answers for 1 000 callers, 0 lost, 0 duplicated, the context that of the caller in all of them."""
    server = Whoami(delays=0.05, shuffle=8)
    supervisor, answers = await run(server)

    assert CALLS == len(answers)
    assert [] == [said for _, said in answers.values() if "error" in said]
    check_answers(answers)
    check_processes(server)
    assert {1} == set(Counter(given["n"] for _, given in server.seen).values())
    assert len(TENANTS) == server.starts
    forwarded = [fact for fact in supervisor.recorder.facts if fact.name == "call.forward"]
    assert Counter({"intent": CALLS, "outcome": CALLS}) == Counter(fact.phase for fact in forwarded)


async def test_with_servers_killed_at_random_nothing_is_lost_or_mixed_up() -> None:
    """T02 with deaths: a caller gets its own answer or hears that its call's effect is unknown, never another's."""
    server = Whoami(delays=0.02, shuffle=4, deadly=0.01)
    supervisor, answers = await run(server)

    failed = [said["error"] for _, said in answers.values() if "error" in said]
    assert CALLS == len(answers)
    assert server.starts > len(TENANTS)
    assert failed
    assert [] == [text for text in failed if "CALL-074" not in text]
    check_answers(answers)
    check_processes(server)
    assert {1} == set(Counter(given["n"] for _, given in server.seen).values())
    assert [] == [fact for fact in supervisor.recorder.facts if fact.name == "pool.repeat"]


async def test_idempotent_calls_survive_servers_that_are_killed() -> None:
    """With the contract's word most calls that met a death are answered after all, at most twice executed."""
    server = Whoami(delays=0.02, shuffle=4, deadly=0.01)
    supervisor, answers = await run(server, idempotent=True)

    failed = [said["error"] for _, said in answers.values() if "error" in said]
    repeated = [fact for fact in supervisor.recorder.facts if fact.name == "pool.repeat"]
    assert repeated
    assert len(failed) < len(repeated)
    assert [] == [text for text in failed if "CALL-074" not in text]
    check_answers(answers)
    check_processes(server)
    assert max(Counter(given["n"] for _, given in server.seen).values()) <= 2
