"""Cost of the pure steps of one call, by step: context, paths and URIs, policy, rate, injection, cleaning.

Twenty rules, a tool with one path, one URI and a text; the decision with arguments that change each time (nothing
remembered) and with the same ones. Run: ``python benchmarks/policy.py [rounds]``. Prints microseconds, p50 and p99.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from sandbox.policy.cedar import PolicySet
from sandbox.policy.hosts import parse_rules
from sandbox.policy.request import CALL, DriverFacts, Principal, Request, ToolFacts
from sandbox.serve.calls import Caller
from sandbox.serve.context import inject
from sandbox.serve.guard import ToolGuard, facts_of
from sandbox.serve.paths import Roots, check_path
from sandbox.serve.ratelimit import Buckets, Rate
from sandbox.serve.redact import Redactor
from sandbox.serve.results import ResultCleaner
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules, check_uri, egress_of
from sandbox.spec.model import Binding, Origin, ToolContract
from sandbox.tenant import TenantContext, TenantId
from sandbox.vet.validators import SchemaValidator

GOAL_US = 250.0
INPUTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "x-mcp-sandbox": "path"},
        "source": {"type": "string", "format": "uri"},
        "text": {"type": "string"},
        "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def rules() -> str:
    """Return twenty rules of the usual kinds: by tenant, group, risk, path, host, hour."""
    when = [
        "resource.risk < 3",
        'context.arguments.path like "/workspace/*"',
        'context.hosts.isEmpty() || context.hosts.contains("api.example.com")',
        "context.calls.tenant < 1000000",
    ]
    permits = [
        f'@id("p{i}") @reason("r") permit(principal in Tenant::"t{i % 5}", action == Action::"tools/call",'
        f' resource in Driver::"files") when {{ {when[i % 4]} }};'
        for i in range(14)
    ]
    forbids = [
        f'@id("f{i}") @reason("r") forbid(principal, action == Action::"tools/call", resource)'
        f' when {{ context.arguments.path like "/workspace/secret{i}/*" }};'
        for i in range(6)
    ]
    return "\n".join(permits + forbids)


def measure(name: str, step: Callable[[int], object], rounds: int) -> float:
    """Print and return the median cost of a step in microseconds."""
    for index in range(200):
        step(-index - 1)
    costs = []
    for index in range(rounds):
        started = time.perf_counter_ns()
        step(index)
        costs.append(time.perf_counter_ns() - started)
    costs.sort()
    p50, p99 = costs[rounds // 2] / 1000, costs[int(rounds * 0.99)] / 1000
    print(f"{name:<44} {p50:9.1f} {p99:9.1f}")
    return p50


def main(rounds: int) -> None:
    contract = ToolContract(
        id="edit",
        name="Edit",
        description="d",
        version="1.0.0",
        inputs=INPUTS,
        outputs={},
        origin=Origin(file="f"),
        digest="sha256:0",
    )
    binding = Binding(
        contract=contract,
        version_range="^1",
        tool_name="edit",
        context={"tenant_id": "tenant.id", "user_id": "user.sub"},
        origin=Origin(file="f"),
    )
    egress = egress_of(parse_rules(["api.example.com"]))
    uri_rules = UriRules(Roots(["/workspace", "/tmp"]), "/workspace", (Template("demo://{x}"),), egress)
    guard = ToolGuard(binding, uri_rules)
    validator = SchemaValidator(INPUTS, "edit")
    policy = PolicySet.load([("rules.cedar", rules())])
    target = ToolFacts(DriverFacts("files"), "edit", risk=1, inputs=INPUTS)
    caller = Caller(TenantContext(TenantId("t3"), "alice"))
    buckets: Buckets[tuple[str, str]] = Buckets(Rate(1e9, 10**9))
    plain, redacting = (
        ResultCleaner(uri_rules),
        ResultCleaner(uri_rules, Redactor({f"k{i}": f"secret-{i:030}" for i in range(5)})),
    )
    result = {
        "content": [{"type": "text", "text": "line of text\n" * 80}],
        "structuredContent": {"ok": True, "items": [{"n": i} for i in range(10)]},
    }
    base = {"client": {}, "calls": {"target": 1, "tenant": 1}}

    def arguments(index: int) -> dict[str, Any]:
        edits = [{"old": "x" * 40} for _ in range(10)]
        path = f"/workspace/src/module_{index}.py"
        return {"path": path, "source": "https://api.example.com/v1/x?q=1", "text": "y" * 2000, "edits": edits}

    fixed = arguments(0)

    def decide(given: dict[str, Any], now: float = 1.8e9) -> None:
        facts = {**base, **facts_of(given), "arguments": given, "now": now}
        if not policy.decide(Request(Principal.of(caller.tenant), CALL, target, facts)).allowed:
            raise AssertionError("the benchmark's call is allowed")

    def whole(index: int) -> None:
        given = guard.check(arguments(index))
        if validator.mismatch(given) is not None:
            raise AssertionError("the benchmark's call fits")
        decide(given)
        buckets.take(("t3", "edit"), 0.0)
        inject(given, binding.context, caller.tenant)
        plain.clean(result)

    print(f"{'step':<44} {'p50 us':>9} {'p99 us':>9}")
    measure("6+7 context refused, path and URI checked", lambda _: guard.check(fixed), rounds)
    measure("  path alone", lambda _: check_path("/workspace/src/main.py", uri_rules.roots, "/workspace"), rounds)
    measure("  file URI alone", lambda _: check_uri("file:///workspace/src/main.py", uri_rules), rounds)
    measure("  path with percent and Unicode", lambda _: check_path("/workspace/100% é.txt", uri_rules.roots), rounds)
    measure("5   contract", lambda _: validator.mismatch(fixed), rounds)
    checked = guard.check(fixed)
    measure("8   policy, 20 rules, new question", lambda i: decide({**checked, "path": f"/workspace/{i}.py"}), rounds)
    measure("8   policy, 20 rules, known question", lambda _: decide(checked), rounds)
    measure("9   rate", lambda _: buckets.take(("t3", "edit"), 0.0), rounds)
    measure("11  injection", lambda _: inject(fixed, binding.context, caller.tenant), rounds)
    measure("13  cleaning, 1 KB of text", lambda _: plain.clean(result), rounds)
    measure("13  cleaning, 1 KB of text, 5 secrets", lambda _: redacting.clean(result), rounds)
    total = measure("all of it, new question, no secrets", whole, rounds)
    print(json.dumps({"p50_us": round(total, 1), "goal_us": GOAL_US, "met": total <= GOAL_US}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
