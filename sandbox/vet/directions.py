"""Whether a server's tool keeps its contract, decided before the first call (S0-69), in both directions.

1. *Inputs.* Every arguments object that callers may send — the contract's ``inputs`` less what the driver drops or
   injects, keys renamed by ``argument_mapping``, injected facts added — is valid under the tool's ``inputSchema``.
2. *Outputs.* In every result that is valid under the tool's ``outputSchema``, ``result_extract`` leads to a value
   that is valid under the contract's ``outputs``.
3. A tool without ``outputSchema`` promises nothing; its results are validated when they arrive, and the verdict says
   so.

Undecided is refused unless the operator says otherwise (``unsafe_accept_undecided``). ``format`` is decided as if
validators may or may not assert it: a server that asks for a format which the contract does not promise does not fit.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.policy.hiding import hide
from sandbox.spec.extract import segments
from sandbox.spec.model import Binding, Origin
from sandbox.vet.bind import exposed_inputs
from sandbox.vet.containment import Answer, No, Options, Unknown, Yes, contained, inhabited, shown
from sandbox.vet.findings import Finding, Severity
from sandbox.vet.paths import MAX_SHOWN_PATHS, closest, demanded, existing
from sandbox.vet.translate import NotSayableError, sent_schema

Side = Literal["inputs", "outputs"]
Status = Literal["proved", "refuted", "undecided", "at call time"]

DEFAULT: Options = Options()


@dataclass(frozen=True, slots=True)
class Fit:
    """How one side of a contract relates to what the server offers.

    Attributes:
        status: ``proved``, ``refuted`` (with a counterexample), ``undecided``, or ``at call time``: nothing was
            promised, so that every result is validated when it arrives.
        witness: the counterexample in the caller's (inputs) or the server's (outputs) own terms.
        findings: what to tell people; empty when the side is proved.
    """

    tool: str
    side: Side
    status: Status
    findings: tuple[Finding, ...] = ()
    witness: Any = None


def fits(
    binding: Binding,
    offered: Mapping[str, Any],
    *,
    options: Options = DEFAULT,
    unsafe_accept_undecided: bool = False,
) -> tuple[Fit, Fit]:
    """Return how a tool of the server fits its binding: inputs, then outputs.

    Args:
        binding: the driver's entry with its contract.
        offered: the tool's definition in the server's ``tools/list``.
        options: bounds of the decisions; give a clock to bound their time.
        unsafe_accept_undecided: what cannot be decided informs instead of blocking.
    """
    undecided: Severity = "inform" if unsafe_accept_undecided else "block"
    return (
        check_inputs(binding, offered, options=options, undecided=undecided),
        check_outputs(binding, offered, options=options, undecided=undecided),
    )


# --- inputs -----------------------------------------------------------------------------------------------------------
def check_inputs(
    binding: Binding, offered: Mapping[str, Any], *, options: Options = DEFAULT, undecided: Severity = "block"
) -> Fit:
    """Return whether everything that callers may send is valid for the server's tool (direction 1)."""
    report = _Report(binding, "inputs", undecided)
    exposed = exposed_inputs(binding)
    clash = _clash(binding, exposed, options)
    if clash:
        return report.blocked("VET-104", *clash)
    try:
        sent = sent_schema(exposed, binding.argument_mapping, tuple(binding.context))
    except NotSayableError as error:
        reason = (
            f"`{error.keyword}` in the contract's inputs cannot be followed through `argument_mapping` or `context`"
        )
        return report.open(reason)
    if isinstance(inhabited(sent, options=options), No):
        return report.blocked(
            "VET-105",
            f"the inputs of `{binding.contract.id}` accept nothing at all",
            "correct the contract's `inputs`: two of its demands contradict each other",
        )
    answer = contained(sent, offered.get("inputSchema", {}), options=options)
    if not isinstance(answer, No):
        return report.answered(answer)
    witness = _as_called(answer.witness, binding)
    message = (
        f"`{binding.contract.id}` accepts `{shown(witness)}`; `{binding.tool_name}` refuses it: "
        f"{_in_callers_words(answer, binding)}"
    )
    refused = _refused_member(answer, offered)
    place = binding.contract.where(_field(binding, refused))
    return report.refuted("VET-101", message, _mend_inputs(answer, binding, offered), witness, place)


def _clash(binding: Binding, exposed: Mapping[str, Any], options: Options) -> tuple[str, str] | None:
    """Return why a renamed key could meet another key of the same name, if it could."""
    for key, argument in binding.argument_mapping.items():
        if argument in binding.argument_mapping or argument in binding.context:
            continue
        if not isinstance(contained(exposed, {"not": {"required": [argument]}}, options=options), Yes):
            return (
                f"callers of `{binding.contract.id}` may send `{argument}` as well as `{key}`, which is renamed to it",
                f"add `additionalProperties: false` to the contract's `inputs`, or drop `{argument}`",
            )
    targets = list(binding.argument_mapping.values())
    doubled = [name for name in targets if targets.count(name) > 1 or name in binding.context]
    if doubled:
        return (
            f"two values of `{binding.contract.id}` are sent as `{doubled[0]}`",
            "rename to different arguments in `argument_mapping`, and inject none of them",
        )
    return None


def _as_called(sent: Any, binding: Binding) -> Any:
    """Return arguments as a caller would write them: injected facts left out, names of the contract."""
    if not isinstance(sent, dict):
        return sent
    back = {argument: key for key, argument in binding.argument_mapping.items()}
    return {back.get(name, name): value for name, value in sent.items() if name not in binding.context}


def _in_callers_words(answer: No, binding: Binding) -> str:
    """Return why, with the contract's name beside the server's where they differ."""
    if not answer.path or not isinstance(answer.path[0], str):
        return answer.message
    argument = answer.path[0]
    key = next((key for key, name in binding.argument_mapping.items() if name == argument), argument)
    return answer.message if key == argument else f"{answer.message} (`{key}` of the contract)"


def _mend_inputs(answer: No, binding: Binding, offered: Mapping[str, Any]) -> str:
    """Return the ways to mend a refuted input: map, drop, require, close or narrow."""
    refused = _refused_member(answer, offered)
    if refused is None:
        return _mend_missing(answer)
    back = {argument: key for key, argument in binding.argument_mapping.items()}
    key = back.get(refused, refused)
    if refused in binding.context:
        return f"inject something that the server accepts as `{refused}`, or nothing"
    if key not in binding.contract.inputs.get("properties", {}):
        return "add `additionalProperties: false` to the contract's `inputs`: it accepts members that it does not name"
    drop = f"drop it with `schema_narrowing.drop_inputs: [{key}]`"
    known = offered.get("inputSchema", {}).get("properties", {})
    if refused in known:
        rename = f"send it as another argument with `argument_mapping: {{{key}: …}}`"
        return f"narrow `{key}` in the contract's `inputs`, {drop}, or {rename}"
    near = difflib.get_close_matches(refused, known, n=1, cutoff=0.3)
    return f"rename it with `argument_mapping: {{{key}: {near[0] if near else '…'}}}`, or {drop}"


def _field(binding: Binding, argument: str | None) -> str:
    """Return the contract's field that an argument comes from, as a dotted path."""
    back = {name: key for key, name in binding.argument_mapping.items()}
    return f"inputs.properties.{back.get(argument, argument)}" if argument else "inputs"


def _refused_member(answer: No, offered: Mapping[str, Any]) -> str | None:
    """Return the top-level argument that the server refuses, ``None`` when it misses one."""
    if answer.path and isinstance(answer.path[0], str):
        return answer.path[0]
    if answer.keyword in {"additionalProperties", "unevaluatedProperties"} and isinstance(answer.witness, dict):
        known = offered.get("inputSchema", {}).get("properties", {})
        return next((name for name in answer.witness if name not in known), None)
    return None


def _mend_missing(answer: No) -> str:
    if answer.keyword in {"required", "dependentRequired"}:
        return (
            "make it required in the contract's `inputs`, rename what stands for it with `argument_mapping`, "
            "or inject it with `context`"
        )
    return "narrow the contract's `inputs`, or drop what the server does not take with `schema_narrowing.drop_inputs`"


# --- outputs ----------------------------------------------------------------------------------------------------------
def check_outputs(
    binding: Binding, offered: Mapping[str, Any], *, options: Options = DEFAULT, undecided: Severity = "block"
) -> Fit:
    """Return whether every result that the server promises fits the contract after extraction (2 and 3)."""
    report = _Report(binding, "outputs", undecided)
    promised = offered.get("outputSchema")
    if promised is None:
        return report.at_call_time()
    path = segments(binding.result_extract)
    absent = _absent(binding, promised, path, options)
    if absent:
        return report.blocked("VET-103", *absent)
    answer = contained(promised, demanded(path, narrowed_outputs(binding)), options=options)
    if not isinstance(answer, No):
        return report.answered(answer)
    paths = existing(promised)
    if path and paths and binding.result_extract not in paths:
        message = f"`{binding.tool_name}` need not answer with `{binding.result_extract}`: {_shown_paths(paths)}"
        return report.refuted("VET-103", message, _mend_extract(binding, paths), answer.witness)
    return report.refuted(
        "VET-102",
        f"`{binding.tool_name}` may answer `{shown(answer.witness)}`; `{binding.contract.id}` promises otherwise: "
        f"{answer.message}",
        _mend_outputs(path, promised),
        answer.witness,
    )


def _mend_outputs(path: tuple[str | int, ...], promised: Any) -> str:
    if path:
        return "widen the contract's `outputs`, correct `result_extract`, or drop members with `drop_outputs`"
    paths = ", ".join(f"`{one}`" for one in existing(promised)[:MAX_SHOWN_PATHS])
    return f"widen the contract's `outputs`, or set `result_extract` to one of {paths}" if paths else "widen `outputs`"


def narrowed_outputs(binding: Binding) -> dict[str, Any]:
    """Return the contract's ``outputs`` without the members that the driver says it does not deliver."""
    return hide(binding.contract.outputs, set(binding.drop_outputs))


def _absent(binding: Binding, promised: Any, path: tuple[str | int, ...], options: Options) -> tuple[str, str] | None:
    """Return that no promised result has the path, with the paths that exist."""
    if not path or not isinstance(contained(promised, {"not": demanded(path, True)}, options=options), Yes):
        return None
    paths = existing(promised)
    message = f"`{binding.tool_name}` never answers with `{binding.result_extract}`: {_shown_paths(paths)}"
    return message, _mend_extract(binding, paths)


def _shown_paths(paths: list[str]) -> str:
    listed = ", ".join(f"`{one}`" for one in paths[:MAX_SHOWN_PATHS]) or "nothing below `$`"
    return f"its outputSchema has {listed}"


def _mend_extract(binding: Binding, paths: list[str]) -> str:
    near = closest(binding.result_extract, paths)
    return f"set `result_extract` to {f'`{near}`' if near else 'one of these'} in DRIVER.md"


@dataclass(frozen=True, slots=True)
class _Report:
    """Makes the fits of one side of one binding."""

    binding: Binding
    side: Side
    undecided: Severity

    def _fit(
        self,
        status: Status,
        severity: Severity,
        id_: str,
        message: str,
        mend: str,
        witness: Any = None,
        place: Origin | None = None,
    ) -> Fit:
        if place is None:
            of_driver = id_ in {"VET-103", "VET-104"}
            place = self.binding.origin if of_driver else self.binding.contract.where(self.side)
        finding = Finding(id_, severity, self.binding.tool_name, str(place), message, mend)
        return Fit(self.binding.tool_name, self.side, status, (finding,), witness)

    def refuted(self, id_: str, message: str, mend: str, witness: Any, place: Origin | None = None) -> Fit:
        return self._fit("refuted", "block", id_, message, mend, witness, place)

    def blocked(self, id_: str, message: str, mend: str) -> Fit:
        return self._fit("refuted", "block", id_, message, mend)

    def open(self, reason: str) -> Fit:
        what = f"whether the {self.side} of `{self.binding.contract.id}` fit `{self.binding.tool_name}`"
        message = f"{what} is not decided: {reason}"
        mend = "say the contract in simpler keywords, or let the operator accept undecided contracts"
        return self._fit("undecided", self.undecided, "VET-106", message, mend)

    def answered(self, answer: Answer) -> Fit:
        if isinstance(answer, Unknown):
            return self.open(answer.reason)
        return Fit(self.binding.tool_name, self.side, "proved")

    def at_call_time(self) -> Fit:
        return self._fit(
            "at call time",
            "inform",
            "VET-107",
            f"`{self.binding.tool_name}` has no outputSchema: each result is held against `{self.binding.contract.id}`",
            "ask the server's author for an outputSchema",
        )


__all__ = ["Fit", "check_inputs", "check_outputs", "fits", "narrowed_outputs"]
