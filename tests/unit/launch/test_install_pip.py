"""uv's output and the installed tree as hostile input: only hashes, only console scripts of modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images.tree import Tree
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.pip import Pip, entry_point, reduce_requirements, starter

HASH = "0" * 64


def site(**entry_points: str) -> Tree:
    """Return an installed tree with distributions and their entry points."""
    tree = Tree()
    for name, text in entry_points.items():
        tree.file(f"app/site-packages/{name}-1.0.dist-info/entry_points.txt", text.encode())
    return tree


def test_requirements_are_reduced() -> None:
    """Names, versions, markers and hashes are kept, in a stable order."""
    text = (
        f"# made by uv\nA-b[x]==1.0 ; python_version > '3' \\\n    --hash=sha256:{'b' * 64} \\\n"
        f"    --hash=sha256:{HASH}\nc==2 --hash=sha256:{HASH}\n"
    )

    expected = {
        "a-b": {"version": "1.0", "sha256": [HASH, "b" * 64], "marker": "python_version > '3'"},
        "c": {"version": "2", "sha256": [HASH]},
    }
    assert expected == reduce_requirements(text)


@pytest.mark.parametrize(
    "line",
    [
        "a==1",
        f"a>=1 --hash=sha256:{HASH}",
        f"a @ https://host/a.whl --hash=sha256:{HASH}",
        f"-e ./a --hash=sha256:{HASH}",
        f"./a --hash=sha256:{HASH}",
        "--index-url https://host/simple",
        "a==1 --hash=md5:00",
    ],
)
def test_requirement_without_hash_is_refused(line: str) -> None:
    """Anything but a version pinned by hash is refused, options of pip included."""
    with pytest.raises(InstallRefused) as caught:
        reduce_requirements(line)

    assert "INST-042" == caught.value.id


def test_empty_resolution_is_an_error() -> None:
    """Nothing resolved is never an empty lock."""
    with pytest.raises(PlatformError):
        reduce_requirements("# nothing\n")


@pytest.mark.parametrize(
    "wanted", ["a @ https://x", "./a", "-r x", "a;b", "git+https://x", "", "a\nb==1", "--index-url=x"]
)
def test_anything_but_the_index_is_refused(wanted: str) -> None:
    """Addresses, paths and options are no packages, and are refused before anything is started."""
    with pytest.raises(InstallRefused) as caught:
        Pip().resolve(Ask("pip", wanted, "x", (), {}), None, None)

    assert "INST-040" == caught.value.id


def test_console_script_is_found() -> None:
    """The script of any installed distribution, extras cut off."""
    tree = site(
        other="[gui_scripts]\nserver = no:no\n", server="[console_scripts]\nServer = pkg.mod:app.main [extra]\nx=y:z\n"
    )

    assert ("pkg.mod", "app.main") == entry_point(tree, "Server", "server==1")


@pytest.mark.parametrize(
    "text",
    [
        "[console_scripts]\nother = a:b\n",
        "[console_scripts]\nserver = a\n",
        "[console_scripts]\nserver = a:b; import os\n",
        "[console_scripts]\nserver = a b:c\n",
        "[console_scripts]\nserver = a:b()\n",
        "no ini",
        "\udcff",
    ],
)
def test_script_that_is_none_is_refused(text: str) -> None:
    """An entry point that is not a plain module and attribute never becomes code."""
    tree = Tree()
    tree.file("app/site-packages/s-1.dist-info/entry_points.txt", text.encode("utf-8", "surrogateescape"))

    with pytest.raises(InstallRefused) as caught:
        entry_point(tree, "server", "s==1")

    assert "INST-044" == caught.value.id


def test_starter_runs_the_script_isolated(tmp_path: Path) -> None:
    """The starter finds the package where it lies, sets the program's name and ends with its status."""
    package = tmp_path / "site-packages" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys\nclass app:\n    def main():\n        print(sys.argv)\n        return 7\n"
    )
    text = starter("pkg", "app.main", "it's").decode().replace("/app/site-packages", str(package.parent))
    (tmp_path / "start.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "start.py", "x"], capture_output=True, text=True, check=False
    )

    assert (7, "[\"it's\", 'x']\n") == (done.returncode, done.stdout)
