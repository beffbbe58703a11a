"""A tool is admitted only when it provably fits its contract, in both directions, at registration."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.errors import VetRefused
from sandbox.events import Scope, Trace
from sandbox.spec.load import load_driver
from sandbox.testing.memory import MemoryRecorder
from sandbox.vet.bind import bind
from sandbox.vet.contracts import fit
from sandbox.vet.model import Exposure, Fitting, ServerSurface
from tests.shared import ROOT, shared_data
from tests.unit.serve.builders import contract_of, spec_of, surface_of

INPUTS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def offered(inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a server's tool definition."""
    tool = {"name": "server_tool", "inputSchema": inputs}
    return {**tool, "outputSchema": outputs} if outputs is not None else tool


def admitted(
    tool: Mapping[str, Any], policy: Fitting | None = None, *, outputs: Any = None, **binding: Any
) -> tuple[Exposure, MemoryRecorder]:
    """Bind one tool and hold it against its contract."""
    facts = MemoryRecorder()
    spec = spec_of(contract_of(inputs=INPUTS, outputs=outputs or {"type": "object"}), **binding)
    exposure = bind(spec, surface_of(spec, server_tool=tool))
    return fit(exposure, Scope(facts, Trace.new()), policy or Fitting()), facts


def test_a_server_that_accepts_more_is_admitted() -> None:
    """Every valid call under the contract is valid for the server."""
    exposure, facts = admitted(offered({"type": "object", "properties": {"path": {"type": "string"}}}))

    assert ["tool"] == list(exposure.tools)
    assert ["vet.fit"] == [fact.name for fact in facts.facts]


def test_a_server_that_accepts_less_is_refused_with_a_call_that_shows_it() -> None:
    """The refusal has a counterexample, the contract's place and the ways to mend it."""
    server = offered({"type": "object", "properties": {"head": {"type": "string"}}})

    with pytest.raises(VetRefused) as caught:
        admitted(server)

    assert "VET-004" == caught.value.id
    assert "tools/tool/TOOL.md:1" in caught.value.message
    assert '"head"' in caught.value.message
    assert "VET-101" in caught.value.message


def test_renaming_is_taken_into_account() -> None:
    """A contract name that becomes another argument is judged under that name."""
    server = offered({"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})

    exposure, _ = admitted(server, argument_mapping={"path": "file"})

    assert ["tool"] == list(exposure.tools)


def test_injected_context_counts_as_sent() -> None:
    """A server that requires what we inject fits; one that wants it in another form does not."""
    wants = {"type": "object", "required": ["tenant"], "properties": {"tenant": {"type": "string"}}}

    admitted(offered(wants), context={"tenant": "tenant.id"})

    with pytest.raises(VetRefused, match="VET-004"):
        admitted(offered({**wants, "properties": {"tenant": {"type": "integer"}}}), context={"tenant": "tenant.id"})


def test_a_server_that_may_answer_more_is_refused() -> None:
    """Every result that the server announces must be one that the contract allows."""
    result = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    contract = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    with pytest.raises(VetRefused, match="VET-004"):
        admitted(offered({}, result), outputs=contract)


def test_a_wrong_extract_names_the_paths_that_exist() -> None:
    """``$.contents`` is refused at registration when the server announces ``content`` (T0-9)."""
    result = {
        "type": "object",
        "properties": {"content": {"type": "string"}},
        "required": ["content"],
        "additionalProperties": False,
    }

    with pytest.raises(VetRefused, match=r"\$\.content"):
        admitted(offered({}, result), outputs={"type": "string"}, result_extract="$.contents")


def test_what_cannot_be_decided_is_refused_unless_the_operator_says_otherwise() -> None:
    """An undecidable schema refuses by default; the weakening is named and recorded."""
    server = offered({"type": "object", "properties": {"path": {"type": "string", "pattern": "^(?<!x)a"}}})

    with pytest.raises(VetRefused, match="VET-004"):
        admitted(server)


@pytest.mark.data
@pytest.mark.parametrize(
    ("driver", "recorded"),
    [
        ("filesystem-mcp", "filesystem"),
        ("memory-mcp", "memory"),
        ("everything-mcp", "everything"),
        ("sequential-thinking-mcp", "sequential-thinking"),
        ("time-mcp", "time"),
        ("git-mcp", "git"),
    ],
)
def test_the_shipped_contracts_fit_the_real_servers(driver: str, recorded: str) -> None:
    """Each example's contracts are proved to fit what the published server offers."""
    dump = json.loads(shared_data("tools", f"{recorded}.json").read_text())
    tools = {tool["name"]: tool for tool in _tools(dump)}
    spec = load_driver(ROOT / "drivers" / driver)
    prompts = {prompt.name: {"name": prompt.name} for prompt in spec.prompts}
    surface = ServerSurface("handshake", "2025-11-25", {}, {"tools": {}}, tools=tools, prompts=prompts)
    facts = MemoryRecorder()

    fit(bind(spec, surface), Scope(facts, Trace.new()))

    assert ["vet.fit"] == [fact.name for fact in facts.facts]


def _tools(value: Any) -> list[dict[str, Any]]:
    """Return the first tool list in a recording."""
    if isinstance(value, dict):
        if isinstance(value.get("tools"), list):
            return list(value["tools"])
        for item in value.values():
            if found := _tools(item):
                return found
    return []


# --- earlier verdicts -------------------------------------------------------------------------------------------------
class Kept(dict[str, Mapping[str, Any]]):
    """Verdicts in memory."""

    def keep(self, key: str, recorded: Mapping[str, Any]) -> None:
        """Remember an admission."""
        self[key] = recorded


GOOD = {"type": "object", "properties": {"path": {"type": "string"}}}


def test_the_same_is_proved_once() -> None:
    """A second start of the same server under the same contract recalls the verdict, and says that it did."""
    kept = Kept()
    _, first = admitted(offered(GOOD), Fitting(verdicts=kept))
    exposure, second = admitted(offered(GOOD), Fitting(verdicts=kept))

    assert ["tool"] == list(exposure.tools)
    assert ["vet.fit"] == [fact.name for fact in first.facts]
    assert ["vet.recall", "vet.fit"] == [fact.name for fact in second.facts]
    assert first.facts[-1].attrs == second.facts[-1].attrs


def test_a_refusal_is_never_remembered() -> None:
    """What was refused is judged, and refused, again."""
    kept = Kept()
    server = offered({"type": "object", "properties": {"head": {"type": "string"}}})
    for _ in range(2):
        with pytest.raises(VetRefused):
            admitted(server, Fitting(verdicts=kept))

    assert {} == kept


@pytest.mark.parametrize(
    ("tool", "binding", "policy"),
    [
        (offered({**GOOD, "title": "other"}), {}, Fitting()),
        ({**offered(GOOD), "description": "other"}, {}, Fitting()),
        (offered(GOOD), {"argument_mapping": {"path": "p"}}, Fitting()),
        (offered(GOOD), {}, Fitting(unsafe_admit_undecided=True)),
        (offered(GOOD), {}, Fitting(neighbours={"other": ("tool_x",)})),
    ],
)
def test_anything_else_is_judged_anew(tool: Mapping[str, Any], binding: dict[str, Any], policy: Fitting) -> None:
    """Another definition, mapping, strictness or neighbour is another question."""
    kept = Kept()
    admitted(offered(GOOD), Fitting(verdicts=kept))
    _, facts = admitted(tool, dataclasses.replace(policy, verdicts=kept), **binding)

    assert "vet.recall" not in [fact.name for fact in facts.facts]
    assert 2 == len(kept)
