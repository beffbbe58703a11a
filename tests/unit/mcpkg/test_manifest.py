"""Manifests and tests: strict JSON, both schemas, everything wrong at once; the specification's ids and examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SpecError
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.model import Case, HttpEndpoint, LocalEndpoint, Manifest
from tests.mcpkg_kit import ECHO, echo_folder, folder
from tests.mcpkg_lab import PDF_FILES, PDF_TOOL
from tests.shared import shared


def read(place: Path, manifest: Any, files: dict[str, Any] | None = None) -> Manifest:
    """Read a manifest with files beside it."""
    return read_package(FolderContents(folder(place, {"manifest.json": manifest, **(files or {})})))[0]


def problems(place: Path, manifest: Any, files: dict[str, Any] | None = None) -> set[str]:
    """Return id and place of everything that is wrong."""
    with pytest.raises(SpecError) as refused:
        read(place, manifest, files)
    return {f"{problem.id} {problem.field}".strip() for problem in refused.value.problems}


def examples(text: str) -> list[Any]:
    """Return the JSON blocks of the specification that are manifests without comments or ellipses."""
    found = []
    for block in text.split("```json\n")[1:]:
        body = block.partition("```")[0]
        try:
            found.append(json.loads(body))
        except ValueError:
            continue
    return found


def test_the_specifications_minimal_example_is_read(tmp_path: Path) -> None:
    """MCPKG §9 from the seed itself, manifest and test, is valid and equals the tests' copy."""
    blocks = examples(shared("seeds", "S3-mcpkg.txt").read_text())
    manifest = next(block for block in blocks if block.get("toolId") == "demo.echo")
    case = next(block for block in blocks if block.get("name") == "simple_echo")
    found, cases, _ = read_package(
        FolderContents(folder(tmp_path, {"manifest.json": manifest, "tests/echo.test.json": case}))
    )

    assert manifest == ECHO
    assert ("demo.echo", "0.1", "https://example.com:443") == (found.tool_id, found.format, _http(found).origin)
    assert ["simple_echo"] == [one.name for one in cases]


def _http(manifest: Manifest) -> HttpEndpoint:
    endpoint = manifest.implementations[0].endpoint
    assert isinstance(endpoint, HttpEndpoint)
    return endpoint


def test_the_full_example_is_read(tmp_path: Path) -> None:
    """MCPKG §4: every field of the Stripe example; its id has an underscore (T3-1)."""
    manifest = {
        **ECHO,
        "toolId": "stripe.payments.create_charge",
        "endpoint": {"type": "http", "method": "POST", "url": "https://api.stripe.com/v1/charges", "timeoutMs": 10000},
        "auth": {
            "type": "bearer",
            "scopes": ["charges:write"],
            "configHints": {"env": ["STRIPE_API_KEY"], "docsUrl": "https://docs.stripe.com/x"},
        },
        "tests": [],
        "examples": ["examples/basic_usage.md"],
        "meta": {
            "publisher": {"id": "stripe", "name": "Stripe", "website": "https://stripe.com"},
            "license": "proprietary",
            "homepage": "https://stripe.com/mcp",
            "tags": ["production", "payments", "eu-ready"],
        },
    }
    found = read(tmp_path, manifest, {"examples/basic_usage.md": "# Basic"})

    assert ("bearer", ("charges:write",), ("STRIPE_API_KEY",)) == (found.auth.type, found.auth.scopes, found.auth.env)
    assert ("stripe", 10000, "Authorization") == (found.publisher, _http(found).timeout_ms, found.auth.header)


def test_implementations_are_read(tmp_path: Path) -> None:
    """MCPKG §10: commands in words, requirements as written, in their order."""
    found = read(tmp_path, PDF_TOOL, PDF_FILES)
    last = found.implementations[-1]

    assert "0.2" == found.format
    assert LocalEndpoint(argv=("node", "./sdk/javascript/pdf-read.js")) == last.endpoint
    assert {"minNodeVersion": "18.0.0"} == last.requirements


def test_a_minimal_package_is_a_manifest(tmp_path: Path) -> None:
    """MCPKG §2: manifest.json alone is a package; what is recommended is only warned of."""
    _, cases, findings = read_package(FolderContents(folder(tmp_path, {"manifest.json": {**ECHO, "tests": []}})))

    assert () == cases
    assert {"warning"} == {problem.severity for problem in findings.problems}


@pytest.mark.parametrize("tool_id", ["demo.echo", "a.b.c.d", "stripe.payments.create_charge", "x-1.y_2"])
def test_ids_of_the_specification_are_accepted(tool_id: str, tmp_path: Path) -> None:
    """Underscores and two parts are fine (T3-1)."""
    assert tool_id == read(tmp_path, {**ECHO, "toolId": tool_id, "tests": []}).tool_id


@pytest.mark.parametrize(
    "tool_id", ["", "echo", ".echo", "demo.", "Demo.Echo", "a..b", "../x", "a.b\n", "a." + "b" * 80, "a/b.c"]
)
def test_ids_that_are_no_names_are_refused(tool_id: str, tmp_path: Path) -> None:
    """An id becomes the name of a folder, of a driver and of a tool."""
    assert {"PKG-011 toolId"} == problems(tmp_path, {**ECHO, "toolId": tool_id, "tests": []})


@pytest.mark.parametrize(
    "text", ['{"a": 1,}', "// hi\n{}", '{"toolId": "a.b", "toolId": "c.d"}', "\ufeff{}", "NaN", ""]
)
def test_only_strict_json_is_read(text: str, tmp_path: Path) -> None:
    """Comments, doubled members, marks and constants are refused (S3-23)."""
    assert {"PKG-010"} == problems(tmp_path, text)


@pytest.mark.parametrize(
    "field", ["toolId", "name", "version", "description", "capabilities", "input_schema", "output_schema"]
)
def test_required_fields_are_required(field: str, tmp_path: Path) -> None:
    """MCPKG §4.1."""
    manifest = {key: value for key, value in ECHO.items() if key != field}

    assert {"PKG-011"} == problems(tmp_path, manifest)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"version": "1.0"}, "PKG-011 version"),
        ({"version": "v1.0.0"}, "PKG-011 version"),
        ({"capabilities": "demo"}, "PKG-011 capabilities"),
        ({"endpoint": {"type": "grpc"}}, "PKG-011 endpoint.type"),
        ({"endpoint": {"type": "http", "url": "https://a.example/"}}, "PKG-011 endpoint"),
        ({"endpoint": {"type": "local", "command": "./absent"}}, "PKG-013 endpoint.command"),
        ({"endpoint": {"type": "local", "command": "/bin/sh -c id"}}, "PKG-013 endpoint.command"),
        ({"endpoint": {"type": "local", "command": "node 'x"}}, "PKG-013 endpoint.command"),
        ({"chain": [{"step": "a", "tool": "a.b", "outputKey": "c"}]}, "PKG-011"),
        ({"input_schema": {"type": "array"}}, "PKG-012 input_schema.type"),
        ({"input_schema": {"type": "object", "properties": 3}}, "PKG-012 input_schema"),
        ({"output_schema": {"$ref": "https://evil.example/schema.json"}}, "PKG-012 output_schema"),
        ({"output_schema": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "PKG-012 output_schema.$schema"),
        ({"tests": ["tests/absent.test.json"]}, "PKG-016 tests[0]"),
        ({"tests": ["../../etc/passwd"]}, "PKG-016 tests[0]"),
        ({"examples": ["/etc/passwd"]}, "PKG-016 examples[0]"),
        ({"auth": {"type": "bearer"}}, "PKG-014 auth.configHints.env"),
        ({"auth": {"type": "basic"}}, "PKG-011 auth.type"),
        ({"auth": {"type": "bearer", "configHints": {"env": ["a=b"]}}}, "PKG-011 auth.configHints.env[0]"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_place(change: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    """One problem, its id and its place."""
    assert {wanted} == problems(tmp_path, {**ECHO, "tests": [], **change})


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "/relative",
        "https://user:pass@a.example/",
        "https://a.example@evil.example/",
        "https://a.example\\@evil.example/",
        "https://a.example/#x",
        "https://a.example:0/",
        "https://a.example:99999/",
        "https://a.example/{path}",
        "https://a.example/ x",
        "https://ä.example/",
        "https://0x7f.1/",
        "https://*.example.com/",
        "file:///etc/passwd",
        "https://",
    ],
)
def test_an_address_that_could_be_read_in_two_ways_is_refused(url: str, tmp_path: Path) -> None:
    """What becomes the one permitted destination is absolute and plain."""
    endpoint = {"type": "http", "method": "GET", "url": url}

    assert {"PKG-013 endpoint.url"} == problems(tmp_path, {**ECHO, "tests": [], "endpoint": endpoint})


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """Wrong version, endpoint and capabilities in one answer."""
    manifest = {**ECHO, "version": "x", "capabilities": [1], "endpoint": {"type": "http"}}

    assert {"PKG-011 version", "PKG-011 capabilities[0]", "PKG-011 endpoint"} == problems(tmp_path, manifest)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        ({"inputMapping": {"a": "$.later.x"}}, "PKG-015 chain[1].inputMapping.a"),
        ({"inputMapping": {"a": "$..x"}}, "PKG-015 chain[1].inputMapping.a"),
        ({"inputMapping": {"a": "$"}}, "PKG-015 chain[1].inputMapping.a"),
        ({"outputKey": "one"}, "PKG-015 chain[1].outputKey"),
        ({"outputKey": "input"}, "PKG-015 chain[1].outputKey"),
        ({"tool": "demo.echo"}, "PKG-015 chain[1].tool"),
    ],
    ids=str,
)
def test_a_chain_is_checked_before_it_runs(step: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    """A mapping names something that exists by then; keys are taken once; a chain does not call itself."""
    first = {"step": "a", "tool": "a.b", "inputMapping": {"x": "$.input.message"}, "outputKey": "one"}
    second = {"step": "b", "tool": "a.b", "inputMapping": {"x": "$.one.y"}, "outputKey": "two"}
    plain = {key: value for key, value in ECHO.items() if key not in {"endpoint", "tests"}}

    assert 2 == len(read(tmp_path / "good", {**plain, "chain": [first, second]}).chain)
    assert {wanted} == problems(tmp_path / "bad", {**plain, "chain": [first, {**second, **step}]})


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ({"name": "x", "input": {}}, "PKG-017 input"),
        ({"name": "x"}, "PKG-011"),
        ({"name": "x", "input": {"message": "a"}, "assertions": [{"path": "$.a"}]}, "PKG-011 assertions[0]"),
        (
            {"name": "x", "input": {"message": "a"}, "assertions": [{"path": "$.a", "equals": 1, "exists": True}]},
            "PKG-011 assertions[0]",
        ),
        (
            {"name": "x", "input": {"message": "a"}, "assertions": [{"path": "a", "equals": 1}]},
            "PKG-011 assertions[0].path",
        ),
    ],
    ids=str,
)
def test_tests_are_checked_when_a_package_is_read(case: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    """A test whose input does not fit, or with two or no assertions in one, refuses the package."""
    source = echo_folder(tmp_path)
    folder(source, {"tests/echo.test.json": case})
    with pytest.raises(SpecError) as refused:
        read_package(FolderContents(source))

    assert {wanted} == {f"{problem.id} {problem.field}".strip() for problem in refused.value.problems}


def test_unlisted_tests_are_found(tmp_path: Path) -> None:
    """Without a list, every `tests/*.test.json` is a test (S3-24)."""
    source = echo_folder(tmp_path, tests=[])
    folder(source, {"tests/notes.md": "no test"})
    cases: tuple[Case, ...] = read_package(FolderContents(source))[1]

    assert ["simple_echo"] == [case.name for case in cases]


def test_the_publisher_stands_in_either_file_and_in_both_alike(tmp_path: Path) -> None:
    """MCPKG §7.1: meta/publisher.json names the publisher; another one than the manifest's is refused."""
    said = {"id": "stripe", "name": "Stripe", "website": "https://stripe.com", "contact": "support@stripe.com"}
    plain = {**ECHO, "tests": []}
    both = {**plain, "meta": {"publisher": {"id": "stripe"}}}
    other = {**plain, "meta": {"publisher": {"id": "acme"}}}

    assert "stripe" == read(tmp_path / "a", plain, {"meta/publisher.json": said}).publisher
    assert "Stripe" == read(tmp_path / "b", both, {"meta/publisher.json": said}).meta["publisher"]["name"]
    assert {"PKG-019 id"} == problems(tmp_path / "c", other, {"meta/publisher.json": said})
    assert {"PKG-019"} == problems(tmp_path / "d", plain, {"meta/publisher.json": ["stripe"]})
    assert {"PKG-010"} == problems(tmp_path / "e", plain, {"meta/provenance.json": "{'commit': 1}"})
