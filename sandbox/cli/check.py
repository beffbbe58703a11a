"""Report every problem of a driver folder at once: place, field, what was found, what is allowed, how to mend it.

Nothing is started and nothing but the folder is read. Exit status 0 when the driver is valid (warnings do not count),
else 1.
"""

from __future__ import annotations

import argparse
import json

from sandbox.cli import options
from sandbox.spec.check import check
from sandbox.spec.load import load_driver


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    parser.add_argument(
        "--against",
        type=options.path,
        metavar="DRIVER",
        help="the driver as it was before: its changes must be told by the version (major for another server or tool)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the problems as JSON (docs/schemas/problems.schema.json)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Check and report."""
    before = load_driver(arguments.against) if arguments.against else None
    verdict = check(arguments.driver, before)
    print(json.dumps(verdict.to_json(), indent=1) if arguments.json else verdict.to_text())
    return verdict.exit_code
