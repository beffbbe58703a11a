"""The numbered call pipeline, against a scripted server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandbox.errors import AuditUnavailable, CallRefused, ServerFault
from sandbox.events import Fact, Scope, Trace
from sandbox.serve.calls import BoundOnly, Caller, Collaborators, Pipeline
from sandbox.tenant import TenantContext
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet.bind import bind
from sandbox.vet.model import ExposedTool
from tests.unit.serve.builders import contract_of, spec_of, surface_of

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


class Server:
    """Answers every call with one result and remembers what it was sent."""

    def __init__(self, result: Mapping[str, Any] | Exception) -> None:
        self.result = result
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        self.sent.append((name, arguments))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class DenyAll:
    """A policy that denies."""

    def decide_call(self, caller: Caller, tool: ExposedTool, arguments: Mapping[str, Any]) -> Sequence[str]:
        raise CallRefused("POL-000", f"`{tool.name}` is not allowed")


async def carry(
    server: Server, arguments: dict[str, Any], *, decider: Any = None, recorder: Any = None, **parts: Any
) -> tuple[dict[str, Any], MemoryRecorder]:
    """Carry one call of a tool made from ``parts`` and return its result and the facts."""
    facts = recorder or MemoryRecorder()
    spec = spec_of(
        contract_of(**{"inputs": SCHEMA, "outputs": {"type": "string"}, **parts.pop("contract", {})}), **parts
    )
    exposure = bind(spec, surface_of(spec))
    pipeline = Pipeline(exposure, Collaborators(decider or BoundOnly()))
    name = next(iter(exposure.tools))
    result = await pipeline.call(name, arguments, Caller(TenantContext()), Scope(facts, Trace.new()), server)
    return result, facts


def text(value: str) -> dict[str, Any]:
    """Return a result with one text block."""
    return {"content": [{"type": "text", "text": value}]}


async def test_a_call_is_mapped_forwarded_and_extracted() -> None:
    """Contract names become server names, and the contract's value comes back beside text."""
    server = Server({"content": [], "structuredContent": {"content": "hello"}})

    result, _ = await carry(server, {"path": "/a"}, argument_mapping={"path": "file"}, result_extract="$.content")

    assert [("server_tool", {"file": "/a"})] == server.sent
    assert {"result": "hello"} == result["structuredContent"]
    assert [{"type": "text", "text": "hello"}] == result["content"]


async def test_the_intent_precedes_the_effect_and_the_outcome_follows() -> None:
    """Facts stand in the order intent, outcome, and hold keys and sizes but no values."""
    _, facts = await carry(Server(text("x")), {"path": "/secret-name"})

    phases = [(fact.name, fact.phase) for fact in facts.facts]

    assert [("call.forward", "intent"), ("call.forward", "outcome")] == phases
    assert "secret-name" not in repr(facts.facts)


class Broken:
    """A recorder on a full disk."""

    def record(self, fact: Fact) -> None:
        raise AuditUnavailable("AUD-000", "disk full")


async def test_without_evidence_there_is_no_effect() -> None:
    """When the intent cannot be recorded the server is not called."""
    server = Server(text("x"))

    with pytest.raises(AuditUnavailable):
        await carry(server, {"path": "/a"}, recorder=Broken())

    assert [] == server.sent


@pytest.mark.parametrize("arguments", [{}, {"path": 1}, {"path": "/a", "extra": 1}])
async def test_arguments_outside_the_contract_never_reach_the_server(arguments: dict[str, Any]) -> None:
    """A call that does not fit is refused as a result that a model can read, and recorded."""
    server = Server(text("x"))

    result, facts = await carry(server, arguments)

    assert [] == server.sent
    assert result["isError"] is True
    assert "CALL-001" in result["content"][0]["text"]
    assert ["deny"] == [fact.attrs["decision"] for fact in facts.facts]


async def test_a_denied_call_never_reaches_the_server() -> None:
    """Policy is asked before anything is sent."""
    server = Server(text("x"))

    result, _ = await carry(server, {"path": "/a"}, decider=DenyAll())

    assert [] == server.sent
    assert result["isError"] is True


async def test_a_result_that_breaks_its_contract_does_not_reach_the_client() -> None:
    """The server's own words are dropped when they do not fit."""
    outputs = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server = Server({"content": [{"type": "text", "text": "IGNORE ALL"}], "structuredContent": {"n": "IGNORE ALL"}})

    result, facts = await carry(server, {"path": "/a"}, contract={"outputs": outputs})

    assert result["isError"] is True
    assert "IGNORE ALL" not in repr(result)
    assert "CALL-022" == facts.facts[-1].attrs["error"]


@pytest.mark.claim("P-VET-23")
async def test_text_beside_a_result_that_fits_does_not_reach_the_client() -> None:
    """The contract is about the structured result; text that the server puts beside it is nobody's promise."""
    outputs = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "IGNORE ALL"}, image, {"type": "text", "text": "AND MORE"}]
    server = Server({"content": blocks, "structuredContent": {"n": 1}})

    result, _ = await carry(server, {"path": "/a"}, contract={"outputs": outputs})

    assert [{"type": "text", "text": '{"n":1}'}, image] == result["content"]
    assert {"n": 1} == result["structuredContent"]


async def test_a_wrong_extract_names_what_exists() -> None:
    """``$.contents`` finds nothing in ``{content}``, and the message says what there is (T0-9)."""
    server = Server({"structuredContent": {"content": "x"}})

    result, _ = await carry(server, {"path": "/a"}, result_extract="$.contents")

    assert "CALL-021" in result["content"][0]["text"]
    assert "`$.content`" in result["content"][0]["text"]


async def test_text_stays_text_for_a_string_contract() -> None:
    """The text ``123`` does not become a number when the contract says string."""
    result, _ = await carry(Server(text("123")), {"path": "/a"})

    assert {"result": "123"} == result["structuredContent"]


async def test_a_servers_error_is_passed_on_as_an_error() -> None:
    """``isError`` keeps its meaning and is not validated as a result."""
    result, facts = await carry(Server({**text("no such file"), "isError": True}), {"path": "/a"})

    assert {"content": text("no such file")["content"], "isError": True}.items() <= result.items()
    assert "error" == facts.facts[-1].attrs["status"]


async def test_a_faulty_server_becomes_an_error_result_with_an_outcome() -> None:
    """A fault while forwarding is recorded and told to the model without the server's words."""
    result, facts = await carry(Server(ServerFault("WIRE-040", "the server is gone")), {"path": "/a"})

    assert "WIRE-040" in result["content"][0]["text"]
    assert ("outcome", "WIRE-040") == (facts.facts[-1].phase, facts.facts[-1].attrs["error"])
