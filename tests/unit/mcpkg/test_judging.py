"""Holding results against tests, what runs measured, chains, exports, search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sandbox.errors import CallRefused, ServerFault
from sandbox.mcpkg import export, metrics
from sandbox.mcpkg.cases import judge
from sandbox.mcpkg.chain import run_chain
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.find import Query, matches, relevance
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Assertion, Case, Manifest, Step
from sandbox.mcpkg.schemas import with_defaults
from tests.mcpkg_kit import ECHO, echo_folder, folder
from tests.mcpkg_lab import PDF_FILES, PDF_TOOL


def wrong(result: Any, *, expected: Any = ..., **assertion: Any) -> list[str]:
    """Return what a test says of a result."""
    assertions = ()
    if assertion:
        (kind,) = (key for key in assertion if key != "path")
        assertions = (Assertion(path=assertion["path"], kind=kind, wanted=assertion[kind]),)  # type: ignore[arg-type]
    given = {} if expected is ... else {"has_expected": True, "expected": expected}
    return judge(Case(file="", name="", input={}, assertions=assertions, **given), result)


@pytest.mark.parametrize(
    ("result", "expected", "good"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, True),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": 1.0}, {"a": 1}, True),
        (None, None, True),
        ({}, {"a": None}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": 1}, [], False),
        ([], {}, False),
    ],
    ids=str,
)
def test_expected_is_a_subset(result: Any, expected: Any, good: bool) -> None:
    """Members of objects may be more, everything else is equal (T3-2)."""
    assert good is (wrong(result, expected=expected) == [])


@pytest.mark.parametrize(
    ("assertion", "good"),
    [
        ({"path": "$.n", "equals": None}, True),
        ({"path": "$.a", "equals": 1}, True),
        ({"path": "$.l[1]", "equals": "y"}, True),
        ({"path": "$.o", "equals": {"k": [1]}}, True),
        ({"path": "$", "notEquals": {}}, True),
        ({"path": "$.absent", "notEquals": 1}, True),
        ({"path": "$.n", "exists": True}, True),
        ({"path": "$.absent", "exists": False}, True),
        ({"path": "$.absent", "notExists": True}, True),
        ({"path": "$.a", "notExists": False}, True),
        ({"path": "$.absent", "equals": None}, False),
        ({"path": "$.a", "equals": None}, False),
        ({"path": "$.a", "equals": True}, False),
        ({"path": "$.a", "notEquals": 1}, False),
        ({"path": "$.n", "notEquals": None}, False),
        ({"path": "$.absent", "exists": True}, False),
        ({"path": "$.n", "notExists": True}, False),
        ({"path": "$.l[7]", "exists": True}, False),
        ({"path": "$.a.b.c", "exists": True}, False),
    ],
    ids=str,
)
def test_assertions_mean_what_they_say(assertion: dict[str, Any], good: bool) -> None:
    """Null is a value like any other; what is not there equals nothing (MCPKG §5)."""
    assert good is (wrong({"a": 1, "n": None, "l": ["x", "y"], "o": {"k": [1]}}, **assertion) == [])


def test_regressions_are_found_over_versions(tmp_path: Path) -> None:
    """A test that passed and fails, and calls that take much longer, are regressions; small changes are not."""
    place = tmp_path / "history" / "metadata.json"
    assert [] == metrics.add(place, "1.0.0", "x", [Outcome("a", (), 10), Outcome("b", (), 12)])
    assert [] == metrics.add(place, "1.0.1", "x", [Outcome("a", (), 25), Outcome("b", (), 25)])
    assert ["a passed with version 1.0.1 and fails with 1.1.0"] == metrics.add(
        place, "1.1.0", "x", [Outcome("a", ("no",), 10), Outcome("b", (), 10)]
    )
    assert [] == metrics.add(place, "1.1.0", "x", [Outcome("a", ("no",), 10)])
    assert ["calls take 500 ms, and took 11 ms"] == [
        text.replace("took 10 ms", "took 11 ms") for text in metrics.add(place, "1.1.0", "x", [Outcome("a", (), 500)])
    ]
    assert 5 == len(metrics.load(place))


def test_scores_prefer_what_passes_is_fast_and_steady() -> None:
    """Never tested is nothing; a failing, slow or wavering tool comes after a good one."""

    def run(passed: int, median: float) -> dict[str, Any]:
        return {"total": 4, "passed": passed, "median_ms": median}

    good = metrics.score([run(4, 100)] * 3)
    assert 0.0 == metrics.score([])
    assert good > metrics.score([run(4, 100), run(2, 100), run(4, 100)])
    assert good > metrics.score([run(4, 5000)] * 3)
    assert good > metrics.score([run(3, 100)] * 3)
    assert 0 <= metrics.score([run(0, 10**9)]) < good <= 1


def test_a_damaged_history_is_an_empty_one(tmp_path: Path) -> None:
    """Measurements are no evidence: what cannot be read does not stop a tool."""
    for text in ("", "x", "{}", '{"runs": 3}', '{"runs": [{}]}'):
        (tmp_path / "metadata.json").write_text(text)
        assert [] == metrics.load(tmp_path / "metadata.json")


def chain(**output: Any) -> Manifest:
    """Return a chain of two steps."""
    step = {"mapping": {"text": "$.input.text", "model": "$.input.model"}, "output_key": "first"}
    return Manifest(
        tool_id="a.chain",
        name="",
        version="1.0.0",
        description="",
        capabilities=(),
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string"}, "model": {"default": "small"}, "extra": {}},
            "required": ["text"],
        },
        output_schema={"type": "object", **output},
        chain=(
            Step(step="one", tool="a.one", **step),  # type: ignore[arg-type]
            Step(step="two", tool="a.two", mapping={"v": "$.first.v[1]", "x": "$.input.extra"}, output_key="second"),
        ),
    )


async def recorded(calls: list[Any], step: Step, given: dict[str, Any]) -> Any:
    """Answer for the tool of a step."""
    calls.append((step.tool, given))
    return {"v": [1, 2]} if step.step == "one" else {"done": given["v"]}


@pytest.mark.anyio
async def test_a_chain_maps_defaults_and_outputs() -> None:
    """MCPKG §11.3 and §11.4: `$.input.*` with defaults, `$.<outputKey>.*`, an absent optional input is left out."""
    calls: list[Any] = []

    async def call(step: Step, given: dict[str, Any]) -> Any:
        return await recorded(calls, step, given)

    assert {"done": 2} == await run_chain(chain(), {"text": "t"}, call)
    assert [("a.one", {"text": "t", "model": "small"}), ("a.two", {"v": 2})] == calls
    named = {"properties": {"second": {}, "first": {}}, "required": ["second"]}
    assert {"first": {"v": [1, 2]}, "second": {"done": 2}} == await run_chain(chain(**named), {"text": "t"}, call)
    with pytest.raises(ServerFault, match="PKG-052"):
        await run_chain(chain(required=["third"]), {"text": "t"}, call)


@pytest.mark.anyio
async def test_a_chain_stops_where_something_is_missing() -> None:
    """A wrong input calls nothing; an output that is not there stops before the next step."""
    calls: list[Any] = []

    async def call(step: Step, given: dict[str, Any]) -> Any:
        calls.append((step.tool, given))
        return {"v": []}

    with pytest.raises(CallRefused, match="PKG-050"):
        await run_chain(chain(), {"text": 3}, call)
    assert [] == calls
    with pytest.raises(CallRefused, match="PKG-051"):
        await run_chain(chain(), {"text": "t"}, call)
    assert ["a.one"] == [tool for tool, _ in calls]


def test_defaults_are_filled_and_nothing_else_changes() -> None:
    """Given values stay, nested objects are filled when they are there, the caller's own value is not changed."""
    schema = {"properties": {"a": {"default": 1}, "b": {"properties": {"c": {"default": 2}}}, "d": {}}}
    given = {"b": {"x": 0}}

    assert {"a": 1, "b": {"x": 0, "c": 2}} == with_defaults(schema, given)
    assert {"b": {"x": 0}} == given
    assert {"a": None} == with_defaults(schema, {"a": None})


def entry(place: Path, manifest: dict[str, Any], files: dict[str, Any]) -> export.Entry:
    """Return an installed tool as exports see it."""
    contents = FolderContents(folder(place, {"manifest.json": manifest, **files}))
    found, cases, _ = read_package(contents)
    return export.Entry(found, cases, contents, metrics.Summary(2, 1, 1, 12.5))


def test_exports_have_the_logical_tool_only(tmp_path: Path) -> None:
    """MCPKG §10.4: ids, descriptions and schemas; no command, no implementation; `tools.json` as upstream (T3-4)."""
    one = entry(tmp_path, PDF_TOOL, PDF_FILES)
    (plain,) = export.tools_json([one])
    (mcp,) = export.mcp_tools([one])["tools"]
    (function,) = export.openai_tools([one])

    assert {"name", "description", "input_schema", "capabilities", "examples", "test_summary"} == set(plain)
    assert {"total": 2, "passed": 1, "failed": 1, "average_latency_ms": 12.5} == plain["test_summary"]
    assert ("tools.pdf.read_local", PDF_TOOL["input_schema"]) == (mcp["name"], mcp["inputSchema"])
    assert ("tools__pdf__read_local", PDF_TOOL["input_schema"]) == (
        function["function"]["name"],
        function["function"]["parameters"],
    )
    jsonschema.Draft202012Validator.check_schema(mcp["outputSchema"])
    assert "pdf-read.js" not in json.dumps([plain, mcp, function])
    text = export.context([one])
    assert all(part in text for part in ("tools.pdf.read_local", "Pass the path", "reads a report", "node-pdfjs"))


def test_hidden_characters_of_a_package_do_not_reach_a_model(tmp_path: Path) -> None:
    """Direction overrides, tags and escapes in descriptions and examples are gone from every export."""
    hidden = "Read\u202e\U000e0041\u200b\x1b[31m files"
    one = entry(tmp_path, {**ECHO, "description": hidden, "tests": [], "examples": ["e.md"]}, {"e.md": hidden})
    shown = json.dumps(
        [export.tools_json([one]), export.mcp_tools([one]), export.openai_tools([one])], ensure_ascii=False
    )

    for text in (shown, export.context([one])):
        assert "Read[31m files" in text
        assert not set(hidden) & {"\u202e", "\U000e0041", "\u200b", "\x1b"} & set(text)


@pytest.mark.parametrize("ids", [("a.b", "a__b.c", "a_b"), ("x." + "y" * 70, "x." + "y" * 71), ("a-b.c", "a.b-c")])
def test_function_names_never_meet(ids: tuple[str, ...]) -> None:
    """Different ids give different names within what functions may be called."""
    names = [export.openai_name(tool_id) for tool_id in ids]

    assert len(set(names)) == len(ids)
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(), True),
        (Query(("pdf",)), True),
        (Query(("PDF", "extract")), True),
        (Query(("pdf", "audio")), False),
        (Query(capabilities=("pdf", "local")), True),
        (Query(capabilities=("ocr",)), False),
        (Query(language="JavaScript"), True),
        (Query(language="rust"), False),
        (Query(language="javascript", platform="linux-arm64"), True),
        (Query(language="dotnet", platform="linux-arm64"), False),
    ],
    ids=str,
)
def test_search_filters_on_words_capabilities_language_and_platform(query: Query, found: bool, tmp_path: Path) -> None:
    """MCPKG §10.3: "a PDF reader for JavaScript"; language and platform hold for one and the same implementation."""
    manifest = entry(tmp_path, PDF_TOOL, PDF_FILES).manifest

    assert found is matches(manifest, query)
    assert relevance(manifest, ("pdf",)) > relevance(manifest, ("structure",)) > 0


def test_the_echo_package_passes_its_own_test(tmp_path: Path) -> None:
    """The example's test accepts an echo, and nothing else."""
    (case,) = read_package(FolderContents(echo_folder(tmp_path)))[1]

    assert [] == judge(case, {"message": "hello", "more": 1})
    assert 2 == len(judge(case, {"message": "bye"}))
