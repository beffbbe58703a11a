"""What starts an installed package holds it against what was installed."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from sandbox.cli import options
from sandbox.cli.wiring import review
from sandbox.errors import InstallRefused, PlatformError, SandboxError
from sandbox.mcpkg.intact import check_intact
from sandbox.mcpkg.store import Store
from tests.mcpkg_kit import echo_folder
from tests.unit.mcpkg.test_store import put


def installed(tmp_path: Path) -> tuple[Store, Path]:
    """Return a store with the echo package and the folder that its link names."""
    store = Store(tmp_path / "store")
    put(store, echo_folder(tmp_path / "one"))
    return store, store.current("demo.echo").folder


def widen(folder: Path) -> None:
    """Let the driver reach one host more."""
    text = (folder / "DRIVER.md").read_text()
    (folder / "DRIVER.md").write_text(text.replace("https://example.com:443", "https://evil.example:443"))


CHANGES = {
    "driver": widen,
    "program": lambda folder: next(folder.glob("*.py")).write_text("print('mine')"),
    "contract": lambda folder: (folder / "tools" / "demo.echo" / "TOOL.md").unlink(),
    "package": lambda folder: (folder / "inside" / "package" / "manifest.json").write_text("{}"),
    "more": lambda folder: (folder / "inside" / "package" / "more.py").write_text(""),
    "link": lambda folder: (folder / "inside" / "package" / "out").symlink_to("/etc"),
    "swap": lambda folder: swap(folder / "inside" / "package" / "manifest.json"),
}


def swap(path: Path) -> None:
    """Put a link to the same bytes in a file's place: who follows it reads what may change later."""
    path.rename(path.with_name("kept"))
    shutil.copy(path.with_name("kept"), path.parents[3] / "elsewhere")
    path.with_name("kept").unlink()
    path.symlink_to(path.parents[3] / "elsewhere")


@pytest.mark.claim("P-PKG-04")
@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_changed_package_is_not_started(tmp_path: Path, change: str) -> None:
    """Whatever was changed since the install, through the link or the folder, is found; before, nothing was."""
    store, folder = installed(tmp_path)
    check_intact(store.link("demo.echo"))
    CHANGES[change](folder)

    for named in (store.link("demo.echo"), folder, folder / "DRIVER.md"):
        with pytest.raises(InstallRefused, match="PKG-042"):
            check_intact(named)


def test_what_a_person_adds_is_theirs(tmp_path: Path) -> None:
    """Approved pins and locks beside the driver change nothing of the package; folders that are no packages pass."""
    _, folder = installed(tmp_path)
    (folder / "driver.lock").write_text("{}")

    assert (None, None) == (check_intact(folder), check_intact(tmp_path))


def test_unreadable_facts_of_an_install_are_no_permission(tmp_path: Path) -> None:
    """A package whose record of the install is damaged does not start."""
    _, folder = installed(tmp_path)
    (folder / "package-info.json").write_text('{"files": {}}')

    with pytest.raises(PlatformError, match="PKG-041"):
        check_intact(folder)


@pytest.mark.claim("P-PKG-04")
def test_commands_that_take_a_driver_ask(tmp_path: Path) -> None:
    """The review that `plan`, `run` and `serve` share refuses a changed package before it reads it."""
    store, folder = installed(tmp_path)
    widen(folder)
    arguments = argparse.Namespace(driver=options.path(str(store.link("demo.echo"))), policy=None, root=[], memory=None)

    with pytest.raises(SandboxError, match="PKG-042"):
        review(arguments, "")
