"""Step 8: puts one request before the operator's rules; the rule stays in the record, out of the client's answer.

Everything that rules can know of a driver and its tools comes from reviewed files (:class:`DriverFacts`,
:class:`ToolFacts`); nothing that a server says about itself reaches a decision.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sandbox.errors import CallRefused
from sandbox.policy.cedar import Decision, PolicySet
from sandbox.policy.request import DriverFacts, Principal, PromptFacts, Request, ResourceFacts, Target, ToolFacts
from sandbox.serve.calls import Caller
from sandbox.serve.guard import facts_of
from sandbox.serve.paths import Checked
from sandbox.spec.model import Binding, DriverSpec
from sandbox.tenant import TenantId
from sandbox.vet.bind import exposed_inputs
from sandbox.vet.model import ExposedTool, Exposure

MAX_COUNTED: Final = 100_000
"""Pairs of tenant and target whose calls are counted. Targets are declared by drivers, so only tenants can be many;
beyond it a count is unknown, and a rule that looks at it denies."""


class Denied(CallRefused):
    """A refusal by policy. ``decision`` is for the audit trail; the message says what was refused and not why.

    Attributes:
        decision: what was decided, by which rules.
    """

    def __init__(self, refusal: CallRefused, decision: Decision) -> None:
        self.decision = decision
        super().__init__(refusal.id, refusal.message, refusal.mend)

    @property
    def record(self) -> Mapping[str, Any]:
        """What the audit trail keeps of it."""
        return self.decision.record()


class CedarDecider:
    """The decisions of one live server.

    Args:
        policy: the operator's rules, or the starter set.
        spec: the driver.
        exposure: what is exposed of it.
        unsafe: the plan's weakenings, which rules may look at.
        clock: Unix time, seconds.
        tell: told each denial with the rule behind it, in one line for the operator; never shown to a client.
        calls: what was counted of the same server before, under other rules.

    Attributes:
        calls: how many requests came before.
        driver: what rules can know of the driver.
        tools: the same of each exposed tool.
    """

    def __init__(
        self,
        policy: PolicySet,
        spec: DriverSpec,
        exposure: Exposure,
        unsafe: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = lambda _line: None,
        calls: Calls | None = None,
    ) -> None:
        self._policy = policy
        self._tell = tell
        self.calls = calls or Calls()
        self.driver = driver_facts(spec, unsafe)
        self.tools: dict[str, ToolFacts] = {}
        self._clock = clock
        self.prepare(exposure)

    def prepare(self, exposure: Exposure) -> None:
        """Take in the tools of an exposure that are not known yet, such as one that was approved meanwhile."""
        for name, tool in exposure.tools.items():
            if name not in self.tools:
                self.tools[name] = tool_facts(tool, self.driver)

    def decide_call(self, caller: Caller, tool: ExposedTool, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the rules that allow a call, or raise :class:`Denied`."""
        context = {"arguments": dict(arguments), **facts_of(arguments)}
        return self._decide(caller, "tools/call", self.tools[tool.name], context, f"`{tool.name}`")

    def decide_prompt(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the rules that allow fetching a prompt, or raise :class:`Denied`."""
        target = PromptFacts(self.driver, name)
        return self._decide(caller, "prompts/get", target, {"argument_names": sorted(arguments)}, f"prompt `{name}`")

    def decide_resource(self, caller: Caller, checked: Checked, action: str) -> Sequence[str]:
        """Return the rules that allow reading or watching a resource, or raise :class:`Denied`."""
        target = ResourceFacts(self.driver, checked.text, checked.template)
        return self._decide(caller, f"resources/{action}", target, {"uri": checked.facts()}, "this resource")

    def decide_ask(self, caller: Caller, method: str, facts: Mapping[str, Any]) -> Sequence[str]:
        """Return the rules that let the server ask its client something, or raise :class:`Denied`."""
        return self._decide(caller, method, self.driver, facts, f"`{method}` by this server")

    def _decide(
        self, caller: Caller, action: str, target: Target, context: Mapping[str, Any], what: str
    ) -> Sequence[str]:
        calls = self.calls.next(caller.tenant.tenant, action, _counted(target))
        facts = {**context, "now": self._clock(), "client": {"name": caller.client}, **calls}
        decision = self._policy.decide(Request(Principal.of(caller.tenant), action, target, facts))
        if not decision.allowed:
            who = f"{caller.tenant.tenant}/{caller.tenant.user}"
            self._tell(f"denied {action} of {what} for {who}: {decision.why()}")
            raise Denied(decision.refusal(what), decision)
        return decision.rules


class Calls:
    """How many requests of an action came before, for rules that count (``context.calls``).

    Every request that reaches a decision counts, denied ones too: who is refused cannot try for nothing.
    """

    def __init__(self, most: int = MAX_COUNTED) -> None:
        self._most = most
        self._seen: Counter[tuple[TenantId, str, str]] = Counter()

    def next(self, tenant: TenantId, action: str, target: str) -> dict[str, dict[str, int]]:
        """Return the fact ``calls`` of a request, and count it; empty when there is no room to count."""
        keys = ((tenant, action, target), (tenant, action, ""))
        if len(self._seen) + 2 > self._most and not all(key in self._seen for key in keys):
            return {}
        before = [self._seen[key] for key in keys]
        self._seen.update(keys)
        return {"calls": {"target": before[0], "tenant": before[1]}}


def _counted(target: Target) -> str:
    """Return what a target is counted as: a resource by its template, so that URIs cannot be without number."""
    if isinstance(target, ResourceFacts):
        return f"template {target.template}"
    return target.uid[1]


def driver_facts(spec: DriverSpec, unsafe: tuple[str, ...] = ()) -> DriverFacts:
    """Return what rules can know of a driver."""
    return DriverFacts(
        id=spec.id,
        version=spec.version,
        server_kind=spec.server.kind,
        transport=spec.transport,
        tags=spec.tags,
        policy_tags=spec.policy_tags,
        region=spec.region,
        egress=spec.egress,
        unsafe=unsafe,
    )


def tool_facts(tool: ExposedTool, driver: DriverFacts) -> ToolFacts:
    """Return what rules can know of an exposed tool, under its contract's id whatever name it is exposed by."""
    return binding_facts(tool.binding, driver)


def binding_facts(binding: Binding, driver: DriverFacts) -> ToolFacts:
    """Return what rules can know of a bound tool; its server need not run for it."""
    contract = binding.contract
    return ToolFacts(
        driver=driver,
        name=contract.id,
        server_name=binding.tool_name,
        tags=contract.tags,
        risk=contract.risk_level,
        mutates=contract.mutates,
        idempotent=contract.idempotent,
        approval=contract.approval,
        cost_class=contract.cost_class,
        inputs=exposed_inputs(binding),
    )
