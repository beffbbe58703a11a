"""Actions on installed packages: install, list, rollback, uninstall."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sandbox.cli import options
from sandbox.cli.evidence import trail
from sandbox.cli.packages.common import action, add_calling, add_signature, add_store, later, store_of
from sandbox.cli.report import line_of
from sandbox.errors import UsageError
from sandbox.events import Scope, Trace


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    work = later("sandbox.cli.packages.installing", "install_package")
    put = action(actions, "install", "install a package for `run`, `call` and `serve`", work)
    put.add_argument("package", type=options.path, metavar="FILE")
    put.add_argument(
        "--from",
        type=options.path,
        dest="origin",
        metavar="DIR",
        help="FILE is a tool's id, and the newest package of DIR with it is meant",
    )
    put.add_argument("--implementation", default="", metavar="ID", help="use this one (default: the first that fits)")
    put.add_argument("--why", action="store_true", help="say why each implementation is used or not")
    put.add_argument("--require-tests", action="store_true", help="install only when all its tests pass in the sandbox")
    put.add_argument(
        "--read", action="append", default=[], metavar="AT=PATH", help="let the tool read PATH of this host, at AT"
    )
    put.add_argument("--write", action="append", default=[], metavar="AT=PATH", help="let it read and write PATH")
    put.add_argument("--trust-host-ca", action="store_true", help="give it the host's CA bundle (corporate proxies)")
    add_store(put)
    add_signature(put)
    add_calling(put)
    action(actions, "list", "list installed packages", _list, store=True)
    back = action(actions, "rollback", "use the version that was installed before, or a named one", _rollback)
    back.add_argument("tool", metavar="TOOL_ID")
    back.add_argument("--to", default="", metavar="VERSION")
    gone = action(actions, "uninstall", "remove an installed package with all its versions", _uninstall)
    gone.add_argument("tool", metavar="TOOL_ID")
    for parser in (back, gone):
        add_store(parser)
        options.add_audit_options(parser)


def _list(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    rows = []
    for tool_id in store.tools():
        current = store.current(tool_id)
        kept = [one.version for one in store.versions(tool_id)]
        info = current.info
        rows.append(
            {
                "toolId": tool_id,
                "version": current.version,
                "implementation": info.get("implementation", ""),
                "signature": info.get("signature", ""),
                "publisher": info.get("publisher", ""),
                "versions": kept,
                "folder": str(store.link(tool_id)),
            }
        )
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(line_of(f"{row['toolId']}  {row['version']}  {row['implementation'] or 'chain'}  {row['signature']}"))
    return 0


def _rollback(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    with trail(arguments) as recorder, store.changing():
        current = store.current(arguments.tool)
        others = [one for one in store.versions(arguments.tool) if one.folder != current.folder]
        earlier = [one for one in others if one.info["installed"] <= current.info["installed"]]
        wanted = [one for one in others if one.version == arguments.to] if arguments.to else earlier[-1:]
        if not wanted:
            have = ", ".join(one.version for one in others) or "no other version"
            message = f"{arguments.tool} has {have} to go back to"
            raise UsageError("PKG-047", message, "name one of them with --to, or install another package")
        scope = Scope(recorder, Trace.new(), driver=arguments.tool)
        scope.intent("pkg.rollback", version=current.version, to=wanted[0].version)
        store.use(wanted[0].folder, arguments.tool)
        scope.outcome("pkg.rollback", to=wanted[0].version)
    shown = {"toolId": arguments.tool, "version": wanted[0].version}
    print(json.dumps(shown) if arguments.json else f"{arguments.tool} is {wanted[0].version} now")
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    with trail(arguments) as recorder, store.changing():
        current = store.current(arguments.tool)
        scope = Scope(recorder, Trace.new(), driver=arguments.tool)
        scope.intent("pkg.uninstall", version=current.version)
        store.remove(arguments.tool)
        scope.outcome("pkg.uninstall", status="ok")
    print(json.dumps({"toolId": arguments.tool}) if arguments.json else f"removed {arguments.tool}")
    return 0
