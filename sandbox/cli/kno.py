"""Lint `.kno` entities of the type mcp-server, and show what the register makes of them.

`lint` reports every problem at once and exits with 1 when one of them forbids serving. With `--probe URL` it also asks
the gateway at that address, without a credential, and reports every endpoint that does not do what its entity says.
`project` prints the registry's list, the integration manifest or llms.txt. `driver` prints the DRIVER.md that stands
for an entity without one, or writes the whole folder, to be reviewed and to grow from.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from sandbox.cli import options
from sandbox.errors import UsageError

if TYPE_CHECKING:
    from sandbox.registry.entity import ServerEntity
    from sandbox.registry.kno.read import Kno


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True)
    lint = actions.add_parser("lint", help="report every problem")
    lint.add_argument("--probe", default="", metavar="URL", help="ask the gateway whether it does what is advertised")
    project = actions.add_parser("project", help="print a projection")
    project.add_argument("--as", dest="form", choices=("servers", "manifest", "llms"), default="servers")
    project.add_argument("--base-url", required=True, metavar="URL", help="where the gateway is reached")
    driver = actions.add_parser("driver", help="print the DRIVER.md that an entity stands for")
    driver.add_argument("entity", type=options.path, metavar="ENTITY", help="beside its tools/NAME/TOOL.md")
    driver.add_argument("--to", type=options.path, metavar="FOLDER", help="write the driver folder; it must be new")
    for one in (lint, project):
        one.add_argument("places", nargs="+", type=options.path, metavar="PATH", help="entities or folders of them")
        one.add_argument("--namespace", default="space.possibility", help="of names that are derived from slugs")
        one.add_argument("--owned", action="append", default=[], metavar="NAMESPACE", help="refuse names under others")
        one.add_argument("--json", action="store_true", help="print problems as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Lint, project or make a driver folder."""
    if arguments.action == "driver":
        return _driver(arguments)
    from sandbox.registry.kno.corpus import files_of, linted

    found = linted(files_of(arguments.places), arguments.owned)
    if arguments.action == "lint":
        if arguments.probe:
            _probe(found, arguments)
        return _report(found, as_json=arguments.json)
    if not all(kno.valid for kno in found):
        _report(found, as_json=arguments.json)
        return 1
    return _project(found, arguments)


def _report(found: list[Kno], *, as_json: bool) -> int:
    import orjson

    problems = [problem for kno in found for problem in kno.problems]
    if as_json:
        print(orjson.dumps([dataclasses.asdict(problem) for problem in problems], option=orjson.OPT_INDENT_2).decode())
    else:
        for problem in problems:
            print(f"{problem.severity}: {problem}")
        bad = sum(1 for kno in found if not kno.valid)
        print(f"{len(found)} entities, {bad} that cannot be served, {len(problems)} findings")
    return 1 if any(not kno.valid for kno in found) else 0


def _entities(found: list[Kno], namespace: str) -> list[ServerEntity]:
    from sandbox.registry.entity import from_kno

    return [from_kno(kno, namespace) for kno in found]


def _project(found: list[Kno], arguments: argparse.Namespace) -> int:
    import orjson

    from sandbox.registry.catalog import Catalog
    from sandbox.registry.project import llms_txt, manifest

    base = arguments.base_url.rstrip("/")
    catalog = Catalog(tuple(_entities(found, arguments.namespace)), base)
    if arguments.form == "llms":
        print(llms_txt(catalog.shown(), base), end="")
        return 0
    value = catalog.page({"limit": "100"}) if arguments.form == "servers" else manifest(catalog.shown(), base)
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    return 0


def _probe(found: list[Kno], arguments: argparse.Namespace) -> None:
    from sandbox.cli.gateway.probing import probe
    from sandbox.registry.entity import from_kno

    for kno in found:
        if kno.valid:
            problem = probe(from_kno(kno, arguments.namespace), arguments.probe.rstrip("/"))
            if problem is not None:
                kno.problems.append(problem)


def _driver(arguments: argparse.Namespace) -> int:
    from sandbox.cli.gateway.entities import files_of, write

    files = files_of(arguments.entity)
    if arguments.to is None:
        print(files["DRIVER.md"].decode(), end="")
        return 0
    try:
        if arguments.to.exists():
            raise FileExistsError("it is there already")
        write(arguments.to, files)
    except OSError as error:
        raise UsageError("CLI-210", f"{arguments.to} cannot be written: {error}", "name a new folder") from None
    print(f"{arguments.to} is written: {len(files)} files; review it, and keep the entity beside its DRIVER.md")
    return 0
