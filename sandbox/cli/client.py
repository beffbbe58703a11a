"""Put a driver or a gateway into the configuration of an MCP client, list what is there, or take it out.

Clients: claude-desktop, claude-code, cursor, vscode, codex, gemini. The change is shown as a diff; it is made only with
`--yes` or after a `y` at the terminal, and what the file was is kept beside it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.cli import options
from sandbox.errors import UsageError

if TYPE_CHECKING:
    from sandbox.cli.clients.kinds import ClientKind, Entry

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    install = actions.add_parser("install", help="add a server")
    install.add_argument("name", metavar="NAME", help="of the entry")
    what = install.add_mutually_exclusive_group(required=True)
    what.add_argument("--driver", type=options.path, metavar="DRIVER.md", help="run this driver on stdio")
    what.add_argument("--url", metavar="URL", help="use this endpoint of a gateway")
    install.add_argument("--root", action="append", default=[], metavar="AT=PATH", help="as for `run`")
    remove = actions.add_parser("remove", help="take a server out")
    remove.add_argument("name", metavar="NAME", help="of the entry")
    listed = actions.add_parser("list", help="list servers, and which of them run in a sandbox")
    for one in (install, remove):
        one.add_argument("--client", choices=CLIENTS, required=True)
        one.add_argument("--yes", action="store_true", help="make the change without asking")
    listed.add_argument("--client", choices=CLIENTS)
    for one in (install, remove, listed):
        one.add_argument("--config", type=options.path, metavar="FILE", help="another file than the person's own")


def execute(arguments: argparse.Namespace) -> int:
    """List, install or remove."""
    from sandbox.cli.clients.kinds import KINDS

    if arguments.action == "list":
        return _list(arguments)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", arguments.name):
        raise UsageError("CLI-002", f"{arguments.name[:80]!r} is no name of an entry", "use letters, digits, - and _")
    kind = KINDS[arguments.client]
    entry = _entry(kind, arguments) if arguments.action == "install" else None
    return _apply(kind, arguments.config or kind.place(), arguments.name, entry, yes=arguments.yes)


def _entry(kind: ClientKind, arguments: argparse.Namespace) -> Entry:
    if arguments.url:
        if not re.match(r"https?://[^\s/]+", arguments.url):
            raise UsageError("CLI-002", f"{arguments.url[:80]!r} is no URL", "write https://…")
        if kind.remote is None:
            mend = "use --driver, or add the URL as a connector in its settings"
            raise UsageError("CLI-189", f"the configuration of {kind.title} knows no URLs", mend)
        return kind.remote(arguments.url)
    folder = Path(os.path.realpath(arguments.driver))
    driver = folder / "DRIVER.md" if folder.is_dir() else folder
    if not driver.is_file():
        raise UsageError("CLI-011", f"{driver} is not there", "name a driver")
    roots = [part for at, path in options.roots(arguments.root).items() for part in ("--root", f"{at}={path}")]
    return kind.command(_program(), ["run", str(driver), *roots])


def _program() -> str:
    """Return the path of this command: clients start programs without the person's shell and its PATH."""
    found = shutil.which("mcp-sandbox") or sys.argv[0]
    return str(Path(found).absolute())


def _apply(kind: ClientKind, path: Path, name: str, entry: Entry | None, *, yes: bool) -> int:
    from sandbox.cli.clients.edit import changed

    change = changed(kind, path, name, entry)
    diff = change.diff()
    if not diff:
        print(f"{path}: nothing to change")
        return 0
    print(diff, end="")
    if not yes and not _agreed():
        print("nothing was changed; --yes makes the change")
        return 0
    backup = change.write()
    kept = f"; what it was is in {backup}" if backup is not None else ""
    print(f"{change.path} is written{kept}; start {kind.title} again")
    return 0


def _agreed() -> bool:
    """Ask at the terminal; without one nobody agrees."""
    if not sys.stdin.isatty():
        return False
    return input("make this change? [y/N] ").strip().lower() in ("y", "yes")


def _list(arguments: argparse.Namespace) -> int:
    from sandbox.cli.clients.edit import entries
    from sandbox.cli.clients.kinds import KINDS

    for word in [arguments.client] if arguments.client else CLIENTS:
        kind = KINDS[word]
        path = arguments.config or kind.place()
        if not path.exists():
            continue
        for name, entry in entries(kind, path).items():
            print(f"{word:<15} {name:<30} {_how(entry)}")
    return 0


def _how(entry: object) -> str:
    """Return how a server is used; values of variables and arguments are not shown."""
    if not isinstance(entry, dict):
        return "unreadable"
    command = entry.get("command")
    if not isinstance(command, str):
        return "remote"
    arguments = entry.get("args")
    ours = Path(command).name == "mcp-sandbox" and isinstance(arguments, list) and "run" in arguments[:1]
    return "in a sandbox" if ours else f"with the rights of {Path(command).name[:40]}'s user: `init --from` converts it"
