"""Installing: atomic at every step, versions kept, nothing half there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox.errors import InstallRefused, PlatformError, UsageError
from sandbox.mcpkg import bounds
from sandbox.mcpkg import store as module
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.install import Order, guard_publisher, install
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.select import Surroundings
from sandbox.mcpkg.signatures import FILE, Signed, key_text, sign, verify
from sandbox.mcpkg.store import Store
from sandbox.mcpkg.trust import Publisher, TrustStore
from sandbox.spec.load import load_driver
from tests.mcpkg_kit import echo_folder

HERE = Surroundings("linux-x64", {})
EFFECTS = ("open", "os.", "shutil.", "fcntl.")
"""Audit events of the interpreter before which a process is killed."""


def put(store: Store, source: Path, signed: Signed | None = None, attempt: Any = None) -> str:
    """Install a folder and return the version that is current then."""
    contents = FolderContents(source)
    manifest, _, _ = read_package(contents)
    verdict = signed or Signed("unsigned")
    with store.changing():
        guard_publisher(store, manifest, verdict)
        order = Order(contents, manifest, verdict, manifest.implementations[0], HERE)
        return install(store, order, attempt).version


def killed_at(number: int, store: Store, source: Path) -> bool:
    """Install in a process that is killed right before its n-th effect; return whether it got that far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, _arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event.startswith(EFFECTS):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            put(store, source)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.claim("P-PKG-03")
@pytest.mark.timeout(240)
def test_an_install_killed_before_any_effect_leaves_the_old_version_working(tmp_path: Path) -> None:
    """SIGKILL before each file operation in turn: the tool is the old one, whole, or at last the new one."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))
    newer = echo_folder(tmp_path / "two", version="0.2.0")
    seen = []
    for number in range(1, 2000):
        killed = killed_at(number, store, newer)
        current = store.current("demo.echo")
        current.read()
        assert current.version == load_driver(store.link("demo.echo")).version
        seen.append(current.version)
        if not killed:
            break
    else:
        pytest.fail("the install never ended by itself")

    assert sorted(seen) == seen
    assert "0.1.0" == seen[20]
    assert "0.2.0" == seen[-1]
    with store.changing():
        assert [] == list((store.root / "staging").iterdir())
    assert ["0.1.0", "0.2.0"] == [one.version for one in store.versions("demo.echo")]


@pytest.mark.claim("P-PKG-03")
@pytest.mark.timeout(240)
def test_a_first_install_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Without an old version a killed install leaves no tool, and the next change sweeps what it left."""
    store = Store(tmp_path / "store")
    source = echo_folder(tmp_path / "one")
    for number in range(1, 2000, 7):
        if not killed_at(number, store, source) or store.tools():
            break
        with store.changing():
            assert [] == list((store.root / "staging").iterdir())
            assert [] == list((store.root / "versions").iterdir())
    assert "0.1.0" == store.current("demo.echo").version


def test_a_refused_attempt_changes_nothing(tmp_path: Path) -> None:
    """When the tests of a new version fail, the old one is in use and nothing of the new one is kept."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))

    def refuse(staged: Path) -> None:
        assert "0.2.0" == load_driver(staged).version
        raise InstallRefused("PKG-046", "it fails", "")

    with pytest.raises(InstallRefused, match="PKG-046"):
        put(store, echo_folder(tmp_path / "two", version="0.2.0"), attempt=refuse)

    assert ["0.1.0"] == [one.version for one in store.versions("demo.echo")]
    assert "0.1.0" == store.current("demo.echo").version


def test_versions_are_kept_and_gone_back_to(tmp_path: Path) -> None:
    """The former version is there and becomes current again without its package."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))
    put(store, echo_folder(tmp_path / "two", version="0.2.0"))
    first = store.versions("demo.echo")[0]
    with store.changing():
        store.use(first.folder, "demo.echo")

    assert "0.1.0" == store.current("demo.echo").version
    assert 2 == len(store.versions("demo.echo"))
    assert [] == list((store.root / "staging").iterdir())


def test_a_version_never_changes(tmp_path: Path) -> None:
    """The same version with other contents is refused; with the same it is installed again."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))

    assert "0.1.0" == put(store, echo_folder(tmp_path / "again"))
    with pytest.raises(InstallRefused, match="PKG-044"):
        put(store, echo_folder(tmp_path / "other", description="Something else."))


@pytest.mark.claim("P-PKG-04")
def test_a_changed_file_is_found_before_it_is_used(tmp_path: Path) -> None:
    """A package whose files were changed, added or removed after the install is neither read nor exported."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))
    package = store.current("demo.echo").folder / "inside" / "package"
    untouched = store.current("demo.echo").read()[0].description
    for change in ("change", "add", "remove"):
        spare = tmp_path / f"spare-{change}"
        shutil.copytree(package, spare)
        if change == "change":
            (package / "tests" / "echo.test.json").write_text(json.dumps({"name": "x", "input": {"message": "x"}}))
        elif change == "add":
            (package / "more.txt").write_text("more")
        else:
            (package / "tests" / "echo.test.json").unlink()
        with pytest.raises(InstallRefused, match="PKG-042"):
            store.current("demo.echo").read()
        shutil.rmtree(package)
        shutil.copytree(spare, package)

    assert untouched == store.current("demo.echo").read()[0].description


def test_installing_again_mends_what_was_changed(tmp_path: Path) -> None:
    """A tampered driver or program is replaced by the same package, whole; the changed folder is gone."""
    store = Store(tmp_path / "store")
    source = echo_folder(tmp_path / "one")
    put(store, source)
    for name in ("DRIVER.md", "serve_mcp.py", "inside/package/manifest.json"):
        changed = store.current("demo.echo").folder
        good = (changed / name).read_bytes()
        (changed / name).write_bytes(good + b"\n")
        put(store, source)
        assert good == (store.current("demo.echo").folder / name).read_bytes()
        assert not changed.exists()
    assert 1 == len(store.versions("demo.echo"))


def test_two_installers_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that another process is changing is refused after a bounded wait."""
    monkeypatch.setattr(module, "MAX_LOCK_SECONDS", 0.1)
    store = Store(tmp_path / "store")
    with store.changing(), pytest.raises(PlatformError, match="PKG-043"), Store(tmp_path / "store").changing():
        pass
    assert bounds.MAX_LOCK_SECONDS > 1


def test_uninstall_removes_everything_of_one_tool(tmp_path: Path) -> None:
    """The tool, its versions and its history are gone; another tool is untouched."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))
    put(store, echo_folder(tmp_path / "other", toolId="demo.other"))
    with store.changing():
        store.remove("demo.echo")

    assert ("demo.other",) == store.tools()
    assert ["demo.other"] == [path.name for path in (store.root / "versions").iterdir()]
    with pytest.raises(UsageError, match="PKG-040"):
        store.current("demo.echo")
    with pytest.raises(UsageError, match="PKG-040"):
        store.current("../../etc")


@pytest.mark.claim("P-PKG-05")
def test_a_trusted_publishers_tool_is_not_taken_over(tmp_path: Path) -> None:
    """An unsigned package, or one of somebody else, does not replace a tool of a trusted publisher."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"), Signed("trusted", "acme", "key"))
    newer = echo_folder(tmp_path / "two", version="0.2.0")
    for verdict in (Signed("unsigned"), Signed("unchecked"), Signed("unknown", "acme"), Signed("trusted", "evil")):
        with pytest.raises(InstallRefused, match="PKG-026"):
            put(store, newer, verdict)

    assert "0.2.0" == put(store, newer, Signed("trusted", "acme", "key"))


@pytest.mark.claim("P-PKG-06")
def test_what_was_verified_is_what_is_installed(tmp_path: Path) -> None:
    """Attack: a file of a package folder is changed after its signature was verified, and before it is installed."""
    key = Ed25519PrivateKey.generate()
    trust = TrustStore((Publisher("acme", key_text(key)),))
    source = echo_folder(tmp_path / "echo")
    (source / "data.txt").write_text("as signed")
    (source / "meta").mkdir()
    before = FolderContents(source)
    (source / FILE).write_bytes(sign(before, read_package(before)[0], key, "acme"))
    store = Store(tmp_path / "store")
    contents = FolderContents(source)
    manifest, _, _ = read_package(contents)
    signed = verify(contents, manifest, trust)
    (source / "data.txt").write_text("as false!")
    order = Order(contents, manifest, signed, manifest.implementations[0], HERE)
    with store.changing(), pytest.raises(InstallRefused, match="PKG-007"):
        install(store, order)
    nothing = store.tools()
    (source / "data.txt").write_text("as signed")
    with store.changing():
        installed = install(store, order)

    assert ("trusted", ()) == (signed.state, nothing)
    assert b"as signed" == installed.contents().read("data.txt")
