"""Abuses of calls, through the whole pipeline: what is refused never reaches the server, and the trail says so.

The server is simulated: it answers whatever a test wants and remembers everything that reached it.
"""

from __future__ import annotations

import asyncio
import base64
import random
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
from sandbox.serve.redact import Redactor
from sandbox.serve.results import ResultCleaner
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules
from sandbox.spec.model import Binding, DriverSpec, NpmServer, Origin, ToolContract
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantContext, TenantId
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet.bind import bind
from sandbox.vet.model import ServerSurface

pytestmark = pytest.mark.anyio
SECRET = "tok-9f8e7d6c5b4a"
RULES = UriRules(Roots(["/workspace"]), "/workspace", (Template("demo://{x}"),))
OPEN = '@id("all") @reason("r") permit(principal, action, resource);'
INPUTS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "x-mcp-sandbox": "path"},
        "uri": {"type": "string", "format": "uri"},
        "note": {"type": "string"},
    },
    "additionalProperties": False,
}


class Server:
    """Remembers what it was sent and answers with ``answer``."""

    def __init__(self, answer: Mapping[str, Any] | None = None) -> None:
        self.received: list[dict[str, Any]] = []
        self.answer = answer or {"content": [{"type": "text", "text": "done"}]}

    async def forward(self, name: str, sent: dict[str, Any]) -> Mapping[str, Any]:
        """Take one call."""
        assert name == "srv_tool"
        self.received.append(sent)
        return self.answer


def pipeline(rules: str = OPEN, rate: Rate | None = None, *, bare: bool = False) -> tuple[Pipeline, MemoryRecorder]:
    """Return a pipeline with every step in place, or without steps 6, 7, 9 and cleaning, and its trail."""
    origin = Origin(file="TOOL.md")
    contract = ToolContract(
        id="tool", name="Tool", description="d", version="1.0.0", inputs=INPUTS, outputs={"type": "string"},
        origin=origin, digest="sha256:0",
    )  # fmt: skip
    binding = Binding(
        contract=contract, version_range="^1", tool_name="srv_tool", origin=origin,
        context={"tenant_id": "tenant.id", "user": "user.sub"},
    )  # fmt: skip
    spec = DriverSpec(
        folder="/d", file="DRIVER.md", digest="sha256:0", id="drv", name="D", description="d", version="1.0.0",
        server=NpmServer(kind="npm", package="x"), transport="stdio", bindings=(binding,),
    )  # fmt: skip
    surface = ServerSurface(
        "handshake", "2025-11-25", {}, {}, tools={"srv_tool": {"name": "srv_tool", "inputSchema": {}}}
    )
    exposure = bind(spec, surface)
    limiter = RateLimiter(Buckets(rate or Rate(1e6, 10**6)), Gate(total=50, of_tenant=10, waiting=1000), lambda: 0.0)
    decider = CedarDecider(PolicySet.load([("rules.cedar", rules)]), spec, exposure)
    if bare:
        return Pipeline(exposure, Collaborators(decider)), MemoryRecorder()
    collaborators = Collaborators(
        decider,
        limiter,
        ResultCleaner(RULES, Redactor({"token": SECRET})),
    )

    def equip(bound: BoundTool) -> BoundTool:
        bound.guard = ToolGuard(bound.tool.binding, RULES)
        bound.injector = ContextInjector(bound.tool.binding)
        return bound

    return Pipeline(exposure, collaborators, equip), MemoryRecorder()


def caller(tenant: str = "acme", user: str = "alice") -> Caller:
    """Return a verified caller."""
    return Caller(TenantContext(TenantId(tenant), user))


async def call(server: Server, arguments: dict[str, Any], rules: str = OPEN) -> tuple[dict[str, Any], MemoryRecorder]:
    """Make one call as alice of acme."""
    made, recorder = pipeline(rules)
    scope = Scope(recorder, Trace.new(), tenant="acme")
    return await made.call("tool", arguments, caller(), scope, server.forward), recorder


def shown(result: Mapping[str, Any]) -> str:
    """Return the text that a model reads."""
    return "".join(block.get("text", "") for block in result["content"])


async def test_control_a_plain_call_passes() -> None:
    """The control: the same pipeline carries a harmless call, with the context of its caller."""
    server = Server()
    result, recorder = await call(server, {"path": "a.txt", "note": "hello"})

    assert not result["isError"]
    assert server.received == [{"path": "/workspace/a.txt", "note": "hello", "tenant_id": "acme", "user": "alice"}]
    assert [fact.phase for fact in recorder.facts if fact.name == "call.forward"] == ["intent", "outcome"]


@pytest.mark.claim("P-TENANT-01")
@pytest.mark.parametrize(
    "name", ["tenant_id", "tenantId", "TENANT-ID", "user", "User", "ctx.tenant_id", "tеnant_id", "__proto__"]
)
async def test_t01_a_client_that_names_a_tenant_is_refused(name: str) -> None:
    """T01: nothing reaches the server, the refusal names the argument, the trail has a denial and no value."""
    server = Server()
    result, recorder = await call(server, {"note": "x", name: "victim"})

    assert result["isError"]
    assert server.received == []
    assert [fact.attrs["reason"] for fact in recorder.facts] == ["CALL-010"]
    assert "victim" not in str(recorder.facts)


@pytest.mark.claim("P-TENANT-01")
async def test_t02_a_thousand_interleaved_calls_carry_their_own_context() -> None:
    """T02: twenty tenants, answers delayed and shuffled; every reply and every context is its caller's."""
    made, recorder = pipeline()
    order = random.Random(7)

    async def forward(_: str, sent: dict[str, Any]) -> Mapping[str, Any]:
        for _ in range(order.randrange(20)):
            await asyncio.sleep(0)
        return {"content": [{"type": "text", "text": f"{sent['tenant_id']}/{sent['user']}/{sent['note']}"}]}

    async def one(index: int) -> tuple[str, str]:
        who = caller(f"t{index % 20}", f"u{index}")
        scope = Scope(recorder, Trace.new(), tenant=f"t{index % 20}")
        return f"t{index % 20}/u{index}/{index}", shown(
            await made.call("tool", {"note": str(index)}, who, scope, forward)
        )

    pairs = await asyncio.gather(*(one(index) for index in range(1000)))

    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.claim("P-URI-05")
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "/etc/passwd"},
        {"path": "../../etc/passwd"},
        {"path": "/workspace/..%2f..%2fetc/passwd"},
        {"path": "/workspace_evil/canary"},
        {"uri": "file:///etc/passwd"},
        {"uri": "FILE:///workspace/x"},
        {"uri": "file:////etc/passwd"},
        {"uri": "jar:file:///workspace/x!/y"},
        {"uri": "http://169.254.169.254/latest/meta-data"},
        {"uri": "data:text/plain,x"},
    ],
)
async def test_j17_a_path_or_uri_that_leads_out_is_refused(arguments: dict[str, Any]) -> None:
    """J17: the server is not asked, and the trail has a denial."""
    server = Server()
    result, recorder = await call(server, arguments)

    assert result["isError"]
    assert server.received == []
    assert [fact.attrs["decision"] for fact in recorder.facts] == ["deny"]


@pytest.mark.claim("P-RESULT-03")
async def test_j17_a_result_that_points_outside_is_not_passed_on() -> None:
    """J17: a link to a file outside the roots is a fault of the server; nothing of its answer is shown."""
    link = {"type": "resource_link", "uri": "file:///etc/shadow", "name": "canary-name"}
    result, recorder = await call(Server({"content": [{"type": "text", "text": "canary-text"}, link]}), {"note": "x"})

    assert result["isError"]
    assert "canary" not in str(result)
    assert recorder.facts[-1].attrs["error"] == "CALL-061"


@pytest.mark.claim("P-RESULT-01")
async def test_j13_j21_terminal_sequences_do_not_reach_the_client() -> None:
    """J13 and J21: escape sequences, NUL and direction overrides are gone from what a model and a terminal get."""
    hostile = '\x1b]8;;http://evil/\x07click\x1b]8;;\x07\n{"level":"info"}\x1b[2J\u202e\0'
    result, recorder = await call(Server({"content": [{"type": "text", "text": hostile}]}), {"note": "x"})

    assert shown(result) == 'click\n{"level":"info"}'
    assert "\x1b" not in str(recorder.facts)


@pytest.mark.claim("P-RESULT-02")
@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize(
    "form",
    [SECRET, SECRET[::-1], SECRET.encode().hex(), base64.b64encode(b"user:" + SECRET.encode() + b"@host").decode()],
)
async def test_j22_a_secret_is_not_echoed(form: str, is_error: bool) -> None:
    """J22: a token in a result or an error, in any common encoding, is neither shown nor recorded."""
    answer = {"content": [{"type": "text", "text": f"failed with {form}"}], "isError": is_error}
    result, recorder = await call(Server(answer), {"note": "x"})

    assert "[redacted:token]" in shown(result)
    assert form not in str(result)
    assert form not in str(recorder.facts)


@pytest.mark.claim("P-RESULT-04")
async def test_j18_a_server_cannot_speak_for_a_trace_or_a_tenant() -> None:
    """J18: trace context, baggage and tenants in the answer's `_meta` do not reach the client."""
    meta = {"traceparent": "00-evil", "baggage": "x", "tenant": "victim"}
    block = {"type": "text", "text": "x", "_meta": meta}
    result, _ = await call(Server({"content": [block], "_meta": meta}), {"note": "x"})

    assert not any(word in str(result) for word in ("evil", "victim", "baggage"))


@pytest.mark.claim("P-POLICY-04")
async def test_a_denial_names_the_rule_in_the_trail_only() -> None:
    """The client reads what was refused; rule and basis are in the trail; the server is not asked."""
    rules = (
        OPEN + '@id("no-drafts") @reason("internal reason") forbid(principal, action == Action::"tools/call", resource)'
    )
    server = Server()
    result, recorder = await call(server, {"note": "draft"}, rules + ' when { context.arguments.note like "draft*" };')

    assert server.received == []
    assert "POL-020" in shown(result)
    assert not any(word in shown(result) for word in ("no-drafts", "internal reason", "forbid"))
    assert recorder.facts[0].attrs["rules"] == ["no-drafts"]


@pytest.mark.claim("P-POLICY-02")
async def test_a_rule_that_errors_denies_the_call() -> None:
    """A forbid with a misspelt attribute stops calls instead of forbidding nothing."""
    server = Server()
    rules = (
        OPEN + '@id("typo") @reason("r") forbid(principal, action, resource) when { context.arguments.nota == "x" };'
    )
    result, recorder = await call(server, {"note": "x"}, rules)

    assert result["isError"]
    assert server.received == []
    assert recorder.facts[0].attrs["basis"] == "error"


async def test_r10_calls_beyond_the_rate_are_refused() -> None:
    """The bound passes, one more is refused and does not reach the server; another tenant is not affected."""
    made, recorder = pipeline(rate=Rate(1.0, 3))
    server = Server()
    scope = Scope(recorder, Trace.new())
    results = [await made.call("tool", {"note": "x"}, caller(), scope, server.forward) for _ in range(4)]
    other = await made.call("tool", {"note": "x"}, caller("other"), scope, server.forward)

    assert [result["isError"] for result in (*results, other)] == [False, False, False, True, False]
    assert len(server.received) == 4
    assert "CALL-050" in shown(results[3])
