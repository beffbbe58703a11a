"""What a hostile driver folder does with names, links and special files."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from sandbox.limits import MAX_MANIFEST_BYTES
from sandbox.spec.files import Budget, Tree, Unreadable
from sandbox.spec.load import check_folder
from tests.unit.spec.folders import TOOL, bound, checked, errors, front, loaded, write


def refused(root: Path) -> list[tuple[str, str]]:
    """Return the errors of a folder that must be refused."""
    spec, problems = check_folder(root)
    assert spec is None
    return errors(problems)


def in_time(path: Path, seconds: float = 10) -> list[tuple[str, str]]:
    """Check a folder in a thread, so that a read that hangs fails the test instead of stopping it."""
    found: list[list[tuple[str, str]]] = []
    worker = threading.Thread(target=lambda: found.append(refused(path)), daemon=True)
    worker.start()
    worker.join(seconds)
    assert found, "the check hangs"
    return found[0]


@pytest.mark.claim("P-SPEC-01")
def test_a_tool_that_is_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    """A symbolic link as TOOL.md is refused, and nothing of its target is repeated."""
    folder = write(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("---\nname: LEAKED-VALUE\n---\n")
    (folder / "tools/fs-read/TOOL.md").unlink()
    (folder / "tools/fs-read/TOOL.md").symlink_to(secret)

    spec, problems = check_folder(folder)

    assert spec is None
    assert [("SPEC-011", "implements[0].tool")] == errors(problems)
    assert "LEAKED" not in "\n".join(map(str, problems))


@pytest.mark.claim("P-SPEC-01")
def test_a_directory_that_is_a_link_is_not_passed(tmp_path: Path) -> None:
    """A symbolic link on the way to TOOL.md is refused too."""
    folder = write(tmp_path)
    (folder / "tools").rename(tmp_path / "elsewhere")
    (folder / "tools").symlink_to(tmp_path / "elsewhere")

    assert [("SPEC-011", "implements[0].tool")] == refused(folder)


@pytest.mark.claim("P-SPEC-01")
@pytest.mark.parametrize(
    "path",
    ["../outside/TOOL.md", "./tools/../../outside/TOOL.md", "/etc/TOOL.md", "tools//fs-read/TOOL.md", "a\\b/TOOL.md"],
)
def test_a_tool_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    """A path with `..`, an absolute path and other paths that are not plain are refused as text."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/TOOL.md").write_text(front(TOOL))

    assert [("SPEC-011", "implements[0].tool")] == errors(checked(tmp_path, bound(tool=path))[1])


def test_the_same_path_inside_is_read(tmp_path: Path) -> None:
    """The positive control: a plain path to the same contract loads."""
    assert "fs-read" == loaded(tmp_path).bindings[0].contract.id


@pytest.mark.claim("P-SPEC-02")
@pytest.mark.parametrize("kind", ["fifo", "socket", "directory", "device"])
@pytest.mark.parametrize("name", ["tools/fs-read/TOOL.md", "DRIVER.md"])
def test_a_special_file_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    """A FIFO, socket, directory or device in place of a manifest is refused at once."""
    folder = write(tmp_path)
    target = folder / name
    target.unlink()
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "socket":
        monkeypatch.chdir(target.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(target.name)
    elif kind == "directory":
        target.mkdir()
    else:
        try:
            os.mknod(target, 0o600 | 0o020000, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("making a device node needs privileges")

    assert ["SPEC-011"] == [found for found, _ in in_time(folder)]


def test_the_driver_itself_may_not_be_a_link(tmp_path: Path) -> None:
    """DRIVER.md as a link is refused: it would not be clear which folder was reviewed."""
    folder = write(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "DRIVER.md").symlink_to(folder / "DRIVER.md")

    assert ["SPEC-011"] == [found for found, _ in refused(other / "DRIVER.md")]
    assert ["SPEC-011"] == [found for found, _ in refused(other)]


def test_the_way_to_the_folder_may_be_a_link(tmp_path: Path) -> None:
    """The user's own path may pass links; only below the folder nothing is followed."""
    folder = write(tmp_path)
    (tmp_path / "link").symlink_to(folder)

    spec, problems = check_folder(tmp_path / "link" / "DRIVER.md")

    assert () == tuple(errors(problems))
    assert spec is not None
    assert str(folder) == spec.folder


def test_a_manifest_above_the_bound_is_refused(tmp_path: Path) -> None:
    """A manifest of one byte above the bound is refused, one of the bound is read."""
    folder = write(tmp_path)
    file = folder / "DRIVER.md"
    text = file.read_bytes()
    file.write_bytes(text + b"x" * (MAX_MANIFEST_BYTES - len(text)))
    at_bound = check_folder(folder)[0]
    with file.open("ab") as more:
        more.write(b"x")

    assert at_bound is not None
    assert [("SPEC-012", "")] == refused(folder)


def test_a_megabyte_of_manifest_is_not_read(tmp_path: Path) -> None:
    """A large TOOL.md is refused after reading no more than the bound."""
    folder = write(tmp_path)
    (folder / "tools/fs-read/TOOL.md").write_bytes(b"---\na: " + b"x" * 1024 * 1024 + b"\n---\n")

    assert [("SPEC-012", "implements[0].tool")] == refused(folder)


def test_a_sparse_file_costs_nothing(tmp_path: Path) -> None:
    """A file that claims a terabyte is refused like any other that is too large."""
    folder = write(tmp_path)
    with (folder / "DRIVER.md").open("ab") as file:
        os.truncate(file.fileno(), 1024**4)

    assert [("SPEC-012", "")] == in_time(folder)


def test_all_manifests_together_are_bounded(tmp_path: Path) -> None:
    """The budget of one load counts each file once and refuses what is beyond it."""
    (tmp_path / "a").write_bytes(b"x" * 60)
    (tmp_path / "b").write_bytes(b"x" * 60)
    budget = Budget(files=5, size=100)

    with Tree(tmp_path, "t", "driver", budget) as tree:
        tree.read("a")
        tree.read("a")
        with pytest.raises(Unreadable) as caught:
            tree.read("b")

    assert "SPEC-012" == caught.value.id


def test_the_digest_is_that_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    """Two copies of a folder have one digest; any byte of any manifest changes it."""
    one = loaded(tmp_path / "one")
    two = loaded(tmp_path / "two")
    changed = loaded(tmp_path / "three", contract=front(TOOL, body="more"))

    assert one.digest == two.digest
    assert one.digest != changed.digest


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A path that cannot be opened is reported with the folder, not with a traceback."""
    assert [("SPEC-010", "")] == refused(tmp_path / "absent" / "DRIVER.md")
    assert [("SPEC-010", "")] == refused(tmp_path / "absent.md" / "x")


@pytest.mark.parametrize("name", ["driver.md", "README.md", "DRIVER.txt"])
def test_a_manifest_has_its_name(tmp_path: Path, name: str) -> None:
    """Another file name than DRIVER.md and MCP.md is refused."""
    folder = write(tmp_path)
    (folder / "DRIVER.md").rename(folder / name)

    assert [("SPEC-015", "")] == refused(folder / name)


def test_mcp_md_is_a_name_of_the_manifest(tmp_path: Path) -> None:
    """MCP.md is read like DRIVER.md, by its path and by its folder; both together are refused."""
    folder = write(tmp_path)
    text = (folder / "DRIVER.md").read_text()
    (folder / "DRIVER.md").rename(folder / "MCP.md")
    by_path, by_folder = check_folder(folder / "MCP.md")[0], check_folder(folder)[0]
    (folder / "DRIVER.md").write_text(text)

    assert by_path is not None
    assert by_folder is not None
    assert "SPEC-015" == refused(folder)[0][0]


def test_a_contract_of_the_workspace_is_found(tmp_path: Path) -> None:
    """A driver below `.drivers` finds contracts of its workspace by path and by id (AIP-14, AIP-30)."""
    folder = write(tmp_path / ".drivers", bound(tool="fs-read"))
    (tmp_path / ".tools/files").mkdir(parents=True)
    (folder / "tools/fs-read").rename(tmp_path / ".tools/files/fs-read")
    by_id, _ = check_folder(folder)
    (folder / "DRIVER.md").write_text(front(bound(tool=".tools/files/fs-read/TOOL.md")))
    by_path, _ = check_folder(folder)

    assert by_id is not None
    assert by_path is not None
    assert by_id.bindings[0].contract == by_path.bindings[0].contract


def test_two_contracts_under_one_path_are_refused(tmp_path: Path) -> None:
    """If the folder and the workspace both answer to a path, nobody can say which was reviewed."""
    folder = write(tmp_path / ".drivers")
    (tmp_path / "tools/fs-read").mkdir(parents=True)
    (tmp_path / "tools/fs-read/TOOL.md").write_text(front(TOOL))

    assert [("SPEC-014", "implements[0].tool")] == refused(folder)


@pytest.mark.claim("P-SPEC-03")
def test_contracts_planted_above_in_a_shared_directory_are_not_taken(tmp_path: Path) -> None:
    """A directory that everybody may write to is no workspace, so nobody else's contract is bound."""
    folder = write(tmp_path / "shared", bound(tool=".tools/fs-read/TOOL.md"))
    (tmp_path / "shared/.tools").mkdir()
    (folder / "tools/fs-read").rename(tmp_path / "shared/.tools/fs-read")
    own = check_folder(folder)[0]
    (tmp_path / "shared").chmod(0o1777)

    assert own is not None
    assert [("SPEC-010", "implements[0].tool")] == refused(folder)


def test_a_contract_id_without_workspace_is_told_apart_from_a_path(tmp_path: Path) -> None:
    """A registry id that no `.tools` folder holds is refused, for there is no registry."""
    assert [("SPEC-010", "implements[0].tool")] == errors(checked(tmp_path, bound(tool="image.create"))[1])
    assert [("SPEC-011", "implements[0].tool")] == errors(checked(tmp_path, bound(tool="./tools/fs-read"))[1])


def test_a_name_that_the_system_refuses_is_told(tmp_path: Path) -> None:
    """A file name that no file system takes is reported with the system's words."""
    problems = checked(tmp_path, bound(tool=f"{'a' * 300}/TOOL.md"))[1]

    assert [("SPEC-013", "implements[0].tool")] == errors(problems)


def test_a_byte_order_mark_is_a_warning(tmp_path: Path) -> None:
    """A manifest saved by an editor that writes a mark loads, and the mark is told."""
    folder = write(tmp_path)
    file = folder / "DRIVER.md"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())

    spec, problems = check_folder(folder)

    assert spec is not None
    assert ["SPEC-023"] == [problem.id for problem in problems]
