"""`mcp-sandbox pkg` without an engine: creating, signing, verifying, installing chains, going back, searching."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import main
from tests.mcpkg_kit import ECHO, echo_folder, folder


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a fresh folder, with settings of its own."""
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> int:
    """Run one command line in this process."""
    return main(["pkg", *map(str, words)])


def chain(version: str = "1.0.0", **changes: Any) -> str:
    """Make the package of a chain, which needs no engine to install, and return its file."""
    plain = {key: value for key, value in ECHO.items() if key not in {"endpoint", "tests"}}
    steps = [{"step": "a", "tool": "a.b", "inputMapping": {"x": "$.input.message"}, "outputKey": "one"}]
    manifest = {**plain, "toolId": "demo.text.chain", "version": version, "chain": steps, **changes}
    source = folder(Path(f"src-{version}-{len(changes)}"), {"manifest.json": manifest})
    assert 0 == run("create", source, "--out", f"{source}.mcpkg")
    return f"{source}.mcpkg"


def trusted(key: str, publisher: str = "acme") -> Path:
    """Write a trust store."""
    place = Path("publishers.toml")
    place.write_text(f'[[publisher]]\nid = "{publisher}"\nkey = "{key}"\n')
    return place


def signed(file: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Sign a package with a fresh key and return the public key."""
    key = Path(f"{file}.pem")
    capsys.readouterr()
    assert 0 == run("sign", "--new-key", key)
    public = capsys.readouterr().out.strip()
    assert 0 == run("sign", file, "--key", key, "--publisher", "acme")
    assert 0o600 == key.stat().st_mode & 0o777
    return public


def test_a_package_goes_from_folder_to_verified_file(capsys: pytest.CaptureFixture[str]) -> None:
    """create, validate, inspect, sign, verify: by name, with the right exit status at each step."""
    assert 0 == run("create", echo_folder(Path("echo")))
    file = "demo.echo-0.1.0.mcpkg"
    assert 0 == run("validate", file)
    assert 3 == run("verify", file, "--trust", "absent.toml")
    public = signed(file, capsys)
    assert 3 == run("verify", file, "--trust", "absent.toml")
    assert 0 == run("verify", file, "--trust", trusted(public))
    capsys.readouterr()
    assert 0 == run("inspect", file, "--json")
    shown = json.loads(capsys.readouterr().out)

    assert ("demo.echo", "0.1", ["https://example.com:443"]) == (shown["toolId"], shown["format"], shown["egress"])
    assert {"manifest.json", "meta/signature.sig", "tests/echo.test.json"} == set(shown["files"])


def test_a_changed_package_no_longer_verifies(capsys: pytest.CaptureFixture[str]) -> None:
    """Adding a file to a signed archive is found, also where signatures are only warned of."""
    file = chain()
    store = trusted(signed(file, capsys))
    with zipfile.ZipFile(file, "a") as out:
        out.writestr("evil.py", "print()")

    assert 3 == run("verify", file, "--trust", store)
    assert "PKG-021" in capsys.readouterr().err
    assert 3 == run("install", file, "--trust", store, "--audit-dir", "audit")
    assert not Path(".mcp/tools/demo.text.chain").exists()


def test_what_the_operator_demands_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    """`require` refuses unsigned packages, `warn` installs them and says so, a trusted one passes."""
    file = chain()
    words = ("--trust", "publishers.toml", "--audit-dir", "audit")
    assert 3 == run("install", file, "--signatures", "require", *words)
    assert "PKG-020" in capsys.readouterr().err
    assert 0 == run("install", file, *words)
    assert "not signed" in capsys.readouterr().err
    newer = chain("2.0.0")
    trusted(signed(newer, capsys))
    assert 0 == run("install", newer, "--signatures", "require", *words)
    assert 3 == run("install", chain("3.0.0"), "--signatures", "off", *words)
    assert "PKG-026" in capsys.readouterr().err


def test_the_trust_store_says_what_is_demanded_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """`signatures = "require"` holds without a flag; an explicit flag is this person's own decision."""
    file = chain()
    words = ("--trust", "publishers.toml", "--audit-dir", "audit")
    Path("publishers.toml").write_text('signatures = "require"\n')
    assert 3 == run("install", file, *words)
    assert "PKG-020" in capsys.readouterr().err
    Path("publishers.toml").write_text('signatures = "maybe"\n')
    assert 2 == run("install", file, *words)
    assert "PKG-023" in capsys.readouterr().err
    Path("publishers.toml").write_text('signatures = "require"\n')
    assert 0 == run("install", file, "--signatures", "warn", *words)


def test_an_install_is_recorded_before_and_after(tmp_path: Path) -> None:
    """The trail has intent and outcome of installing, going back and removing, and of a refusal."""
    assert 0 == run("install", chain(), "--audit-dir", "audit")
    assert 0 == run("install", chain("2.0.0"), "--audit-dir", "audit")
    assert 3 == run("install", chain("2.0.0", description="Other."), "--audit-dir", "audit")
    assert 0 == run("rollback", "demo.text.chain", "--audit-dir", "audit")
    assert 2 == run("rollback", "demo.text.chain", "--to", "9.9.9", "--audit-dir", "audit")
    assert 0 == run("uninstall", "demo.text.chain", "--audit-dir", "audit")
    found = [
        (json.loads(line)["name"], json.loads(line)["phase"], json.loads(line)["attrs"].get("status"))
        for path in sorted((tmp_path / "audit" / "segments").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        for line in path.read_text().splitlines()
        if json.loads(line).get("name", "").startswith("pkg.")
    ]

    assert {"ok", "refused"} == {status for name, phase, status in found if (name, phase) == ("pkg.install", "outcome")}
    for name in ("pkg.install", "pkg.rollback", "pkg.uninstall"):
        phases = [phase for one, phase, _ in found if one == name]
        assert phases.count("intent") == phases.count("outcome") > 0


def test_chains_are_listed_searched_and_exported(capsys: pytest.CaptureFixture[str]) -> None:
    """An installed chain is in every list like another tool."""
    assert 0 == run("install", chain(), "--audit-dir", "audit")
    for words in (
        ("list",),
        ("search", "echo"),
        ("rank",),
        ("export", "--format", "mcp"),
        ("export", "--format", "context"),
    ):
        capsys.readouterr()
        assert 0 == run(*words)
        assert "demo.text.chain" in capsys.readouterr().out, words
    capsys.readouterr()
    assert 0 == run("search", "nothing-like-it")
    assert "" == capsys.readouterr().out
    assert 2 == run("export", "demo.absent")


@pytest.mark.parametrize(
    ("words", "status", "wanted"),
    [
        (("sign", "x.mcpkg"), 2, "CLI-170"),
        (("install", "absent.mcpkg"), 2, "PKG-009"),
        (("call", "demo.absent"), 2, "PKG-040"),
        (("call", "demo.absent", "--args", "[]"), 2, "CLI-012"),
        (("test", "../../x"), 2, "PKG-040"),
        (("uninstall", "demo.absent"), 2, "PKG-040"),
        (("validate", "."), 1, "PKG-008"),
        (("nonsense",), 2, "CLI-002"),
        ((), 2, "CLI-002"),
    ],
    ids=str,
)
def test_wrong_uses_are_told_in_one_line(
    words: tuple[str, ...], status: int, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The right exit status, one line with the id, no traceback."""
    more = ("--audit-dir", "audit") if words[:1] in {("call",), ("test",), ("uninstall",), ("install",)} else ()
    assert status == run(*words, *more)
    assert [True] == [wanted in line for line in capsys.readouterr().err.strip().splitlines()]
    assert not Path(".mcp/tools").exists() or not list(Path(".mcp/tools").iterdir())


def test_a_grant_over_the_package_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be mounted where the package itself lies."""
    for place in ("/mcpkg", "/mcpkg/package"):
        assert 2 == run("install", chain(), "--write", f"{place}=.", "--audit-dir", "audit")
        assert "CLI-171" in capsys.readouterr().err


def test_a_chain_step_that_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Calling a chain says which tool is missing; its step is on record as failed."""
    assert 0 == run("install", chain(), "--audit-dir", "audit")
    assert 2 == run("call", "demo.text.chain", "--args", '{"message": "x"}', "--audit-dir", "audit")
    assert "PKG-040: 'a.b'" in capsys.readouterr().err
