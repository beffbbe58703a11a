"""What a package says is what its driver says: projecting to Markdown and reading it again loses and adds nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.mcpkg.model import HttpEndpoint, Implementation, LocalEndpoint, Manifest
from sandbox.mcpkg.project import Grant, Wishes, project
from sandbox.mcpkg.select import Runtime
from sandbox.spec.load import load_driver

TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [
        "<<",
        "=",
        "yes",
        "~",
        "null",
        "1e5",
        "0x1f",
        "---",
        "...",
        "# x",
        "*a",
        "&a",
        "!!str x",
        "a: b",
        "\x85",
        "\u2028",
        "💥",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NODE = Runtime("node", "24.0.0", "node", frozenset({"node"}))
HTTP = HttpEndpoint(method="POST", url="https://a.example/x", origin="https://a.example:443")


def loaded(manifest: Manifest, implementation: Implementation, wishes: Wishes) -> Any:
    """Write a projection and load it; ``None`` when the loader refuses it."""
    runtime = NODE if isinstance(implementation.endpoint, LocalEndpoint) else None
    with tempfile.TemporaryDirectory() as place:
        for name, data in project(manifest, implementation, runtime, wishes).items():
            path = Path(place) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (Path(place) / "inside" / "package").mkdir()
        try:
            return load_driver(Path(place))
        except SpecError:
            return None


def manifest_of(name: str, description: str, example: Any) -> Manifest:
    """Return a tool whose schemas hold a value."""
    schema = {"type": "object", "properties": {"a": {"examples": [example], "default": example}}}
    return Manifest(
        tool_id="demo.some_tool",
        name=name,
        version="1.0.0",
        description=description,
        capabilities=(),
        input_schema=schema,
        output_schema={"type": "object", "examples": [example]},
    )


@settings(max_examples=150, deadline=None)
@given(JSON, TEXT, TEXT)
def test_schemas_survive_the_way_through_markdown(example: Any, name: str, description: str) -> None:
    """The contract that a reviewer reads has the package's schemas, value for value, or the driver is refused."""
    manifest = manifest_of(f"n{name}", f"d{description}", example)
    spec = loaded(manifest, Implementation(id="x", endpoint=HTTP), Wishes())
    if spec is None:
        return
    (binding,) = spec.bindings
    assert manifest.input_schema == dict(binding.contract.inputs)
    assert manifest.output_schema == dict(binding.contract.outputs)


@pytest.mark.claim("P-PKG-11")
@settings(deadline=None)
@given(TEXT, TEXT)
def test_text_of_a_package_adds_no_permission(name: str, description: str) -> None:
    """Whatever name, description and implementation id say, network, mounts and program are those of the endpoint."""
    manifest = manifest_of(f"n{name}\nnetwork: {{egress: ['*']}}", f"d{description}\n---\n", 1)
    local = LocalEndpoint(argv=("node", f"./{name}"))
    for endpoint, egress in ((HTTP, ("https://a.example:443",)), (local, ())):
        spec = loaded(manifest, Implementation(id=f"i{name}", endpoint=endpoint), Wishes((Grant("/srv/x", "/x"),)))
        if spec is None:
            continue
        assert egress == spec.egress
        assert [("./inside", "/mcpkg"), ("/srv/x", "/x")] == [
            (grant.path if grant.path.startswith("/") else f"./{grant.path.removeprefix('./')}", grant.at)
            for grant in spec.sandbox.fs.read
        ]
        assert () == spec.sandbox.fs.write
        assert () == spec.secrets


def test_ordinary_values_are_never_refused() -> None:
    """Numbers with exponents, words that YAML takes for something else, and all planes of Unicode pass."""
    for example in (
        1e22,
        1e-7,
        -1.5e-9,
        10**18,
        "yes",
        "<<",
        "1e5",
        "null",
        "ä💥",
        ["=", {"~": "0o7"}],
        {"<<": {"a": 1}},
    ):
        spec = loaded(manifest_of("n", "d", example), Implementation(id="x", endpoint=HTTP), Wishes())
        assert spec is not None, example
        assert example == spec.bindings[0].contract.inputs["properties"]["a"]["default"]
