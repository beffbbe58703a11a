"""What a decision knows of earlier calls, and what operator and client are told of a denial."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.policy.cedar import PolicySet
from sandbox.serve.calls import Caller
from sandbox.serve.decide import Calls, CedarDecider, Denied
from sandbox.tenant import TenantContext, TenantId
from sandbox.vet.bind import bind
from tests.unit.serve.builders import contract_of, spec_of, surface_of

RULES = """
@id("all") @reason("everything bound") permit(principal, action, resource);
@id("three") @reason("three calls are enough") forbid(principal, action == Action::"tools/call", resource)
when { context.calls.target >= 3 };
"""


def decider(tell: Callable[[str], None] = lambda _line: None) -> CedarDecider:
    """Return a decider for one tool."""
    spec = spec_of(contract_of())
    return CedarDecider(PolicySet.load([("rules.cedar", RULES)]), spec, bind(spec, surface_of(spec)), tell=tell)


def caller(tenant: str) -> Caller:
    """Return a caller of a tenant."""
    return Caller(TenantContext(TenantId(tenant), "alice"))


def allowed(made: CedarDecider, tenant: str) -> bool:
    """Ask for one call."""
    tool = bind(spec_of(contract_of()), surface_of(spec_of(contract_of()))).tools["tool"]
    try:
        made.decide_call(caller(tenant), tool, {})
    except Denied:
        return False
    return True


def test_a_rule_can_count_the_calls_of_a_tenant() -> None:
    """The fourth call of a tenant is denied, and another tenant's first is not."""
    made = decider()

    assert [True, True, True, False, False] == [allowed(made, "acme") for _ in range(5)]
    assert allowed(made, "other")


def test_the_operator_is_told_the_rule_and_the_client_is_not() -> None:
    """The line for stderr has rule, place and reason; the refusal has none of them."""
    told: list[str] = []
    made = decider(told.append)
    tool = bind(spec_of(contract_of()), surface_of(spec_of(contract_of()))).tools["tool"]
    for _ in range(3):
        made.decide_call(caller("acme"), tool, {})

    with pytest.raises(Denied) as refused:
        made.decide_call(caller("acme"), tool, {})

    assert ["three", "rules.cedar:3", "three calls are enough"] == [
        word for word in ("three", "rules.cedar:3", "three calls are enough") if word in told[0]
    ]
    assert "three" not in str(refused.value)
    assert "tool" in refused.value.message


def test_what_cannot_be_counted_is_unknown() -> None:
    """Without room for another tenant the fact is missing, so that a rule which looks at it denies."""
    calls = Calls(most=4)
    first = [calls.next(TenantId(f"t{index}"), "tools/call", "Tool") for index in range(3)]

    assert {"calls": {"target": 0, "tenant": 0}} == first[1]
    assert {} == first[2]
    assert {"calls": {"target": 1, "tenant": 1}} == calls.next(TenantId("t0"), "tools/call", "Tool")
