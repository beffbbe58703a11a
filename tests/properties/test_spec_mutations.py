"""Any change of a good driver folder is refused with its place, or loads and means what it says."""

from __future__ import annotations

import copy
import shutil
import string
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sandbox.errors import Problem
from sandbox.spec.frontmatter import FrontMatterError, parse
from sandbox.spec.load import check_folder
from sandbox.spec.model import DriverSpec, Origin
from tests.unit.spec.folders import DRIVER, SECRET, TOOL, front, write

RICH: dict[str, Any] = {
    **copy.deepcopy(DRIVER),
    "protocol_version": "2025-06",
    "install": [{"method": "npm", "package": "@scope/server-files", "global": False}],
    "version_check": {"cmd": "npx @scope/server-files --version", "parse": "v(\\S+)", "range": ">=0.5"},
    "auth": {"ref": "./SECRETS.md", "state": {"env": ["API_KEY"]}},
    "network": {"egress": ["api.example.com", "*.example.org:443"]},
    "runner": {"engine": "sandbox", "limits": {"memory_mb": 128}},
    "region": ["self-hosted"],
    "policy_tags": ["pii-safe"],
    "timeout_override_ms": 20_000,
    "requires": {"os": ["linux"]},
    "resources": [{"uri_template": "file:///{path}", "integrate_as": "raw"}],
    "connection_options": {"timeout_ms": 1000, "max_retries": 1},
    "tags": ["files"],
    "metadata": {"acme": {"team": "x"}},
}
RICH["server"]["env"] = {"KEY": "${secrets.API_KEY}"}
RICH["sandbox"]["fs"]["deny"] = ["~/.ssh/**"]
RICH["implements"][0] |= {"schema_narrowing": {"drop_inputs": ["limit"]}, "timeout_override_ms": 500}
RICH["implements"][0]["metadata"]["mcp"] |= {"result_extract": "$.text", "context": {"tenant": "tenant.id"}}

PERMISSIONS = ("server", "network", "sandbox", "limits", "runner", "implements")
TYPO = string.ascii_letters + string.digits + "_-"

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 1.5, "", " ", "*", "/", "..", "../..", "~", "-", "--privileged"),
    *("${secrets.X}", "${tenant.id}", "x" * 300, "a\u0301", "\U0001f600", "yes", "null"),
    *([], {}, [None], [[]], {"": 1}, {"a": {}}, ["x", 1]),
]


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder that hypothesis may use for one example."""
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    try:
        yield write(root, RICH, None, [SECRET])
    finally:
        shutil.rmtree(root)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value, the top one included."""
    yield path
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from places(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path."""
    for part in path:
        value = value[part]
    return value


PLACES = [path for path in places(RICH) if path]
KEYS = [path for path in PLACES if isinstance(path[-1], str)]


def renamed(values: dict[str, Any], path: tuple[Any, ...], key: str) -> dict[str, Any]:
    """Return the values with one key called otherwise, in the same place."""
    changed = copy.deepcopy(values)
    block = at(changed, path[:-1])
    members = [(key if name == path[-1] else name, value) for name, value in block.items()]
    block.clear()
    block.update(members)
    return changed


def odd() -> st.SearchStrategy[Any]:
    """Draw a value that seldom fits; a copy, for the next change may go into it."""
    return st.sampled_from(ODD).map(copy.deepcopy)


@st.composite
def mutations(draw: st.DrawFn, source: dict[str, Any], paths: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Return front matter with one to four things removed, renamed, replaced, added or repeated."""
    values = copy.deepcopy(source)
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(paths))
        try:
            block = at(values, path[:-1])
            current = block[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        if not isinstance(block, dict | list):
            continue
        change = draw(st.sampled_from(["remove", "rename", "replace", "add", "repeat", "swap"]))
        if change == "remove":
            del block[path[-1]]
        elif change == "rename" and isinstance(block, dict):
            block[draw(st.text(TYPO, min_size=1, max_size=12))] = block.pop(path[-1])
        elif change == "replace":
            block[path[-1]] = draw(
                odd()
                | st.text(max_size=20)
                | st.integers()
                | st.floats(width=32, allow_nan=False, allow_infinity=False)
            )
        elif change == "add" and isinstance(current, dict):
            current[draw(st.text(min_size=1, max_size=12))] = draw(odd())
        elif change == "repeat" and isinstance(block, list):
            block.append(copy.deepcopy(current))
        elif change == "swap":
            block[path[-1]] = copy.deepcopy(at(source, draw(st.sampled_from(paths))))
    return values


def is_located(problem: Problem) -> bool:
    """Return whether a problem has an id, a file of the folder, a line of it and a sentence."""
    file = Path(problem.file)
    lines = file.read_text().count("\n") + 1 if file.is_file() else 0
    return problem.id.startswith("SPEC-") and 0 < problem.line <= lines and bool(problem.message)


def judged(spec: DriverSpec | None, problems: tuple[Problem, ...]) -> None:
    """Hold one result to the invariant of this module."""
    errors = [problem for problem in problems if problem.severity == "error"]
    assert (spec is None) == bool(errors)
    assert all(is_located(problem) for problem in problems), [str(p) for p in problems if not is_located(p)]
    assert all(str(problem).isprintable() for problem in problems)


def test_the_good_folder_loads() -> None:
    """The positive control: the folder that the other tests change loads without problems."""
    with folder() as good:
        spec, problems = check_folder(good)

    assert spec is not None
    assert () == problems


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations(RICH, PLACES))
def test_any_change_of_the_driver_is_refused_with_its_place_or_loads(values: dict[str, Any]) -> None:
    """Whatever is changed in DRIVER.md, a check returns; every problem has file, line and sentence."""
    with folder() as changed:
        (changed / "DRIVER.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")

        judged(*check_folder(changed))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations(TOOL, [path for path in places(TOOL) if path]))
def test_any_change_of_a_contract_is_refused_with_its_place_or_loads(values: dict[str, Any]) -> None:
    """The same for TOOL.md."""
    with folder() as changed:
        (changed / "tools/fs-read/TOOL.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")

        judged(*check_folder(changed))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations({"secrets": [SECRET]}, [path for path in places({"secrets": [SECRET]}) if path]))
def test_any_change_of_the_inventory_is_refused_with_its_place_or_loads(values: dict[str, Any]) -> None:
    """The same for SECRETS.md."""
    with folder() as changed:
        (changed / "SECRETS.md").write_text(front(values), encoding="utf-8", errors="surrogatepass")

        judged(*check_folder(changed))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_change_of_the_bytes_is_refused_with_its_place_or_loads(data: st.DataObject) -> None:
    """The same for bytes cut out of, doubled in, or put into DRIVER.md."""
    with folder() as changed:
        file = changed / "DRIVER.md"
        text = file.read_bytes()
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        new = data.draw(
            st.binary(max_size=8) | st.just(text[start:end] * 2) | st.sampled_from([b"\n", b"- ", b"{", b"&a "])
        )
        file.write_bytes(text[:start] + new + text[end:])

        spec, problems = check_folder(changed)

    assert (spec is None) == any(problem.severity == "error" for problem in problems)


# --- typos ------------------------------------------------------------------------------------------------------------
def granted(spec: DriverSpec) -> tuple[Any, ...]:
    """Return everything a driver asks to be allowed, limited to or bound to."""
    nowhere = {"origin": Origin(file="")}
    bindings = [msgspec.to_builtins(binding.model_copy(update=nowhere)) for binding in spec.bindings]
    return (
        spec.server, spec.transport, spec.egress, spec.ingress, spec.sandbox, spec.limits, spec.connection, spec.region,
        spec.policy_tags, spec.requires, spec.resources, spec.secrets, spec.protocol_version, bindings,
        [(step.method, step.params) for step in spec.install], spec.version_check,
    )  # fmt: skip


def is_name(path: tuple[Any, ...]) -> bool:
    """Return whether a key is a name that the author chooses, not a word of the format."""
    names = (("server", "env"), ("sandbox", "env", "set"), ("metadata",), ("metadata", "acme"))
    return path[:-1] in names or (len(path) > 1 and path[-2] in ("context", "argument_mapping"))


def misspelt(draw: st.DrawFn, key: str) -> str:
    """Return a key with one letter dropped, doubled, exchanged, put in, or in another case."""
    position = draw(st.integers(0, len(key) - 1))
    letter = draw(st.sampled_from(TYPO))
    head, tail = key[:position], key[position:]
    return draw(
        st.sampled_from(
            [
                head + tail[1:],
                head + tail[0] + tail,
                head + letter + tail[1:],
                head + letter + tail,
                head + tail[1:2] + tail[:1] + tail[2:],
                head + tail[0].swapcase() + tail[1:],
                key + "s",
                key.replace("_", "-"),
                key.replace("_", ""),
            ]
        )
    )


@pytest.mark.claim("P-SPEC-11")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_typo_never_grants_nor_silently_drops_a_permission(data: st.DataObject) -> None:
    """Any key anywhere in DRIVER.md misspelt by one letter refuses the driver, or changes nothing that it may do."""
    path = data.draw(st.sampled_from(KEYS))
    key = misspelt(data.draw, path[-1])
    assume(key and key not in at(RICH, path[:-1]))
    with folder() as changed:
        before = check_folder(changed)[0]
        (changed / "DRIVER.md").write_text(front(renamed(RICH, path, key)))
        after, problems = check_folder(changed)

    assert before is not None
    if after is None:
        assert any(problem.severity == "error" for problem in problems)
        return
    assert is_name(path) or granted(before) == granted(after), (path, key)


@pytest.mark.claim("P-SPEC-11")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_typo_in_a_permission_block_is_an_error(data: st.DataObject) -> None:
    """Within permission blocks a misspelt key always refuses the driver."""
    path = data.draw(st.sampled_from([path for path in KEYS if path[0] in PERMISSIONS and not is_name(path)]))
    key = misspelt(data.draw, path[-1])
    assume(key and key not in at(RICH, path[:-1]))
    with folder() as changed:
        (changed / "DRIVER.md").write_text(front(renamed(RICH, path, key)))
        spec, _ = check_folder(changed)

    assert spec is None, (path, key)


# --- bytes ------------------------------------------------------------------------------------------------------------
@settings(max_examples=500, deadline=None)
@given(
    st.binary(max_size=400) | st.text(max_size=400).map(lambda text: f"---\n{text}\n---\n".encode("utf-8", "ignore"))
)
def test_any_bytes_become_a_document_or_a_fault(data: bytes) -> None:
    """Whatever the bytes are, front matter is values of JSON with lines, or faults with ids."""
    found = parsed(data)
    lines = data.count(b"\n") + 1

    assert all(1 <= line <= lines for line in found)


def parsed(data: bytes) -> list[int]:
    """Return the lines of all fields of a manifest, or those of its faults."""
    try:
        return list(parse(data).lines.values())
    except FrontMatterError as error:
        return [fault.line for fault in error.faults if fault.id.startswith("SPEC-")]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=6)
JSON: st.SearchStrategy[Any] = st.deferred(
    lambda: SCALARS | st.lists(JSON, max_size=3) | st.dictionaries(NAMES, JSON, max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, JSON, min_size=1, max_size=6))
def test_json_in_front_matter_is_itself(values: dict[str, Any]) -> None:
    """JSON written into front matter comes back as it was: nothing changes its type."""
    found = parse(front(values).encode()).values

    assert values == found
    assert repr(values) == repr(found)
