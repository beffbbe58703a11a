"""Pin what a driver installs in driver.lock: every package of the dependency tree with its version and hash.

Keeps what is pinned and still fits; `--upgrade` resolves everything anew. Shows one line for each difference. Packages
are fetched in build containers that reach your registry and nothing else, with lifecycle scripts off. Review the
difference and keep the file beside DRIVER.md.
"""

from __future__ import annotations

import argparse
import json

from sandbox.cli import options
from sandbox.cli.evidence import trail
from sandbox.cli.progress import finished, person
from sandbox.cli.wiring import load_policy
from sandbox.events import Scope, Trace
from sandbox.launch.install.ensure import lock_driver
from sandbox.launch.install.lock import path_of
from sandbox.spec.load import load_driver


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    parser.add_argument("--upgrade", action="store_true", help="resolve everything anew")
    parser.add_argument("--dry-run", action="store_true", help="show the difference and write nothing")
    parser.add_argument(
        "--policy", type=options.path, metavar="FILE", help="operator's ceiling, which says whether images are pulled"
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    options.add_audit_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Resolve, compare, write."""
    spec = load_driver(arguments.driver)
    ceiling = load_policy(arguments.policy)
    progress = person()
    with trail(arguments) as recorder:
        scope = Scope(recorder, Trace.new(), driver=spec.id)
        try:
            _, changes = lock_driver(
                spec,
                progress,
                upgrade=arguments.upgrade,
                dry_run=arguments.dry_run,
                pull=ceiling.pull,
                ceiling=ceiling,
                scope=scope,
            )
        finally:
            finished(progress)
    if arguments.json:
        print(json.dumps({"file": str(path_of(spec.folder)), "changes": list(changes)}))
        return 0
    print("\n".join(changes) if changes else "nothing changes")
    if changes and not arguments.dry_run:
        print(f"wrote {path_of(spec.folder)}: review it and keep it with DRIVER.md")
    return 0
