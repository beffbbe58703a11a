"""Policy properties.

*Taking only the rules whose head reaches a request, and only the facts that they look at, changes no decision; adding a
forbid or an erroring rule never turns a deny into an allow; conversion never changes which values are equal.*
"""

from __future__ import annotations

import json
from typing import Any

import cedarpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.policy.cedar import PolicySet, cedar_context, entities_of, head_of, parse
from sandbox.policy.request import CALL, READ, DriverFacts, Principal, Request, ResourceFacts, ToolFacts
from sandbox.policy.values import Unrepresentable, to_cedar

DRIVERS = [DriverFacts("d1"), DriverFacts("d2", region=("eu",))]
TOOLS = [ToolFacts(driver, name, risk=risk) for driver in DRIVERS for risk, name in enumerate(("read", "write"))]
TARGETS: list[Any] = [*TOOLS, ResourceFacts(DRIVERS[0], "demo://x")]
CALLERS = [
    Principal("t1", "u1", groups=("g",)),
    Principal("t1", "u2"),
    Principal("t2", "u1", kind="Agent", claims=(("department", "sales"),)),
]
FACTS: dict[str, Any] = {
    "now": 1.8e9, "client": {}, "calls": {"target": 1, "tenant": 2}, "hosts": ["a"], "schemes": [], "paths": [],
    "uri": {"text": "demo://x", "scheme": "demo", "host": "", "path": ""},
}  # fmt: skip

principals = st.sampled_from(
    [
        "principal",
        'principal == User::"t1/u1"',
        'principal in Tenant::"t1"',
        'principal in Group::"t1/g"',
        "principal is Agent",
        'principal is User in Tenant::"t2"',
    ]
)
actions = st.sampled_from(
    ["action", 'action == Action::"tools/call"', 'action in [Action::"resources/read", Action::"launch"]']
)
resources = st.sampled_from(
    [
        "resource",
        'resource == Tool::"d1/read"',
        'resource in Driver::"d2"',
        "resource is Tool",
        'resource is Tool in Driver::"d1"',
        "resource is Resource",
        'resource is Resource in Driver::"d2"',
    ]
)
conditions = st.sampled_from(
    [
        "true",
        "context.arguments.a == 1",
        "context.arguments has a && context.arguments.a == 1",
        "context.arguments has b",
        'context.arguments.b like "x*"',
        "context.arguments.c.d > 2",
        "resource.risk > 0",
        'principal.hasTag("department")',
        "context.hour < 12 || context.calls.tenant > 1",
        'context.hosts.contains("a")',
        "context.arguments == {a: 1}",
        "context has uri",
    ]
)
rules = st.builds(
    lambda effect, who, what, on, when: f"{effect}({who}, {what}, {on}) when {{ {when} }};",
    st.sampled_from(["permit", "forbid"]), principals, actions, resources, conditions,
)  # fmt: skip
policies = st.lists(rules, max_size=6)
scalars = st.one_of(st.integers(-3, 3), st.sampled_from(["x", "xy", "", None, True, 1.0, 1.5]))
arguments = st.fixed_dictionaries(
    {},
    optional={"a": scalars, "b": scalars, "c": st.one_of(scalars, st.fixed_dictionaries({}, optional={"d": scalars}))},
)


def load(texts: list[str]) -> PolicySet:
    """Return a policy whose rules have the ids r0, r1 and so on."""
    return PolicySet.load([("p", "\n".join(f'@id("r{i}") @reason("r") {text}' for i, text in enumerate(texts)))])


def ask(policy: PolicySet, who: Principal, target: Any, given_arguments: dict[str, Any]) -> Any:
    """Return the decision of a call of a tool or a read of a resource."""
    return policy.decide(_request(who, target, given_arguments))


def _request(who: Principal, target: Any, given_arguments: dict[str, Any]) -> Request:
    if isinstance(target, ToolFacts):
        facts = {**FACTS, "arguments": given_arguments}
        return Request(who, CALL, target, {name: value for name, value in facts.items() if name != "uri"})
    return Request(who, READ, target, FACTS)


@given(policies, st.sampled_from(CALLERS), st.sampled_from(TARGETS), arguments)
@settings(max_examples=400, deadline=None)
def test_a_slice_decides_as_the_whole(texts: list[str], who: Principal, target: Any, values: dict[str, Any]) -> None:
    """The sliced decision is Cedar's on all rules and all facts, with errors turned into denials."""
    policy = load(texts)
    request = _request(who, target, values)
    whole = {**head_of(who, request.action, target), "context": cedar_context(request.context)}
    answer = cedarpy.is_authorized(whole, parse(policy.rules), entities_of(who, target))
    allowed = answer.allowed and not answer.diagnostics.errors
    decision = policy.decide(request)

    assert decision.allowed == allowed
    assert len(decision.errors) == len(answer.diagnostics.errors)
    assert set(decision.rules) == set(answer.diagnostics.id_annotations_by_reason.values())


@given(policies, rules, st.sampled_from(CALLERS), st.sampled_from(TARGETS), arguments)
@settings(max_examples=300, deadline=None)
def test_another_forbid_never_allows(
    texts: list[str], extra: str, who: Principal, target: Any, values: dict[str, Any]
) -> None:
    """A set with one more forbid allows at most what it allowed before, whether or not that forbid errors."""
    forbidding = extra.replace("permit(", "forbid(")
    before = ask(load(texts), who, target, values).allowed
    after = ask(load([*texts, forbidding]), who, target, values).allowed

    assert before or not after


@given(policies, rules, st.sampled_from(CALLERS), st.sampled_from(TARGETS), arguments)
@settings(max_examples=300, deadline=None)
def test_an_erroring_rule_never_allows(
    texts: list[str], extra: str, who: Principal, target: Any, values: dict[str, Any]
) -> None:
    """A rule that always errors, permit or forbid, denies wherever its head reaches, and changes nothing elsewhere."""
    erroring = extra[: extra.index(" when ")] + " when { context.nowhere };"
    before = ask(load(texts), who, target, values).allowed
    after = ask(load([*texts, erroring]), who, target, values).allowed

    assert before or not after


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


@given(json_values, json_values)
@settings(max_examples=500, deadline=None)
def test_conversion_keeps_inequality(one: Any, other: Any) -> None:
    """Two values with one Cedar form are equal in JSON; what has no form is refused, never something else."""
    try:
        forms = [json.dumps(to_cedar(value), sort_keys=True) for value in (one, other)]
    except Unrepresentable:
        return

    assert forms[0] != forms[1] or _same(one, other)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


@given(json_values)
@settings(max_examples=300, deadline=None)
def test_any_value_is_decided(value: Any) -> None:
    """Whatever an argument holds, the answer is a decision: nothing raises, Cedar takes every converted value."""
    policy = load(
        ["permit(principal, action, resource) when { context.arguments == {x: 1} || context.arguments has x };"]
    )
    decision = ask(policy, CALLERS[0], TOOLS[0], {"x": value})

    assert decision.basis in ("permit", "error")
    assert all(fault.kind == "value without a Cedar form" for fault in decision.errors)
