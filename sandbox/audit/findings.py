"""What a verification finds, as values: reports of streams, the first record at fault, tree heads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["intact", "torn tail", "altered"]
"""Of a stream, and of a folder: the worst of its streams."""

Kind = Literal["edit", "insert", "delete", "reorder", "duplicate", "truncate", "fork", "re-sign", "torn", "foreign"]
"""What seems to have been done, as far as one can tell from what is left."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first record at fault.

    Attributes:
        kind: what seems to have been done.
        stream: where; ``seq`` is the number of the record, ``segment`` and ``line`` where it stands (1-based).
    """

    kind: Kind
    stream: str
    seq: int
    message: str
    segment: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return one line."""
        place = f"{self.segment}:{self.line}" if self.segment else self.stream
        return f"{place}: record {self.seq}: {self.message} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Head:
    """A tree head of one stream: ``root`` and ``key`` and ``sig`` are base64, as in records."""

    stream: str
    size: int
    root: str
    key: str = ""
    sig: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the form in which heads are exported."""
        return {"stream": self.stream, "size": self.size, "root": self.root, "key": self.key, "sig": self.sig}


@dataclass(slots=True)
class StreamReport:
    """What was found in one stream.

    Attributes:
        records: good records, from the first.
        signed: how many of them stand under a signature.
        closed: ended by its process; ``sealed`` counts ends made by others; ``live``: still being written.
        torn: bytes that are no record, sealed or at the end.
        keys: public keys that signed, in order.
        root: base64 head of the tree over all good records.
        heads: size → base64 root of every signed head.
        unterminated: the last line has no newline.
        backwards: times at which the clock went back; the order of records does not depend on it.
    """

    stream: str
    state: State = "intact"
    records: int = 0
    signed: int = 0
    closed: bool = False
    sealed: int = 0
    live: bool = False
    torn: int = 0
    first: str = ""
    last: str = ""
    unterminated: bool = False
    backwards: int = 0
    root: str = ""
    keys: list[str] = field(default_factory=list)
    heads: dict[int, str] = field(default_factory=dict)
    seen: list[tuple[str, int, str]] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in a folder.

    Attributes:
        pinned: whether the keys were given from outside; without, a folder that was rewritten with a new key looks
            intact.
    """

    state: State
    streams: tuple[StreamReport, ...]
    faults: tuple[Fault, ...]
    pinned: bool

    @property
    def records(self) -> int:
        """Number of good records."""
        return sum(stream.records for stream in self.streams)
