from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.fields.universal import REFUSED_STEPS
from sandbox.spec.model import VersionCheck
from sandbox.spec.versions import accepts, is_range, is_version, satisfies
from tests.unit.spec.folders import checked, driver, errors, loaded, warnings

SHA = "a" * 64


def steps(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return a driver with other install methods."""
    return driver(install=list(entries))


@pytest.mark.parametrize(
    ("entry", "params"),
    [
        ({"method": "npm", "package": "@a/b@1.2.3", "global": False}, {"package": "@a/b@1.2.3", "global": False}),
        ({"method": "pip", "package": "mcp-server-git==2.0.1"}, {"package": "mcp-server-git==2.0.1", "user": False}),
        ({"method": "pip", "package": "x[y]>=1,<2", "user": True}, {"package": "x[y]>=1,<2", "user": True}),
        ({"method": "apt", "package": "git=1:2.39-1"}, {"package": "git=1:2.39-1"}),
        (
            {"method": "download", "url": "https://x.example/a.tgz", "extract_bin": "./bin/a", "verify_sha256": SHA},
            {"url": "https://x.example/a.tgz", "extract_bin": "bin/a", "verify_sha256": SHA},
        ),
        ({"method": "vendored", "path": "./bin/a"}, {"path": "bin/a"}),
    ],
)
def test_methods_that_are_carried_out_load(tmp_path: Path, entry: dict[str, Any], params: dict[str, Any]) -> None:
    """npm, pip, apt, download with a digest and vendored become steps with their parameters."""
    (step,) = loaded(tmp_path, steps(entry)).install

    assert (entry["method"], params) == (step.method, dict(step.params))


@pytest.mark.parametrize("method", REFUSED_STEPS)
def test_methods_that_are_not_are_refused_with_the_alternative(tmp_path: Path, method: str) -> None:
    """The other methods of AIP-29 are refused, and the message says what to write instead."""
    _, problems = checked(tmp_path, steps({"method": method, "package": "x", "url": "https://x.example"}))

    assert [("SPEC-101", "install[0].method")] == errors(problems)
    assert any("`apt`" in p.mend or "verify_sha256" in p.mend for p in problems)


def test_a_method_with_an_alternative_in_the_list_is_left_out(tmp_path: Path) -> None:
    """`install` lists alternatives (AIP-29), so one that is carried out suffices."""
    spec, problems = checked(tmp_path, steps({"method": "brew", "package": "gh"}, {"method": "apt", "package": "gh"}))

    assert spec is not None
    assert ["apt"] == [step.method for step in spec.install]
    assert ("SPEC-101", "install[0].method") in warnings(problems)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"method": "download", "url": "https://x.example/a", "extract_bin": "a"},
            ("SPEC-041", "install[0].verify_sha256"),
        ),
        (
            {"method": "download", "url": "http://x.example/a", "extract_bin": "a", "verify_sha256": SHA},
            ("SPEC-075", "install[0].url"),
        ),
        (
            {"method": "download", "url": "https://x.example/a", "extract_bin": "../a", "verify_sha256": SHA},
            ("SPEC-103", "install[0].extract_bin"),
        ),
        (
            {"method": "download", "url": "https://x.example/a", "extract_bin": "a", "verify_sha256": "<sha>"},
            ("SPEC-045", "install[0].verify_sha256"),
        ),
        ({"method": "download", "url": "docker://x/y", "extract_bin": ""}, ("SPEC-075", "install[0].url")),
        ({"method": "vendored", "path": "/usr/bin/x"}, ("SPEC-103", "install[0].path")),
        ({"method": "vendored", "path": "../x"}, ("SPEC-103", "install[0].path")),
        ({"method": "vendored", "path": "~/x"}, ("SPEC-103", "install[0].path")),
        ({"method": "pip", "package": "x @ https://evil.example/x.whl"}, ("SPEC-073", "install[0].package")),
        ({"method": "pip", "package": "--index-url=https://evil.example"}, ("SPEC-073", "install[0].package")),
        ({"method": "pip", "package": "./x"}, ("SPEC-073", "install[0].package")),
        ({"method": "apt", "package": "git;id"}, ("SPEC-073", "install[0].package")),
        ({"method": "apt", "package": "-o=x"}, ("SPEC-073", "install[0].package")),
        ({"method": "npm", "package": "a b"}, ("SPEC-073", "install[0].package")),
        ({"method": "npm", "package": "a", "registry": "https://x.example"}, ("SPEC-042", "install[0].registry")),
        ({"method": "npm", "package": "a", "global": "yes"}, ("SPEC-043", "install[0].global")),
        ({"method": "snap", "package": "a"}, ("SPEC-044", "install[0].method")),
        ({"package": "a"}, ("SPEC-041", "install[0].method")),
        ({"method": {"npm": 1}, "package": "a"}, ("SPEC-044", "install[0].method")),
        ({"method": ["npm"], "package": "a"}, ("SPEC-044", "install[0].method")),
    ],
)
def test_a_wrong_step_is_refused(tmp_path: Path, entry: dict[str, Any], expected: tuple[str, str]) -> None:
    """Unverified downloads, paths that lead out, options and URLs in place of packages are refused."""
    assert expected in errors(checked(tmp_path, steps(entry))[1])


def test_an_experimental_method_is_left_out_aloud(tmp_path: Path) -> None:
    """An unknown method marked `experimental` is skipped with a warning, as AIP-29 says."""
    values = steps({"method": "nix", "package": "a", "experimental": True}, {"method": "npm", "package": "a"})
    spec, problems = checked(tmp_path, values)

    assert spec is not None
    assert ("SPEC-102", "install[0].method") in warnings(problems)


def test_the_image_download_of_the_upstream_examples_is_tolerated(tmp_path: Path) -> None:
    """`download docker://…` for the server's own image is left out (T0-6); for another image it is refused."""
    server = {"kind": "docker", "image": "server:1"}
    step = {"method": "download", "url": "docker://server:1", "extract_bin": ""}
    spec, problems = checked(tmp_path, driver(server=server, install=[step]))
    other = checked(tmp_path, driver(server={"kind": "docker", "image": "server:2"}, install=[step]))[1]

    assert spec is not None
    assert () == spec.install
    assert ("SPEC-100", "install[0]") in warnings(problems)
    assert errors(other)


# --- version_check ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cmd", "server", "argv", "of_server"),
    [
        ("npx @a/b --version", {"kind": "npm", "package": "@a/b"}, ("--version",), True),
        ("docker run --rm a/b:1 --version -x", {"kind": "docker", "image": "a/b:1"}, ("--version", "-x"), True),
        ("./bin/x 'a b'", {"kind": "binary", "path": "./bin/x"}, ("a b",), True),
        ("git --version", {"kind": "npm", "package": "@a/b"}, ("git", "--version"), False),
        ("npx other --version", {"kind": "npm", "package": "@a/b"}, ("npx", "other", "--version"), False),
    ],
)
def test_the_command_is_split_and_the_server_recognised(
    tmp_path: Path, cmd: str, server: dict[str, Any], argv: tuple[str, ...], of_server: bool
) -> None:
    """`npx` and `docker run` before the server's own name are taken off: neither exists in a sandbox."""
    check = {"cmd": cmd, "parse": r"(\S+)", "range": ">=0.5"}

    found = loaded(tmp_path, driver(server=server, version_check=check)).version_check

    assert found is not None
    assert (argv, of_server) == (found.argv, found.of_server)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cmd": "x --version; id"}, "SPEC-104"),
        ({"cmd": "x | cat"}, "SPEC-104"),
        ({"cmd": "x $(id)"}, "SPEC-104"),
        ({"cmd": "x `id`"}, "SPEC-104"),
        ({"cmd": "x > /tmp/y"}, "SPEC-104"),
        ({"cmd": "x 'open"}, "SPEC-104"),
        ({"cmd": "''"}, None),
        ({"cmd": " "}, "SPEC-104"),
        ({"parse": "v"}, "SPEC-105"),
        ({"parse": "("}, "SPEC-105"),
        ({"parse": r"(a)\1"}, "SPEC-105"),
        ({"parse": "(?=a)(b)"}, "SPEC-105"),
        ({"parse": "(a)" * 300}, "SPEC-105"),
        ({"parse": "((a{100}){100}){100}"}, "SPEC-105"),
        ({"range": "soon"}, "SPEC-048"),
        ({"timeout_ms": 5}, "SPEC-045"),
        ({"shell": True}, "SPEC-042"),
    ],
)
def test_a_version_check_that_needs_a_shell_or_backtracks_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str | None
) -> None:
    """Nothing of a version check reaches a shell, and its pattern runs in linear time."""
    check = {"cmd": "x --version", "parse": r"v(\S+)", "range": ">=0.5"} | changes

    found = [id_ for id_, _ in errors(checked(tmp_path, driver(version_check=check))[1])]

    assert ([expected] if expected else []) == found


@pytest.mark.parametrize(
    ("output", "parse", "wanted", "expected"),
    [
        ("x v0.6.3\n", r"v(\S+)", ">=0.5", ("0.6.3", True)),
        ("x v0.4.0", r"v(\S+)", ">=0.5", ("0.4.0", False)),
        ("gh version 2.40 (x)", r"gh version (\S+)", ">=2.40 <3", ("2.40", True)),
        ("v1.2.3", r"(\S+)", "^1", ("v1.2.3", True)),
        ("nothing", r"v(\d+)", "*", ("", False)),
        ("v1.2.3-rc.1", r"v(\S+)", ">=1", ("1.2.3-rc.1", False)),
        ("v; rm -rf /", r"v(.*)", "*", ("; rm -rf /", False)),
        ("x" * 100_000 + "v1.0.0", r"v(\S+)", "*", ("", False)),
        ("a" * 4000 + "!", r"((a+)+)$", "*", ("", False)),
    ],
)
def test_an_output_is_held_against_pattern_and_range(
    output: str, parse: str, wanted: str, expected: tuple[str, bool]
) -> None:
    """Group 1 is a version, padded with zeros, and lies in the npm range or not."""
    assert expected == accepts(VersionCheck(cmd="x", parse=parse, range=wanted), output)


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("1.2.3", "^1.0.0", True),
        ("2.0.0", "^1.0.0", False),
        ("0.2.0", "^0.1.0", False),
        ("1.2.3", "~1.2", True),
        ("1.2.3", "1.x", True),
        ("1.2.3", ">= 1.2.3", True),
        ("1.2.3", "1.0.0 - 2.0.0", True),
        ("1.2.3", "^2 || ^1", True),
        ("1.3.0-beta", "^1.0.0", False),
        ("1.3.0-beta", "^1.3.0-alpha", True),
        ("1.2.3", "latest", False),
        ("1.2", "*", False),
    ],
)
def test_ranges_mean_what_npm_says(version: str, wanted: str, expected: bool) -> None:
    """Caret, tilde, x, hyphen and or-ranges, and prereleases, follow npm."""
    assert expected == satisfies(version, wanted)


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "v1.2.3", "1.2.3 ", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "１.2.3"]
)
def test_other_texts_are_no_versions(text: str) -> None:
    """Only a full semantic version in ASCII is one."""
    assert not is_version(text)
    assert not is_range("１")
