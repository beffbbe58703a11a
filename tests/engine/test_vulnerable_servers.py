"""Real servers with published holes: directly they leak a planted canary, behind mcp-sandbox never.

`@modelcontextprotocol/server-filesystem@2025.3.28` (CVE-2025-53110: `/root_evil` passes for `/root`; CVE-2025-53109: a
link to such a place is followed) and `mcp-server-git==2025.7.1` (CVE-2025-68143: a repository is made anywhere;
CVE-2025-68144: a reference is taken for an option and writes a file; CVE-2025-68145: `--repository` is not enforced).

The contracts of the first half check nothing, on purpose: the attack reaches the server, and what holds is the mount.
The second half has the path checked as well: then the server is not even asked.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drivers import COMMAND, give
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]

CANARY = "canary-7f3a1c-must-not-leave"
DRIVERS = ROOT / "tests" / "vulnerable"
Ask = Callable[[str, dict[str, Any]], str]


@dataclass(frozen=True)
class Direct:
    """A server run directly on the host, as an MCP client runs it."""

    argv: list[str]

    def __call__(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call one tool and return everything that the server says."""
        version = "2024-11-05"
        opening = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        messages = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
        ]
        with subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            run.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            run.stdin.flush()
            said = ""
            for line in run.stdout:
                said += line.decode()
                if json.loads(line).get("id") == 2:
                    break
            run.kill()
        return said


@dataclass(frozen=True)
class Behind:
    """The same server behind ``mcp-sandbox call``."""

    driver: Path
    root: str
    scratch: Path

    def __call__(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call one tool and return everything that reaches the caller, stderr included."""
        argv = [*COMMAND, "call", str(self.driver), tool, "--args", json.dumps(arguments), "--root", self.root]
        argv += ["--audit-dir", str(self.scratch / "audit"), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in (0, 4), done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def files_on_host(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Install the filesystem server on the host; return how it is started, without its folder."""
    place = tmp_path_factory.mktemp("npm")
    package = "@modelcontextprotocol/server-filesystem@2025.3.28"
    argv = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(place),
        package,
    ]
    subprocess.run(argv, check=True, capture_output=True, timeout=180)
    return ["node", str(place / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js")]


@pytest.fixture(scope="module")
def git_on_host(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Install the git server in an environment of its own; return how it is started."""
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "mcp-server-git==2025.7.1", "mcp<2"]
    subprocess.run(install, check=True, capture_output=True, timeout=240)
    return [str(place / "bin" / "mcp-server-git")]


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Plant canaries: beside the root under a name that begins like it, and behind a link within the root."""
    root, evil = tmp_path / "root", tmp_path / "root_evil"
    root.mkdir()
    evil.mkdir()
    (root / "inside.txt").write_text("inside\n")
    (evil / "canary.txt").write_text(CANARY)
    (root / "link.txt").symlink_to(evil / "canary.txt")
    for folder in (root, evil):
        give(folder)
    return tmp_path


def filesystem(places: Path, contract: str) -> Behind:
    """Return the filesystem server behind mcp-sandbox, bound with one of its two contracts."""
    driver = places / "driver"
    shutil.copytree(DRIVERS / "filesystem", driver, dirs_exist_ok=True)
    text = (driver / "DRIVER.md").read_text().replace("raw-read", contract)
    (driver / "DRIVER.md").write_text(text)
    return Behind(driver, f"/workspace={places / 'root'}", places)


@pytest.mark.claim("P-FS-01")
@pytest.mark.parametrize("contract", ["raw-read", "safe-read"])
@pytest.mark.parametrize("attack", ["a sibling whose name begins alike", "a link to it"])
def test_a_filesystem_server_that_compares_strings(
    attack: str, contract: str, places: Path, files_on_host: list[str]
) -> None:
    """Directly the canary is read; behind us it is not, path checked or not; a file inside is read."""
    root = places / "root"
    targets = [root / "link.txt"] if attack.startswith("a link") else [places / "root_evil" / "canary.txt"]
    direct = Direct([*files_on_host, str(root)])
    behind = filesystem(places, contract)
    inside = ["/workspace/link.txt"] if attack.startswith("a link") else ["/workspace_evil/canary.txt"]

    leaked = [CANARY in direct("read_file", {"path": str(target)}) for target in targets]
    kept = [behind(contract, {"path": path}) for path in (*inside, *map(str, targets))]

    assert [True] == leaked
    assert [] == [said for said in kept if CANARY in said]
    assert [] == [said for said in kept if '"isError": true' not in said]
    assert "inside" in behind(contract, {"path": "/workspace/inside.txt"})


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """Make the granted repository and another one, whose history has the canary."""
    for name, message in (("repo", "granted"), ("other", CANARY)):
        folder = tmp_path / name
        git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        (folder / "a.txt").write_text("a\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", message], check=True)
        (folder / "a.txt").write_text("b\n")
    return tmp_path


def git_server(scratch: Path) -> Behind:
    """Return the git server behind mcp-sandbox."""
    give(scratch / "repo")
    return Behind(DRIVERS / "git", f"/repo={scratch / 'repo'}", scratch)


def trust(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    """Let host git read repositories of another user, as on a machine where they are the person's own."""
    config = scratch / "gitconfig"
    config.write_text("[safe]\n\tdirectory = *\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))


@pytest.mark.claim("P-FS-01")
def test_a_git_server_that_makes_repositories_anywhere(repositories: Path, git_on_host: list[str]) -> None:
    """Directly a repository appears outside of the granted one; behind us nothing appears on the host."""
    direct = Direct([*git_on_host, "--repository", str(repositories / "repo")])

    direct("git_init", {"repo_path": str(repositories / "made-directly")})
    git_server(repositories)("raw-init", {"repo_path": str(repositories / "made-behind")})

    assert (repositories / "made-directly" / ".git").is_dir()
    assert not (repositories / "made-behind").exists()


@pytest.mark.claim("P-FS-01")
def test_a_git_server_that_takes_references_for_options(
    repositories: Path, git_on_host: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly a file outside is written through `--output`; behind us the host has no such file."""
    trust(monkeypatch, repositories)
    direct = Direct([*git_on_host, "--repository", str(repositories / "repo")])
    victim, spared = repositories / "written-directly", repositories / "written-behind"

    direct("git_diff", {"repo_path": str(repositories / "repo"), "target": f"--output={victim}"})
    git_server(repositories)("raw-diff", {"repo_path": "/repo", "target": f"--output={spared}"})

    assert victim.exists()
    assert not spared.exists()


@pytest.mark.claim("P-FS-01")
def test_a_git_server_that_does_not_hold_calls_to_its_repository(
    repositories: Path, git_on_host: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly the history of another repository is read; behind us that repository does not exist."""
    trust(monkeypatch, repositories)
    direct = Direct([*git_on_host, "--repository", str(repositories / "repo")])
    behind = git_server(repositories)

    leaked = direct("git_log", {"repo_path": str(repositories / "other")})
    kept = behind("raw-log", {"repo_path": str(repositories / "other")})

    assert CANARY in leaked
    assert CANARY not in kept
    assert "granted" in behind("raw-log", {"repo_path": "/repo"})
