"""Report what this host can enforce and what not: one line for each check, with the fix.

Exit status 0 when servers can be run as promised, else 5.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from sandbox.cli.images import EVERY
from sandbox.errors import PlatformError, SandboxError
from sandbox.launch.doctor import Check, diagnose
from sandbox.launch.images.host import image_status

MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Look and report."""
    checks = diagnose(images=images)
    failed = any(check.status == "fail" for check in checks)
    if arguments.json:
        print(json.dumps({"version": 1, "ok": not failed, "checks": [asdict(check) for check in checks]}, indent=1))
    else:
        for check in checks:
            print(f"{MARKS[check.status]}  {check.what}: {check.found}")
            if check.fix:
                print(f"      {check.fix}")
    return PlatformError.exit_code if failed else 0


def images() -> Iterable[Check]:
    """Return one check for each image."""
    try:
        statuses = image_status(EVERY)
    except SandboxError as error:
        return [Check("images", "warn", "images", error.message, error.mend)]
    return [
        Check(
            f"image.{status.name}",
            "ok" if status.present or status.cached else "warn",
            f"image {status.name}",
            _where(present=status.present, cached=status.cached, own=status.own),
            "" if status.present or status.cached else f"run `mcp-sandbox images build {status.name}`",
        )
        for status in statuses
    ]


def _where(*, present: bool, cached: bool, own: bool) -> str:
    place = "in the engine" if present else "in the cache" if cached else "not built"
    return f"{place}, from packages of this host's own choosing" if own and (present or cached) else place
