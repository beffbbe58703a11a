"""The hostile servers, and what must come of each: a public list for whoever puts something between client and server.

Each row names a behaviour of :mod:`sandbox.testing.servers.hostile`, which is a process of the standard library alone,
and how the one call that a client makes must end: with which error, or with an honest answer in spite of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.testing import servers


@dataclass(frozen=True, slots=True)
class Hostile:
    """One way to misbehave.

    Attributes:
        name: what the server is started with.
        attack: what it tries.
        ends_with: id of the error that ends it; empty when the call is answered in spite of it.
        fatal: whether the server is given up, so that later requests fail too.
        starts: whether it begins before the first call, so that the server is never served.
    """

    name: str
    attack: str
    ends_with: str = ""
    fatal: bool = True
    starts: bool = False


HOSTILE: Final = (
    Hostile("endless-line", "exhaust memory with 100 MB without a line end", "WIRE-001"),
    Hostile("long-line", "exhaust memory with one long line", "WIRE-001"),
    Hostile("many-values", "exhaust memory with small text that is large as values", "WIRE-007"),
    Hostile("nested", "exhaust the stack with 10 000 brackets", "WIRE-007"),
    Hostile("nested-result", "exhaust the stack with a deep result", "WIRE-007"),
    Hostile("invalid-utf8", "break the decoder", "WIRE-041"),
    Hostile("carriage-returns", "smuggle messages past a reader that splits elsewhere", "WIRE-041"),
    Hostile("notification-flood", "flood the client while not reading", "WIRE-045"),
    Hostile("large-notification-flood", "flood the client with large messages", "WIRE-045"),
    Hostile("request-flood", "fill our write buffer with answers that it never reads", "WIRE-045"),
    Hostile("garbage-flood", "burn our processor with noise", "WIRE-041"),
    Hostile("empty-lines", "burn our processor with nothing", "WIRE-041"),
    Hostile("stray-answers", "answer requests of somebody else", "WIRE-041"),
    Hostile("repeated-answers", "answer the next request with the last one's result", ""),
    Hostile("mistyped-answer", "answer an id of another type", "WIRE-043", fatal=False),
    Hostile("two-kinds", "be read as a result by one and as an error by another", "WIRE-018"),
    Hostile("batch", "hide an answer in a batch", "WIRE-041"),
    Hostile("silence", "keep a request open for ever", "WIRE-043", fatal=False),
    Hostile("slow-drip", "keep a request open with the appearance of life", "WIRE-043", fatal=False),
    Hostile("death", "leave in the middle of an answer", "WIRE-040"),
    Hostile("closed-output", "stay without answering ever again", "WIRE-043", fatal=False),
    Hostile("stderr-flood", "fill memory or disk with 100 MB of log", "", fatal=False),
    Hostile("sampling", "talk to the client's model and user", "", fatal=False),
    Hostile("forged-progress", "report progress of another request", "", fatal=False),
    Hostile("borrowed-code", "look like a failure of the platform", "remote", fatal=False),
    Hostile("banner", "write for people where only messages belong", "", fatal=False),
    Hostile("mute", "never answer the opening", "WIRE-043", starts=True),
    Hostile("early-flood", "flood before anything was asked", "WIRE-045", starts=True),
    Hostile("early-death", "end at once", "WIRE-055", starts=True),
    Hostile("endless-pages", "list for ever", "WIRE-046", starts=True),
)
"""Every hostile server, by what it does."""


def argv(behaviour: str) -> list[str]:
    """Return the command that starts a hostile server, with this interpreter."""
    return [sys.executable, "-S", str(Path(servers.__file__).with_name("hostile.py")), behaviour]
