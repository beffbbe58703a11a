"""A gateway that speaks the dialect in a process of its own, to be killed: ``python -m tests.dialect_gateway FOLDER``.

The server behind it is in memory and writes the mark of each call that reaches it into ``FOLDER/calls``, on disk before
it answers, so that whoever killed the gateway can count what was carried out. The first gateway of a folder answers
twenty calls and then none, so that it can be killed in the middle; the second one answers all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from sandbox.testing.backend import FakeServer
from tests.dialect_lab import dialect_lab
from tests.gateway_lab import Server
from tests.lasting_lab import SOON

ANSWERED = 20
"""Calls that the first gateway of a folder answers."""


class Counting(Server):
    """The server of the lab, counting on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = os.open(folder / "calls", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.first = os.fstat(self.file).st_size == 0

    async def _call(self, server: FakeServer, params: Any, process: int) -> Any:
        os.write(self.file, f"{params['arguments']['mark']}\n".encode())
        if self.first and len(self.calls) >= ANSWERED:
            await asyncio.Event().wait()
        return await super()._call(server, params, process)


async def main(folder: Path, *, idempotent: bool) -> None:
    """Serve until killed, calls become tasks soon; print the address."""
    async with dialect_lab(folder, Counting(folder), SOON, idempotent=idempotent) as lab:
        sys.stdout.write(lab.stage.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), idempotent=sys.argv[2] == "idempotent"))
