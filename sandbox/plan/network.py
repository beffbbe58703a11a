"""The network of a plan: none, or exactly the destinations that driver and ceiling both name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import SpecError
from sandbox.plan.model import EgressRule, NetworkPlan
from sandbox.policy.ceiling_values import HostAllow, host_text
from sandbox.policy.hosts import narrowed, parse_rule

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft


def network(draft: Draft) -> NetworkPlan:
    """Return the network plan; empty egress is no network.

    Steps: 1 nothing asked for; 2 this host can enforce it; 3 each entry is understood; 4 the ceiling covers it.
    """
    # 1. nothing asked for (AIP-30: empty or missing means no network)
    if not draft.spec.egress:
        draft.because("network", "none", "the driver names no destination", draft.at("network.egress"))
        return NetworkPlan()
    # 2. enforceable
    remote = draft.spec.server.kind == "remote"
    if not (draft.host.remote_available if remote else draft.host.egress_available):
        found = ", ".join(draft.spec.egress)
        mend = "empty network.egress, or run where the egress broker is available (see `mcp-sandbox doctor`)"
        message = "network access is not yet enforceable on this host"
        draft.refuse("PLAN-050", "network.egress", message, found=found, mend=mend)
        return NetworkPlan()
    rules = []
    for index, text in enumerate(draft.spec.egress):
        field = f"network.egress[{index}]"
        # 3. understood
        try:
            rule = parse_rule(text, draft.at(field))
        except SpecError as error:
            for problem in error.problems:
                draft.refuse(problem.id, field, problem.message, found=problem.found, mend=problem.mend)
            continue
        # 4. covered
        if _covered(draft, field, text, rule):
            rules.append(rule)
    private = tuple(entry.value for entry in draft.ceiling.private)
    for entry in draft.ceiling.private:
        draft.because("network.allowed_private", entry.value, entry.reason, entry.source)
    return NetworkPlan("remote" if remote else "broker", tuple(rules), private)


def authorities(draft: Draft) -> tuple[str, ...]:
    """Return the operator's certificate authorities, for whoever verifies servers on a driver's behalf."""
    for entry in draft.ceiling.authorities:
        draft.because("authorities", entry.value, entry.reason, entry.source)
    return tuple(entry.value for entry in draft.ceiling.authorities)


def _covered(draft: Draft, field: str, text: str, rule: EgressRule) -> bool:
    """Return whether the ceiling covers a rule; note why not."""
    ceiling = draft.ceiling
    if rule.mode == "tcp" and not ceiling.raw_tcp:
        allowed = f"TLS and HTTP only ({ceiling.where('egress.raw_tcp')})"
        mend = "name a TLS or HTTP destination, or have the operator allow raw TCP"
        draft.refuse("PLAN-053", field, "raw TCP is not allowed", found=text, allowed=allowed, mend=mend)
        return False
    for entry in ceiling.hosts:
        if _within(rule, entry):
            draft.because("network.rules", text, entry.reason, f"{draft.at(field)}, within {entry.source}")
            return True
    named = ", ".join(host_text(entry) for entry in ceiling.hosts) or "no destination"
    allowed = f"{named} ({ceiling.where('egress.hosts')})"
    mend = "name fewer destinations, or have the operator raise the ceiling"
    draft.refuse("PLAN-052", field, "the destination is beyond the ceiling", found=text, allowed=allowed, mend=mend)
    return False


def _within(rule: EgressRule, entry: HostAllow) -> bool:
    """Return whether an entry of the ceiling covers a rule: its ports, and every name the rule stands for."""
    return (not entry.ports or set(rule.ports) <= set(entry.ports)) and narrowed(rule, (entry.pattern,))
