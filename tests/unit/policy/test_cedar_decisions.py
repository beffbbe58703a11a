"""Decisions: deny by default, forbid wins, any error denies, facts that no rule looks at do not matter."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.policy.cedar import MAX_CONTEXT_BYTES, PolicySet
from sandbox.policy.request import (
    CALL,
    LAUNCH,
    READ,
    SAMPLE,
    DriverFacts,
    Principal,
    PromptFacts,
    Request,
    ResourceFacts,
    ToolFacts,
)
from sandbox.resources import shipped
from sandbox.tenant import TenantContext, TenantId

DRIVER = DriverFacts("files", region=("eu",), policy_tags=("pii-safe",), server_kind="npm", transport="stdio")
INPUTS = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "amount": {"type": "number"},
        "count": {"type": "integer"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["path"],
}
TOOL = ToolFacts(DRIVER, "fs.read", tags=("files",), risk=1, inputs=INPUTS)
ALICE = Principal("acme", "alice", groups=("staff",), claims=(("department", "sales"),))
FACTS: dict[str, Any] = {
    "now": 1_800_014_400.0,
    "client": {},
    "calls": {"target": 0, "tenant": 0},
    "hosts": [],
    "schemes": [],
    "paths": [],
}
PERMIT = '@id("any") @reason("all may") permit(principal, action == Action::"tools/call", resource);'


def decide(rules: str, arguments: dict[str, Any] | None = None, principal: Principal = ALICE, **facts: Any) -> Any:
    """Return the decision of rules on a call of ``fs.read``."""
    context = {**FACTS, "arguments": arguments or {}, **facts}
    return PolicySet.load([("rules.cedar", rules)]).decide(Request(principal, CALL, TOOL, context))


def forbid(condition: str) -> str:
    """Return a permit of everything and a forbid with a condition."""
    return PERMIT + f'@id("no") @reason("why") forbid(principal, action, resource) when {{ {condition} }};'


@pytest.mark.claim("P-POLICY-01")
def test_no_rules_allow_nothing() -> None:
    """An empty policy denies."""
    decision = decide("// nothing\n")

    assert (decision.effect, decision.basis, decision.rules) == ("deny", "none", ())


def test_a_permit_allows_and_is_named() -> None:
    """An allowed call names the rule, its reason and its place."""
    decision = decide("\n\n" + PERMIT)

    assert (
        decision.effect,
        decision.grounds[0].id,
        decision.grounds[0].reason,
        decision.grounds[0].place,
    ) == ("allow", "any", "all may", "rules.cedar:3")


def test_forbid_wins_over_permit() -> None:
    """A forbid that holds denies, whatever permits."""
    decision = decide(forbid('context.arguments.path like "/etc/*"'), {"path": "/etc/passwd"})

    assert (decision.effect, decision.basis, decision.rules) == ("deny", "forbid", ("no",))


@pytest.mark.claim("P-POLICY-02")
@pytest.mark.parametrize(
    ("condition", "arguments", "kind"),
    [
        ('context.arguments.pth like "/etc/*"', {"path": "/etc/passwd"}, "missing attribute"),
        ("context.arguments.path > 3", {"path": "/etc/passwd"}, "wrong type"),
        ("context.arguments.count + 9223372036854775807 > 1", {"path": "x", "count": 5}, "overflow"),
        ("ip(context.arguments.path).isLoopback()", {"path": "no address"}, "malformed value"),
        ('context.arguments.note like "x*"', {"path": "x", "note": None}, "wrong type"),
        ('Tool::"files/other".risk > 1', {"path": "x"}, "missing entity"),
    ],
)
def test_a_forbid_that_errors_denies(condition: str, arguments: dict[str, Any], kind: str) -> None:
    """A rule that cannot be evaluated denies, where Cedar alone skips it and allows."""
    decision = decide(forbid(condition), arguments)

    assert ("deny", "error", [("no", kind)]) == (
        decision.effect,
        decision.basis,
        [(fault.rule, fault.kind) for fault in decision.errors],
    )


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.00001, 1e300, {"__entity": {"type": "User", "id": "root"}}])
def test_a_value_without_a_cedar_form_denies_where_a_rule_looks_at_it(value: Any) -> None:
    """What cannot be said exactly is neither rounded nor dropped."""
    decision = decide(forbid("context.arguments has odd && context.arguments.odd == 1"), {"path": "x", "odd": value})

    assert (decision.effect, decision.basis) == ("deny", "error")


@pytest.mark.parametrize("value", [2**63, 1.00001, None, {"__extn": {"fn": "ip", "arg": "::1"}}, "x" * 300_000])
def test_a_value_that_no_rule_looks_at_does_not_matter(value: Any) -> None:
    """The same values elsewhere do not keep a call from being decided."""
    assert decide(forbid('context.arguments.path == "y"'), {"path": "x", "odd": value}).allowed


@pytest.mark.claim("P-POLICY-03")
@pytest.mark.parametrize(
    "value", [{"__entity": {"type": "User", "id": "acme/root"}}, {"__extn": {"fn": "ip", "arg": "::1"}}]
)
def test_an_argument_cannot_claim_to_be_an_entity(value: Any) -> None:
    """Members named like Cedar's escapes deny instead of becoming entities or addresses."""
    rules = PERMIT.replace("resource);", 'resource) when { context.arguments.who == User::"acme/root" };')

    assert (decide(rules, {"who": value}).effect, decide(rules, {"who": value}).basis) == ("deny", "error")


@pytest.mark.parametrize("written", [100, 100.0])
def test_an_integer_is_the_same_however_it_is_written(written: float) -> None:
    """A rule about 100 is not passed by writing 100.0."""
    assert not decide(
        forbid("context.arguments has count && context.arguments.count == 100"), {"path": "x", "count": written}
    ).allowed


@pytest.mark.parametrize(
    ("written", "allowed"), [(9.99, True), (10, False), (10.0, False), (10.5, False), (-0.5, True)]
)
def test_a_number_of_the_contract_is_a_decimal(written: float, allowed: bool) -> None:
    """Arguments of type `number` compare as decimals, integral or not."""
    rules = forbid('context.arguments has amount && context.arguments.amount.greaterThanOrEqual(decimal("10.0"))')

    assert allowed == decide(rules, {"path": "x", "amount": written}).allowed


def test_null_is_equal_to_nothing_that_a_rule_can_write() -> None:
    """A null is present, and no string."""
    rules = forbid('context.arguments has note && context.arguments.note == ""')

    assert decide(rules, {"path": "x", "note": None}).allowed


def test_facts_of_the_caller_are_attributes_and_tags() -> None:
    """Tenant, group and claims are what rules can name."""
    rules = (
        '@id("r") @reason("r") permit(principal in Group::"acme/staff", action, resource in Driver::"files")'
        ' when { principal in Tenant::"acme" && principal.hasTag("department")'
        ' && principal.getTag("department") == "sales"'
        ' && resource.region.contains("eu") && resource.tags.contains("files") && resource.risk < 2'
        " && resource.read_only };"
    )

    assert decide(rules).allowed
    assert not decide(rules, principal=Principal("evil", "alice", groups=("staff",), claims=ALICE.claims)).allowed


def test_ids_of_two_tenants_never_meet() -> None:
    """A slash in a tenant's name does not make another tenant's user."""
    assert Principal("a/b", "c").uid != Principal("a", "b/c").uid
    assert Principal("a%2Fb", "c").uid != Principal("a/b", "c").uid


def test_time_is_passed_in() -> None:
    """Rules see the time of the request, in UTC."""
    rules = forbid('context.hour < 8 || context.weekday > 5 || context.now > datetime("2028-01-01")')

    assert decide(rules, now=1_800_014_400.0).allowed
    assert not decide(rules, now=1_800_014_400.0 + 86_400).allowed


def test_a_fact_that_was_not_supplied_denies() -> None:
    """A forgotten fact is an error, not an absent attribute that `has` passes over."""
    policy = PolicySet.load([("r", forbid('context has hosts && context.hosts.contains("evil")'))])
    facts = {name: value for name, value in FACTS.items() if name != "hosts"}

    assert policy.decide(Request(ALICE, CALL, TOOL, {**facts, "arguments": {}})).basis == "error"


def test_facts_beyond_the_bound_deny() -> None:
    """A rule about a huge value denies; one byte below the bound it is decided."""
    rules = forbid('context.arguments.path == "x"')
    overhead = len('{"arguments":{"path":""}}')

    assert decide(rules, {"path": "y" * (MAX_CONTEXT_BYTES - overhead)}).allowed
    assert decide(rules, {"path": "y" * (MAX_CONTEXT_BYTES - overhead + 1)}).basis == "error"


def test_a_lone_surrogate_denies() -> None:
    """A string that is no text has no Cedar form."""
    assert decide(forbid('context.arguments.path == "x"'), {"path": "\ud800"}).basis == "error"


@pytest.mark.claim("P-POLICY-04")
def test_the_client_is_told_what_and_not_which_rule() -> None:
    """All refusals read alike; the record names the rule and no value."""
    secret = "s3cret-value"
    denied = decide(forbid('context.arguments.path like "s3*"'), {"path": secret})
    undecided = decide(forbid(f'ip(context.arguments.path).isLoopback() || "{secret}" == ""'), {"path": secret})
    shown = {str(each.refusal("`fs.read`")) for each in (denied, undecided, decide(""))}

    assert len(shown) == 1
    assert not any(word in next(iter(shown)) for word in ("`no`", "forbid", secret))
    assert denied.record() == {"decision": "deny", "basis": "forbid", "rules": ["no"]}
    assert secret not in str(undecided.record())
    assert secret in undecided.errors[0].text


def test_the_starter_allows_what_a_driver_binds_and_nothing_else() -> None:
    """Bound tools, declared prompts and resources pass; sampling does not."""
    policy = PolicySet.load([("starter.cedar", shipped("policies", "starter.cedar").read_text())])
    caller = Principal.of(TenantContext(TenantId("acme"), "alice", {"groups": "a b", "scope": "x"}))
    uri = {"text": "demo://x", "scheme": "demo", "host": "x", "path": ""}
    asked = {
        "call": Request(caller, CALL, TOOL, {**FACTS, "arguments": {}}),
        "prompt": Request(caller, "prompts/get", PromptFacts(DRIVER, "p"), FACTS),
        "read": Request(caller, READ, ResourceFacts(DRIVER, "demo://x"), {**FACTS, "uri": uri}),
        "launch": Request(caller, LAUNCH, DRIVER, FACTS),
        "sample": Request(caller, SAMPLE, DRIVER, {**FACTS, "max_tokens": 1}),
        "call of a driver": Request(caller, CALL, DRIVER, {**FACTS, "arguments": {}}),
    }

    assert [name for name, request in asked.items() if policy.decide(request).allowed] == [
        "call",
        "prompt",
        "read",
        "launch",
    ]


def test_changed_inputs_are_another_tool() -> None:
    """Types of arguments follow the contract that is loaded, not one that was."""
    policy = PolicySet.load([("r", forbid("context.arguments has amount && context.arguments.amount == 10"))])
    other = ToolFacts(
        DRIVER,
        "fs.read",
        tags=("files",),
        risk=1,
        inputs={"properties": {"amount": {"type": "integer"}}, "type": "object"},
    )
    facts = {**FACTS, "arguments": {"amount": 10}}

    assert [policy.decide(Request(ALICE, CALL, tool, facts)).allowed for tool in (TOOL, other)] == [True, False]
