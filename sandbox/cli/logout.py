"""Forget the logins of a driver to its remote server, and have their tokens revoked where the issuer can (RFC 7009).

Logins of earlier states of the driver's files are forgotten too. What is running keeps its token until it ends.
"""

from __future__ import annotations

import argparse
import functools

from sandbox.cli.bench import bench, run_async
from sandbox.cli.evidence import trail
from sandbox.cli.login import add_login_of, parts_of
from sandbox.cli.progress import person
from sandbox.cli.report import line_of
from sandbox.cli.run import until_signalled
from sandbox.events import Recorder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_login_of(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Log out."""
    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_logout, arguments, recorder)))


async def _logout(arguments: argparse.Namespace, recorder: Recorder) -> int:
    async with bench(arguments, recorder, person()) as ready:
        from sandbox.transport.remote.oauth.login import log_out  # only here

        _, asking, store, binding = parts_of(ready, recorder)
        told = await log_out(asking, store, binding)
    for issuer, revoked in told:
        what = "its tokens are revoked" if revoked else "its tokens could not be revoked, and end by themselves"
        print(line_of(f"logged out of {issuer}: {what}"))
    if not told:
        print("nobody was logged in")
    return 0
