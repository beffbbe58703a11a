"""What is kept: erasure of a tenant's values, removal of old streams, another key; each on record before it happens."""

from __future__ import annotations

import argparse

from sandbox.audit.index import time_number
from sandbox.audit.retention import expire
from sandbox.cli.evidence import trail
from sandbox.errors import UsageError


def erase(arguments: argparse.Namespace) -> int:
    """Erase the kept values of a tenant; records and chain stay."""
    if not arguments.tenant:
        raise UsageError("CLI-162", "erase needs a tenant", "name one with --tenant")
    with trail(arguments) as recorder:
        number = recorder.erase(arguments.tenant)
    print(f"erased {number} kept values of {arguments.tenant!a}; what was recorded of them are salted digests")
    return 0


def expire_streams(arguments: argparse.Namespace) -> int:
    """Remove the streams whose last record is older than a time."""
    if not arguments.before or time_number(arguments.before) is None:
        mend = "give --before 2026-11-21T08:15:00Z, or a beginning of that"
        raise UsageError("CLI-163", "expire needs the time before which streams are removed", mend)
    with trail(arguments) as recorder:
        removed = expire(recorder.ledger, arguments.before)
    print(f"removed {len(removed)} streams", *removed, sep="\n  ")
    return 0


def change_key(arguments: argparse.Namespace) -> int:
    """Put another signing key in place, introduced by the old one."""
    with trail(arguments) as recorder:
        public = recorder.change_key(arguments.key_store)
    print(f"signing with {public} from now on; who pinned the old key can verify what this one signs")
    return 0
