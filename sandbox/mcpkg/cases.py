"""Tests of a package: reading them, and holding a result against one (MCPKG §5).

``expected`` is held as a subset: every member of an object there must be in the result with a matching value, arrays
must have the same length, everything else is equal. ``equals: null`` is an assertion like any other (T3-2). A path that
finds nothing fails ``equals`` and satisfies ``notEquals`` and ``notExists``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox import jsontext
from sandbox.mcpkg.bounds import DEFAULT_TIMEOUT_MS, MAX_TESTS, MAX_TEXT_BYTES
from sandbox.mcpkg.contents import Contents
from sandbox.mcpkg.documents import Findings, check, parse
from sandbox.mcpkg.model import Assertion, Case, Manifest
from sandbox.spec.extract import segments
from sandbox.vet.validators import SchemaValidator

FOLDER: Final = "tests/"
SUFFIX: Final = ".test.json"
_KINDS: Final = ("equals", "notEquals", "exists", "notExists")
_NOTHING: Final = object()
_SHOWN: Final = 200


def read_cases(contents: Contents, manifest: Manifest, findings: Findings) -> tuple[Case, ...]:
    """Return the tests of a package: those that the manifest lists, else all in ``tests/``; problems are noted."""
    present = contents.names()
    names = manifest.tests or tuple(name for name in present if name.startswith(FOLDER) and name.endswith(SUFFIX))
    if len(names) > MAX_TESTS:
        findings.error("PKG-011", "manifest.json", "tests", f"there are more than {MAX_TESTS} tests", "keep the best")
        return ()
    if findings.errors:
        return ()
    validator = SchemaValidator(manifest.input_schema, "input_schema")
    cases = [_case(name, contents, validator, findings) for name in names if name in present]
    return tuple(case for case in cases if case is not None)


def _case(name: str, contents: Contents, validator: SchemaValidator, findings: Findings) -> Case | None:
    raw = parse(contents.read(name), name, MAX_TEXT_BYTES, findings)
    if raw is None or not check(raw, "test", name, findings):
        return None
    wrong = validator.mismatch(raw["input"])
    if wrong is not None:
        findings.error("PKG-017", name, "input", f"it does not fit input_schema: {wrong}", "correct test or schema")
    assertions = tuple(_assertion(entry, f"assertions[{i}]", name, findings) for i, entry in enumerate(_listed(raw)))
    return Case(
        file=name,
        name=raw["name"],
        input=raw["input"],
        description=raw.get("description", ""),
        has_expected="expected" in raw,
        expected=raw.get("expected"),
        assertions=assertions,
        timeout_ms=raw.get("timeoutMs", DEFAULT_TIMEOUT_MS),
    )


def _listed(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = raw.get("assertions", [])
    return found


def _assertion(entry: Mapping[str, Any], place: str, file: str, findings: Findings) -> Assertion:
    try:
        segments(entry["path"])
    except ValueError as error:
        findings.error("PKG-011", file, f"{place}.path", f"{entry['path']!r}: {error}", "write `$.name` or `$.list[0]`")
    kind = next(kind for kind in _KINDS if kind in entry)
    return Assertion(path=entry["path"], kind=kind, wanted=entry[kind])  # type: ignore[arg-type]


def judge(case: Case, result: Any) -> list[str]:
    """Return what is wrong with a result, one sentence each; empty when the test passes."""
    wrong = list(_differences(case.expected, result, "$")) if case.has_expected else []
    return wrong + [text for assertion in case.assertions if (text := _failed(assertion, result))]


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; ``true`` is not ``1``, and ``1.0`` is ``1``."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return (type(one) in {int, float} and type(other) in {int, float} and one == other) or (
        type(one) is type(other) and bool(one == other)
    )


def at(document: Any, path: str) -> Any:
    """Return what a JSONPath of the fragment names in a document.

    Raises:
        LookupError: it names nothing.
    """
    for step in segments(path):
        if isinstance(step, str) and isinstance(document, Mapping):
            document = document.get(step, _NOTHING)
        elif isinstance(step, int) and isinstance(document, list):
            document = document[step] if step < len(document) else _NOTHING
        else:
            document = _NOTHING
        if document is _NOTHING:
            raise LookupError(path)
    return document


def _failed(assertion: Assertion, result: Any) -> str:
    try:
        found = at(result, assertion.path)
    except LookupError:
        found = _NOTHING
    path, wanted = assertion.path, assertion.wanted
    match assertion.kind:
        case "equals":
            good = found is not _NOTHING and same(found, wanted)
        case "notEquals":
            good = found is _NOTHING or not same(found, wanted)
        case "exists":
            good = (found is not _NOTHING) is bool(wanted)
        case "notExists":
            good = (found is _NOTHING) is bool(wanted)
    return "" if good else f"{path}: {assertion.kind} {_text(wanted)} does not hold, found {_text(found)}"


def _differences(expected: Any, result: Any, path: str) -> list[str]:
    """Return where a result lacks what is expected."""
    if isinstance(expected, dict) and isinstance(result, dict):
        return [
            text
            for key, value in expected.items()
            for text in (
                _differences(value, result[key], f"{path}.{key}") if key in result else [f"{path}.{key}: is missing"]
            )
        ]
    if isinstance(expected, list) and isinstance(result, list):
        if len(expected) != len(result):
            return [f"{path}: expected {len(expected)} items, found {len(result)}"]
        pairs = enumerate(zip(expected, result, strict=True))
        return [text for index, (one, other) in pairs for text in _differences(one, other, f"{path}[{index}]")]
    if same(expected, result):
        return []
    return [f"{path}: expected {_text(expected)}, found {_text(result)}"]


def _text(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    return jsontext.dump(value).decode("utf-8", "replace")[:_SHOWN]
