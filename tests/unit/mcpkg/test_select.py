"""Selecting an implementation: by what was probed, in the manifest's order, with the reason for each."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import PlanRefused
from sandbox.mcpkg.install import choose
from sandbox.mcpkg.model import HttpEndpoint, Implementation, LocalEndpoint, Manifest
from sandbox.mcpkg.select import Runtime, Surroundings, consider, explain, program_of

NODE = Runtime("node", "24.19.0", "node", frozenset({"node"}))
PYTHON = Runtime("python", "3.11.2", "python", frozenset({"python3", "python3.11", "sh"}), {"pymupdf": "1.24.0"})
HERE = Surroundings("linux-x64", {"node": NODE, "python": PYTHON})


def manifest(*implementations: Implementation) -> Manifest:
    """Return a tool with these implementations."""
    return Manifest(
        tool_id="a.b",
        name="",
        version="1.0.0",
        description="",
        capabilities=(),
        input_schema={},
        output_schema={},
        implementations=implementations,
    )


def local(command: str, runtime: str = "", **more: Any) -> Implementation:
    """Return an implementation that is a command."""
    return Implementation(
        id=more.pop("id", "x"), endpoint=LocalEndpoint(argv=tuple(command.split())), runtime=runtime, **more
    )


@pytest.mark.parametrize(
    ("implementation", "why"),
    [
        (local("node ./a.js", "node"), ""),
        (local("node ./a.js", "node24"), ""),
        (local("node ./a.js", "nodejs"), ""),
        (local("node ./a.js"), ""),
        (local("python ./a.py", "python3.11"), ""),
        (local("python3 ./a.py", "python"), ""),
        (local("./tool"), ""),
        (local("sh ./tool.sh", "python3"), ""),
        (local("node ./a.js", platforms=("linux-x64", "win-x64")), ""),
        (local("node ./a.js", requirements={"minNodeVersion": "18.0.0"}), ""),
        (local("node ./a.js", requirements={"minNodeVersion": "24.19.0"}), ""),
        (local("python ./a.py", requirements={"packages": ["PyMuPDF>=1.23.0"]}), ""),
        (local("python ./a.py", requirements={"packages": ["PyMuPDF"], "minPythonVersion": "3.9"}), ""),
        (local("node ./a.js", "node18"), "asks for node 18"),
        (local("python ./a.py", "python3.1"), "asks for python 3.1"),
        (local("python ./a.py", "python3.12"), "asks for python 3.12"),
        (local("dotnet ./a.dll", "net8.0"), "no runtime `net8.0`"),
        (local("node ./a.js", "browser"), "no runtime `browser`"),
        (local("deno run ./a.js"), "no runtime `deno`"),
        (local("bash ./a.sh", "python3"), "`bash` is not in the image"),
        (local("node ./a.js", platforms=("darwin-arm64",)), "platforms are darwin-arm64"),
        (local("node ./a.js", requirements={"minNodeVersion": "25.0.0"}), "24.19.0"),
        (local("node ./a.js", requirements={"minPythonVersion": "3.0"}), "another runtime"),
        (local("python ./a.py", requirements={"packages": ["PyMuPDF>=2"]}), "PyMuPDF 1.24.0"),
        (local("python ./a.py", requirements={"packages": ["torch"]}), "none of it"),
        (local("python ./a.py", requirements={"packages": ["PyMuPDF ; import os"]}), "names no range"),
        (local("python ./a.py", requirements={"packages": [7]}), "names no package"),
        (local("python ./a.py", requirements={"gpu": "cuda"}), "cannot be probed"),
        (local("python ./a.py", requirements={"minNodeVersion": 18}), "cannot be probed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_says_why(implementation: Implementation, why: str) -> None:
    """Usable without a reason, or not usable with the right one; what cannot be probed is not met."""
    (found,) = consider(manifest(implementation), HERE)

    assert found.usable is (why == "")
    assert why in "; ".join(found.against)


def test_the_manifests_order_decides_and_the_rest_are_fallbacks() -> None:
    """The first that fits is chosen, unless a person names another that fits."""
    tool = manifest(local("dotnet x", id="a"), local("node ./b.js", id="b"), local("python ./c.py", id="c"))
    found = consider(tool, HERE)

    assert ["b", "c"] == [one.id for one in choose(tool, found)]
    assert ["c"] == [one.id for one in choose(tool, found, "c")]
    assert ["a: no", "b: chosen", "c: could"] == [
        line[: line.index(" ", 3)].rstrip(",") for line in explain(found, "b")
    ]
    with pytest.raises(PlanRefused, match="PKG-031"):
        choose(tool, found, "a")


def test_an_endpoint_elsewhere_needs_no_runtime() -> None:
    """An HTTP implementation can be used on any host."""
    endpoint = HttpEndpoint(method="GET", url="https://a.example/", origin="https://a.example:443")
    (found,) = consider(manifest(Implementation(id="x", endpoint=endpoint)), Surroundings("linux-arm64", {}))

    assert found.usable


def test_python_is_called_as_the_image_calls_it() -> None:
    """`python` of a manifest is `python3` of Debian; nothing else is renamed."""
    assert ("python3", "a") == program_of(LocalEndpoint(argv=("python", "a")), PYTHON)
    assert ("sh", "a") == program_of(LocalEndpoint(argv=("sh", "a")), PYTHON)
