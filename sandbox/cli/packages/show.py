"""Actions that show packages to people and models: export, rank, search."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sandbox.cli import options
from sandbox.cli.packages.common import action, store_of
from sandbox.cli.report import line_of, say
from sandbox.errors import SandboxError
from sandbox.mcpkg import export, metrics
from sandbox.mcpkg.archive import SUFFIX, open_archive
from sandbox.mcpkg.create import write_file
from sandbox.mcpkg.find import Query, describe, matches, relevance
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.store import Store


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    out = action(actions, "export", "write what a model's host needs of the installed tools", _export, store=True)
    out.add_argument("tools", nargs="*", metavar="TOOL_ID", help="default: all")
    out.add_argument("--format", choices=export.FORMATS, default="tools", help="tools.json, MCP, OpenAI or Markdown")
    out.add_argument("--out", type=options.path, metavar="FILE", help="default: stdout")
    rank = action(actions, "rank", "order installed tools by what their tests measured", _rank, store=True)
    search = action(actions, "search", "search installed packages, and package files of a folder", _search, store=True)
    search.add_argument("words", nargs="*", metavar="WORD")
    search.add_argument("--folder", type=options.path, metavar="DIR", help="search the package files in DIR instead")
    for parser in (rank, search):
        parser.add_argument("--capability", action="append", default=[], help="only tools with it; may be repeated")
        parser.add_argument("--language", default="", help="only tools with an implementation in it")
        parser.add_argument("--platform", default="", help="only tools for it, such as linux-x64")


def _query(arguments: argparse.Namespace) -> Query:
    words = tuple(getattr(arguments, "words", ()))
    return Query(words, tuple(arguments.capability), arguments.language, arguments.platform)


def _export(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    entries = []
    for tool_id in arguments.tools or store.tools():
        installed = store.current(tool_id)
        manifest, cases = installed.read()
        tested = metrics.summary(metrics.load(store.history(tool_id)))
        entries.append(export.Entry(manifest, cases, installed.contents(), tested))
    makers = {"tools": export.tools_json, "mcp": export.mcp_tools, "openai": export.openai_tools}
    if arguments.format == "context":
        text = export.context(entries)
    else:
        text = json.dumps(makers[arguments.format](entries), indent=1, ensure_ascii=False)
    if arguments.out:
        write_file(arguments.out, text.encode() + b"\n")
    else:
        print(text)
    return 0


def _rank(arguments: argparse.Namespace) -> int:
    store, query = store_of(arguments), _query(arguments)
    rows = []
    for tool_id in store.tools():
        manifest, _ = store.current(tool_id).read()
        if matches(manifest, query):
            runs = metrics.load(store.history(tool_id))
            rows.append({"toolId": tool_id, "score": metrics.score(runs), **metrics.run_facts(runs)})
    rows.sort(key=lambda row: (-float(row["score"]), str(row["toolId"])))
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(
            line_of(f"{row['score']:.3f}  {row['toolId']}  {row['passed']}/{row['total']}  {row['median_ms']:.0f} ms")
        )
    return 0


def _search(arguments: argparse.Namespace) -> int:
    query = _query(arguments)
    found = [one for one in _known(arguments, store_of(arguments)) if matches(one[0], query)]
    found.sort(key=lambda one: (-relevance(one[0], query.words), one[0].tool_id))
    rows = [
        {"toolId": m.tool_id, "version": m.version, "description": m.description, "works": describe(m), "where": where}
        for m, where in found
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    for row in rows:
        print(line_of(f"{row['toolId']} {row['version']}  {row['description']}  [{row['works']}]  {row['where']}"))
    return 0


def _known(arguments: argparse.Namespace, store: Store) -> list[tuple[Manifest, str]]:
    """Return the packages that are searched, each with its place; damaged files are said and left out."""
    if arguments.folder is None:
        return [(store.current(tool_id).read()[0], str(store.link(tool_id))) for tool_id in store.tools()]
    found = []
    for path in sorted(Path(arguments.folder).glob(f"*{SUFFIX}")):
        try:
            found.append((read_package(open_archive(path))[0], str(path)))
        except SandboxError as error:
            say(line_of(f"left out: {path}: {error}"))
    return found
