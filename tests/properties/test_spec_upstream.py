"""Our models against the published schemas of the AIPs (read from the shared folder, never part of the project).

Two directions, with the known traps mended (T0-1 … T0-12):

- every manifest that loads is valid under the upstream schemas, once our additions and other spellings are taken off;
- every upstream-valid manifest loads, or is refused for a reason that a specification or ADR gives.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from referencing.jsonschema import DRAFT202012

from sandbox.spec.frontmatter import parse
from sandbox.spec.load import check_folder
from tests.properties.test_spec_mutations import PLACES, RICH, mutations, places
from tests.shared import shared
from tests.unit.spec.folders import SECRET, TOOL, front, write

SPECS = ("upstream", "agentproto", "specs")

pytestmark = pytest.mark.data


@cache
def validators() -> dict[str, jsonschema.Draft202012Validator]:
    """Return the upstream validators, their traps mended."""

    def schema(aip: int, name: str) -> dict[str, Any]:
        return json.loads(shared(*SPECS, "resources", f"aip-{aip}", "draft", f"{name}.schema.json").read_text())

    tool = schema(14, "TOOL")
    tool["allOf"][0]["if"]["required"] = ["approval"]  # T0-1
    tool["properties"]["implements"] = {}  # T0-2
    io = DRAFT202012.create_resource(schema(16, "IO"))
    both = [(f"https://agentproto.sh/{place}/aip-16/IO.schema.json", io) for place in ("docs", "schemas")]  # T0-3
    registry: Any = referencing.Registry().with_resources(both)
    found = {"TOOL": tool, "DRIVER": schema(30, "DRIVER"), "MCP": schema(32, "MCP"), "SECRETS": schema(19, "SECRETS")}
    return {name: jsonschema.Draft202012Validator(value, registry=registry) for name, value in found.items()}


def differences(name: str, values: Any) -> list[str]:
    """Return what an upstream schema says against some front matter."""
    return [f"{name} {error.json_path}: {error.message}" for error in validators()[name].iter_errors(values)]


def upstream_view(values: dict[str, Any]) -> dict[str, Any]:
    """Return front matter without what we add to closed upstream blocks."""
    view = copy.deepcopy(values)
    for entry in view.get("implements", []):
        entry.get("metadata", {}).get("mcp", {}).pop("context", None)  # ours
    return view


# --- accepted here is valid there -------------------------------------------------------------------------------------
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations(RICH, PLACES))
def test_a_driver_that_loads_is_valid_upstream(values: dict[str, Any]) -> None:
    """Whatever change of a driver we accept, AIP-30's and AIP-32's schemas accept too."""
    validators()
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    folder = write(root, RICH, None, [SECRET])
    (folder / "DRIVER.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")
    spec, _ = check_folder(folder)
    shutil.rmtree(root)

    view = upstream_view(values) if spec is not None else None
    assert view is None or [] == differences("DRIVER", view) + differences("MCP", view)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations(TOOL, [path for path in places(TOOL) if path]))
def test_a_contract_that_loads_is_valid_upstream(values: dict[str, Any]) -> None:
    """Whatever change of a contract we accept, AIP-14's schema accepts too."""
    validators()
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    folder = write(root)
    (folder / "tools/fs-read/TOOL.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")
    spec, _ = check_folder(folder)
    shutil.rmtree(root)

    assert spec is None or [] == differences("TOOL", values)


INVENTORY = {
    "secrets": [
        SECRET
        | {
            "kind": "opaque",
            "access": {"bind": [{"tool": "x"}], "reveal": [{"role": "y"}]},
            "audit": {"retention": "P7Y", "pii": False},
            "exposures": [{"kind": "env", "name": "KEY", "field": "v"}, {"kind": "file", "path": "/k", "mode": 256}],
            "tags": ["prod"],
        }
    ]
}


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations(INVENTORY, [path for path in places(INVENTORY) if path]))
def test_an_inventory_that_loads_is_valid_upstream(values: dict[str, Any]) -> None:
    """Whatever change of SECRETS.md we accept without a warning, AIP-19's schema accepts too."""
    validators()
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    folder = write(root)
    (folder / "SECRETS.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")
    spec, problems = check_folder(folder)
    shutil.rmtree(root)

    assert spec is None or problems or [] == differences("SECRETS", values)


# --- valid there loads here, or is refused for a reason ---------------------------------------------------------------
REASONS = {
    "SPEC-046": "text of one line",
    "SPEC-047": "AIP-30 says semver; its pattern admits more",
    "SPEC-060": "this supervisor runs kind mcp",
    "SPEC-064": "RFC 6570, which AIP-32 means by uri_template",
    "SPEC-065": "a name stands once",
    "SPEC-072": "D03, S0-35: nothing is substituted in arguments",
    "SPEC-073": "D03: packages, not URLs and options",
    "SPEC-074": "D03: image references",
    "SPEC-075": "B0-12: https only",
    "SPEC-077": "D03: variables that decide which code runs",
    "SPEC-079": "S0-71",
    "SPEC-080": "S0-35: one whole reference",
    "SPEC-081": "AIP-19: a slug must exist",
    "SPEC-089": "T0-10: kind and transport",
    "SPEC-090": "T0-10: kind and transport",
    "SPEC-092": "B0-11: no egress, no remote server",
    "SPEC-093": "S0-24: revisions that exist",
    "SPEC-094": "AIP-32: a path",
    "SPEC-101": "install methods that are not carried out",
    "SPEC-104": "D03: no shell",
    "SPEC-105": "linear time",
    "SPEC-120": "nothing reaches into a sandbox",
    "SPEC-140": "B0-11: an egress list that opens everything is none",
    "SPEC-175": "S0-41",
    "SPEC-176": "AIP-30: only optional inputs are dropped",
    "SPEC-177": "AIP-30: overrides only narrow",
    "SPEC-179": "T0-7",
    "SPEC-183": "AIP-32: JSONPath-lite",
}

NAMES = st.sampled_from(["a", "x-1", "pii-safe"])
LISTS = st.lists(NAMES, max_size=2, unique=True)
COST = st.fixed_dictionaries(
    {}, optional={"cost_class": st.sampled_from(["trivial", "expensive"]), "cost_units_per_call": st.integers(0, 9)}
)
PROBE = st.fixed_dictionaries({"method": st.just("GET"), "url": st.just("https://a.example")})
SERVERS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("npm"), "package": st.sampled_from(["x", "@s/x", "x@1.2.3", "x@latest", "./x", "a b"])},
        optional={"args": st.lists(st.sampled_from(["-v", "/data", "${secrets.API_KEY}"]), max_size=2)},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("docker"), "image": st.sampled_from(["x", "x:1", "h:5000/a/b:1", "X", "x --privileged"])},
        optional={"env": st.dictionaries(st.sampled_from(["A", "LD_PRELOAD"]), st.sampled_from(["b", "${x}"]))},
    ),
    st.fixed_dictionaries({"kind": st.just("binary"), "path": st.sampled_from(["/bin/x", "./x", "x", "~/x"])}),
    st.fixed_dictionaries(
        {"kind": st.just("remote"), "url": st.sampled_from(["https://mcp.example.com/v1", "http://mcp.example.com"])}
    ),
)
VALID = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["X", "é"]),
        "id": st.sampled_from(["x-mcp", "a.b"]),
        "description": st.sampled_from(["d", "two\nlines"]),
        "version": st.sampled_from(["1.0.0", "1.0.0-rc.1", "1.0.0+b"]),
        "kind": st.just("mcp"),
        "server": SERVERS,
        "transport": st.sampled_from(["stdio", "http", "sse"]),
        "implements": st.lists(
            st.fixed_dictionaries(
                {
                    "tool": st.just("./tools/fs-read/TOOL.md"),
                    "version": st.sampled_from(["^1.0.0", "*", ">=1 <2", "^2"]),
                    "metadata": st.fixed_dictionaries(
                        {
                            "mcp": st.fixed_dictionaries(
                                {"tool_name": st.just("t")},
                                optional={
                                    "argument_mapping": st.sampled_from([{}, {"path": "p"}]),
                                    "result_extract": st.sampled_from(["$", "$.a", "$..a"]),
                                },
                            )
                        },
                    ),
                },
                optional={
                    "mapping": st.sampled_from([{}, {"path": "path"}, {"path": "p"}]),
                    "cost_override": COST,
                    "timeout_override_ms": st.sampled_from([100, 60_000]),
                    "schema_narrowing": st.sampled_from([{}, {"drop_inputs": ["limit"]}, {"drop_inputs": ["path"]}]),
                },
            ),
            min_size=1,
            max_size=1,
        ),
    },
    optional={
        "install": st.lists(
            st.sampled_from([{"method": "npm", "package": "x"}, {"method": "brew", "package": "x"}]), max_size=2
        ),
        "version_check": st.fixed_dictionaries(
            {
                "cmd": st.sampled_from(["x -v", "x | y"]),
                "parse": st.sampled_from(["(.)", "(?=a)(b)"]),
                "range": st.just(">=1"),
            },
            optional={"timeout_ms": st.just(100)},
        ),
        "auth": st.fixed_dictionaries(
            {},
            optional={
                "ref": st.just("./SECRETS.md"),
                "state": st.fixed_dictionaries({}, optional={"env": LISTS, "paths": LISTS}),
                "login": st.fixed_dictionaries({}, optional={"cmd": st.just("x"), "interactive": st.booleans()}),
                "refresh": st.fixed_dictionaries({}, optional={"cmd": st.just(""), "every": st.just("PT1H")}),
                "expiry": st.fixed_dictionaries({}, optional={"detect": st.just("http_status:401")}),
            },
        ),
        "runner": st.fixed_dictionaries({}, optional={"engine": st.sampled_from(["subprocess", "sandbox"])}),
        "network": st.fixed_dictionaries(
            {},
            optional={
                "egress": st.lists(st.sampled_from(["mcp.example.com", "*.example.org", "*"]), max_size=2),
                "ingress": st.sampled_from([[], ["https://x"]]),
            },
        ),
        "region": LISTS,
        "policy_tags": LISTS,
        "tags": LISTS,
        "cost_override": COST,
        "timeout_override_ms": st.sampled_from([100, 60_000]),
        "retry_override": st.fixed_dictionaries({"max_attempts": st.integers(1, 10)}),
        "health_check": st.fixed_dictionaries({"method": st.just("http"), "http": PROBE}),
        "requires": st.fixed_dictionaries({}, optional={"os": st.just(["linux"]), "min_memory_mb": st.integers(0, 9)}),
        "examples": st.lists(st.fixed_dictionaries({"goal": st.just("g")}), max_size=1),
        "metadata": st.dictionaries(NAMES, NAMES, max_size=2),
        "protocol_version": st.sampled_from(["2025-03", "2025-11-25", "9999-99"]),
        "prompts": st.lists(
            st.fixed_dictionaries({"name": st.just("p"), "integrate_as": st.sampled_from(["raw", "skill_block"])}),
            max_size=2,
        ),
        "resources": st.lists(
            st.fixed_dictionaries(
                {"uri_template": st.sampled_from(["file:///{p}", "{p}"]), "integrate_as": st.sampled_from(["raw"])},
                optional={"ref_kind_id": st.just("mcp_x")},
            ),
            max_size=1,
        ),
        "connection_options": st.fixed_dictionaries(
            {}, optional={"timeout_ms": st.just(100), "max_retries": st.just(0)}
        ),
        "x-mine": st.just({"a": 1}),
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(VALID)
def test_an_upstream_valid_driver_loads_or_is_refused_for_a_stated_reason(values: dict[str, Any]) -> None:
    """A driver that both schemas admit loads, or is refused with an id that stands for a stated reason."""
    assert [] == differences("DRIVER", values) + differences("MCP", values)
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    spec, problems = check_folder(write(root, values, None, [SECRET]))
    shutil.rmtree(root)

    ids = {problem.id for problem in problems if problem.severity == "error"}
    assert ids <= set(REASONS), [str(problem) for problem in problems]
    assert (spec is None) == bool(ids)


# --- the published manifests ------------------------------------------------------------------------------------------
def manifests(pattern: str, mark: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of every manifest written out in the published texts."""
    for file in sorted(shared(*SPECS).glob(pattern)):
        for index, block in enumerate(
            re.findall(r"```(?:md|yaml)\n(---\n.*?\n---\n.*?)```", file.read_text(), re.DOTALL)
        ):
            if re.search(mark, block, re.MULTILINE):
                yield f"{file.parent.parent.name}/{file.name}#{index}", block


def stub(tool_id: str, block: str) -> dict[str, Any]:
    """Return a contract with the inputs that a published driver maps."""
    names = re.findall(rf"{re.escape(tool_id)}/TOOL.md.*?argument_mapping: \{{([^}}]*)\}}", block, re.DOTALL)
    inputs = {name: {} for name in re.findall(r"(\w+):", names[0] if names else "")}
    return TOOL | {"id": tool_id, "inputs": {"type": "object", "properties": inputs}}


def laid_out(root: Path, block: str) -> Path:
    """Write a published driver with the contracts and secrets it names."""
    folder = root / "driver"
    for path in set(re.findall(r"tool: \./([\w/.-]+)/TOOL\.md", block)):
        (folder / path).mkdir(parents=True)
        (folder / path / "TOOL.md").write_text(front(stub(Path(path).name, block)))
    slugs = {name.lower().replace("_", "-") for name in re.findall(r"[A-Z]+_[A-Z_]+", block)}
    if slugs:
        (folder / "SECRETS.md").write_text(front({"secrets": [SECRET | {"slug": slug} for slug in sorted(slugs)]}))
    (folder / "DRIVER.md").write_text(block)
    return folder


def test_published_mcp_drivers_load(tmp_path: Path) -> None:
    """Every MCP driver of AIP-30 and AIP-32 loads, but the one whose server.json nobody published (S0-56, S0-61)."""
    found: dict[str, list[str]] = {}
    for texts in ("aip-32.mdx", "resources/aip-3[02]/draft/EXAMPLES.md"):
        for name, block in manifests(texts, r"^kind: mcp$"):
            spec, problems = check_folder(laid_out(tmp_path / name.replace("/", "-"), block))
            errors = [problem.id for problem in problems if problem.severity == "error"]
            assert (spec is None) == bool(errors), problems
            found[name] = errors

    assert 6 == len(found)
    assert [["SPEC-010"]] == [errors for errors in found.values() if errors], found


def test_published_drivers_of_other_kinds_are_refused_as_such(tmp_path: Path) -> None:
    """Every other published driver is refused for its kind, and for nothing else."""
    found = {}
    for name, block in manifests("**/*.md*", r"^kind: (?:http|cli|sdk|builtin)$"):
        if "implements:" in block:
            _, problems = check_folder(laid_out(tmp_path / name.replace("/", "-"), block))
            found[name] = [problem.id for problem in problems]

    assert len(found) > 15
    assert {"SPEC-060"} == {id_ for ids in found.values() for id_ in ids}


def test_published_contracts_load_or_are_refused_for_their_own_words(tmp_path: Path) -> None:
    """Every published TOOL.md that is valid loads, unless its own words exclude us; the others are refused."""
    count = 0
    values = RICH | {"auth": {}, "timeout_override_ms": 100, "server": {"kind": "npm", "package": "x"}}
    entry = {"tool": "./tools/fs-read/TOOL.md", "version": "*", "metadata": {"mcp": {"tool_name": "t"}}}
    for name, block in manifests("**/*.md*", r"^inputs:$"):
        if "\noutputs:" not in block or "\napproval:" not in block:
            continue
        count += 1
        folder = write(tmp_path / str(count), contract=block)
        (folder / "DRIVER.md").write_text(front(values | {"implements": [entry]}))
        ids = {problem.id for problem in check_folder(folder)[1] if problem.severity == "error"}
        says = differences("TOOL", parse(block.encode()).values)

        # valid upstream: loads, unless it admits no MCP drivers or refers to AIP-27, which is never fetched
        assert says or ids <= {"SPEC-164", "SPEC-167"}, (name, ids)
        # not valid upstream (`auto` with `mutates`, fields from before AIP-30): refused
        assert not says or ids, (name, says)

    assert count >= 8


def test_published_inventories_load(tmp_path: Path) -> None:
    """Every published SECRETS.md loads."""
    count = 0
    for name, block in manifests("resources/aip-19/draft/EXAMPLES.md", r"^secrets:$"):
        count += 1
        folder = write(tmp_path / str(count))
        (folder / "SECRETS.md").write_text(block)
        spec, problems = check_folder(folder)

        assert spec is not None, (name, problems)

    assert count == 7
