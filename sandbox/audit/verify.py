"""Verification: is this folder what was recorded, and if not, which record is the first that is not?

Three answers for each stream: *intact*; *torn tail* (its process died and nobody sealed it yet; everything before
is intact); or *altered*, with the first record at fault. A running stream is intact as far as it got.

What is checked, in one pass over every line:

1. each line holds the hash of the line before it, the first one the hash of the stream's name;
2. each is a record, numbered without gaps;
3. each signed head has the size and root of the tree over all lines before it, and a good signature;
4. a torn line is accepted only where a signed seal follows that says its length and hash;
5. a key change is signed by both keys; each signature is by the pinned key or one that it passed on to;
6. a stream has its end: a close or a seal, or a marker that says its process is running or died;
7. heads that were exported to somewhere else are heads of these trees (truncation, fork, rewriting with the key);
8. what a stream says it saw of the others when it began is still there.

What cannot be seen without 7: records at the end of a stream that were removed together with its marker by somebody
who holds the key, and a folder that was rewritten whole with it.
"""

from __future__ import annotations

import base64
from binascii import hexlify
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from sandbox.audit.findings import Fault, Head, Kind, Report, State, StreamReport
from sandbox.audit.keys import change_text, check, head_text, seal_text
from sandbox.audit.merkle import Frontier
from sandbox.audit.record import AFTER, first_after
from sandbox.audit.scan import Scan, Scans, scans
from sandbox.audit.seal import is_live
from sandbox.audit.tail import MAX_LINE_BYTES, parse, read_lines, segments
from sandbox.limits import MIB

MAX_TORN_BYTES: Final = MIB
"""Between two good records; a dying process leaves at most one line."""

_LOOK_AHEAD: Final = 64
"""Lines that are read after a fault in order to tell removal from reordering."""


class _Altered(Exception):
    def __init__(self, kind: Kind, message: str, seq: int | None = None) -> None:
        self.kind: Kind = kind
        self.message, self.seq = message, seq
        super().__init__(message)


class _Pass:
    """One pass over one stream."""

    def __init__(self, stream: str, trusted: set[str] | None, wanted: Iterable[int]) -> None:
        self.report = StreamReport(stream)
        self.trusted = trusted
        self.wanted = sorted(set(wanted), reverse=True)
        self.hashes: dict[int, str] = {}
        self.tree = Frontier()
        self.leaves: list[bytes] = []
        self.after, self.expected = b"", 0
        self.path, self.line = Path(), 0
        self.torn, self.torn_lines = bytearray(), 0
        self.previous = ""
        self.end: Literal["", "close", "signed"] = ""

    # --- every line ---------------------------------------------------------------------------------------------------
    def run(self, paths: Sequence[Path], scanned: Scans = lambda _path: None) -> StreamReport:
        """Return the report of the stream."""
        report = self.report
        self.after = first_after(report.stream).encode()
        try:
            for path in paths:
                self._segment(path, scanned(path))
            if self.torn:
                self._unsealed()
        except _Altered as found:
            seq = self.expected if found.seq is None else found.seq
            report.state = "altered"
            report.fault = Fault(found.kind, report.stream, seq, found.message, self.path.name, self.line)
        self._flush()
        report.records = self.expected
        report.root = base64.b64encode(self.tree.root()).decode()
        report.last = self.previous
        return report

    def _segment(self, path: Path, found: Scan | None = None) -> None:
        """Check every line of one segment; the loop is the whole cost of a verification, but for what was scanned."""
        loads, hasher, leaves, wanted = orjson.loads, sha256, self.leaves, self.wanted
        if self.report.unterminated:
            raise _Altered("edit", "the last line of a segment has no newline")
        self.path, self.line = path, 0
        offset = self._scanned(found) if found is not None else 0
        after, expected, number, previous = self.after, self.expected, self.line, self.previous
        with path.open("rb", buffering=MIB) as file:
            file.seek(offset)
            for line in read_lines(file):
                number += 1
                body = line[:-1]
                # 1., 2. the common case: the chain holds, the number is right, the line is whole
                if line[10:74] == after and line[-1] == 10 and not self.end and not self.torn:  # noqa: PLR2004 - newline
                    try:
                        record = loads(body)
                        name, time, seq = record["name"], record["time"], record["seq"]
                        good = seq == expected and type(seq) is int and type(name) is str and type(time) is str
                    except (ValueError, KeyError, TypeError):
                        good = False
                    if good:
                        if name[:6] == "audit.":
                            self.after, self.expected, self.line = after, expected, number
                            self._own(record)
                        digest = hasher(b"\x00" + body).digest()
                        leaves.append(digest)
                        after = hexlify(digest)
                        expected += 1
                        if wanted and wanted[-1] == expected:
                            self.after, self.expected = after, expected
                            self._note()
                        if time < previous:
                            self.report.backwards += 1
                        previous = time
                        continue
                self.after, self.expected, self.line, self.previous = after, expected, number, previous
                self._odd(line)
                after, expected = self.after, self.expected
        self.after, self.expected, self.line, self.previous = after, expected, number, previous

    def _scanned(self, found: Scan) -> int:
        """Take over what a scan found when it goes on where this stream stands; return where to go on reading."""
        if not found.lines or found.after != self.after or found.start != self.expected or self.end or self.torn:
            return 0
        start, leaves, done = self.expected, found.leaves(), 0
        asked = (size - start - 1 for size in self.wanted if start < size <= start + found.lines)
        for index in sorted({*found.own, *asked}):
            self.leaves += leaves[done:index]
            self.expected, self.line, done = start + index, index + 1, index + 1
            if index in found.own:
                self.after = found.own[index][AFTER]
                self._own(orjson.loads(found.own[index]))
            self.leaves.append(leaves[index])
            self.after, self.expected = hexlify(leaves[index]), start + index + 1
            if self.wanted and self.wanted[-1] == self.expected:
                self._note()
        self.leaves += leaves[done:]
        self.after, self.expected, self.line = hexlify(leaves[-1]), start + found.lines, found.lines
        self.report.backwards += found.backwards + (found.first < self.previous)
        self.previous = found.last
        return found.offset

    def _note(self) -> None:
        """Keep root and chain hash at a size that somebody asks about."""
        size = self.wanted.pop()
        self._flush()
        self.hashes[size] = self.after.decode()
        self.report.heads.setdefault(size, base64.b64encode(self.tree.root()).decode())

    def _flush(self) -> None:
        self.tree.extend(self.leaves)
        self.leaves.clear()

    # --- lines that are not simply the next record --------------------------------------------------------------------
    def _odd(self, line: bytes) -> None:
        """Judge a line that does not continue the chain: torn and sealed (4), or altered."""
        body = line.removesuffix(b"\n")
        record = parse(body)
        if record is None:
            self.torn += line
            self.torn_lines += 1
            if len(self.torn) > MAX_TORN_BYTES:
                self.line -= self.torn_lines - 1
                raise _Altered("edit", "the line is no record")
            return
        if self.end == "signed":
            raise _Altered("insert", "a record stands after the end of the stream")
        fits = record["seq"] == self.expected and record.get("after") == self.after.decode()
        ending = record["name"] == "audit.seal" or (self.end == "close" and record["name"] == "audit.checkpoint")
        cut = not line.endswith(b"\n") and not self.end and not self.torn
        if fits and (ending or cut):
            self._take(record, line)
            return
        if fits and self.end:
            raise _Altered("insert", "a record stands after the end of the stream")
        raise self._classified(record, body)

    def _take(self, record: dict[str, Any], line: bytes) -> None:
        """Accept the last record of a stream, or one whose newline a dying process did not write."""
        if record["name"].startswith("audit."):
            self._own(record)
        self.report.unterminated = not line.endswith(b"\n")
        digest = sha256(b"\x00" + line.removesuffix(b"\n")).digest()
        self.leaves.append(digest)
        self.after, self.expected = hexlify(digest), self.expected + 1
        if self.wanted and self.wanted[-1] == self.expected:
            self._note()

    def _classified(self, record: dict[str, Any], body: bytes) -> _Altered:
        """Return what seems to have been done where a record does not continue the chain."""
        seq, expected = record["seq"], self.expected
        if self.torn:
            self.line -= self.torn_lines
            return _Altered("edit", "the line is no record")
        if expected == 0 and seq == 0:
            return _Altered("foreign", "the first record belongs to another stream")
        if seq > expected:
            later = any(item is not None and item["seq"] == expected for _, item in self._following())
            kind: Kind = "reorder" if later else "delete"
            return _Altered(kind, f"record {seq} stands in the place of record {expected}")
        if seq < expected:
            same = hexlify(sha256(b"\x00" + body).digest()) == self.after
            return _Altered("duplicate" if same else "insert", f"there is a second record {seq}", seq)
        follower = next(self._following(), None)
        if follower is not None and follower[0][AFTER] != hexlify(sha256(b"\x00" + body).digest()):
            return _Altered("edit", f"neither record {expected - 1} nor record {expected + 1} fits it")
        self.line -= 1
        return _Altered("edit", f"its content is not what record {expected} says of it", expected - 1)

    def _following(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Yield the lines after the present one, as far as they help to say what was done."""
        with self.path.open("rb") as file:
            for line in islice(read_lines(file), self.line, self.line + _LOOK_AHEAD):
                yield line, parse(line.removesuffix(b"\n"))

    def _unsealed(self) -> None:
        """A torn end: the process died, unless what is torn could not have been left by it."""
        data = bytes(self.torn)
        if self._ended():
            raise _Altered("insert", "something stands after the end of the stream")
        if data.count(b"\n") > 1 or (data.endswith(b"\n") and data.strip(b"\0\n")):
            self.line -= self.torn_lines - 1
            raise _Altered("edit", "the line is no record")
        self.report.torn += len(data)

    def _ended(self) -> bool:
        """Return whether the last record is the signed end that a process, or who sealed it, wrote."""
        return self.end == "signed"

    def _seal(self, record: dict[str, Any]) -> None:
        attrs, data = _attrs(record), bytes(self.torn).removesuffix(b"\n")
        digest = sha256(data).hexdigest()
        if record["seq"] != self.expected or attrs.get("torn_bytes") != len(data) or attrs.get("torn_sha256") != digest:
            raise _Altered("edit", "a seal does not fit what it seals")
        text = seal_text(self.report.stream, self.expected, self.after.decode(), len(data), digest)
        self._signature(attrs.get("key"), text, attrs.get("sig"))
        self.report.torn += len(data)
        self.report.sealed += 1
        self.report.signed = self.expected + 1
        self.torn, self.torn_lines = bytearray(), 0

    # --- our own records
    # ----------------------------------------------------------------------------------------------------
    def _own(self, record: dict[str, Any]) -> None:
        """Check a record of the trail about itself (3, 5)."""
        name, attrs = record["name"], _attrs(record)
        if name == "audit.close":
            self.end = "close"
        elif name == "audit.checkpoint":
            self._head(attrs)
            if self.end:
                self.report.closed, self.end = True, "signed"
        elif name == "audit.seal":
            self._seal(record)
            self.end = "signed"
        elif name == "audit.key":
            self._key_change(attrs)
        elif name == "audit.open":
            self.report.first = record["time"]
            self.report.seen = list(_seen_by(record))
        elif name == "audit.expire":
            self.report.expired.append(str(attrs.get("stream")))

    def _head(self, attrs: dict[str, Any]) -> None:
        """Hold a signed head to the records before it; a good one with another root says that they were changed."""
        self._flush()
        computed = base64.b64encode(self.tree.root()).decode()
        claimed = attrs.get("root")
        if attrs.get("size") != self.expected or not isinstance(claimed, str):
            raise _Altered("edit", "a signed head is not over the records before it")
        self._signature(attrs.get("key"), head_text(self.report.stream, self.expected, claimed), attrs.get("sig"))
        if claimed != computed:
            start = self.report.signed
            message = f"among the records {start} to {self.expected - 1} is one that is not what was signed"
            raise _Altered("edit", message, start)
        self.report.heads[self.expected] = claimed
        self.report.signed = self.expected + 1

    def _key_change(self, attrs: dict[str, Any]) -> None:
        old, new = attrs.get("old"), attrs.get("new")
        text = change_text(self.report.stream, str(old), str(new))
        self._signature(old, text, attrs.get("sig_old"))
        if not isinstance(new, str) or not check(new, text, str(attrs.get("sig_new"))):
            raise _Altered("re-sign", "the new key did not sign its own introduction")
        if self.trusted is not None:
            self.trusted.add(new)

    def _signature(self, key: object, text: bytes, signature: object) -> None:
        if not isinstance(key, str) or not isinstance(signature, str) or not check(key, text, signature):
            raise _Altered("edit", "a signature is not good")
        if self.trusted is not None and key not in self.trusted:
            raise _Altered("re-sign", f"signed by {key}, which is not a trusted key")
        if key not in self.report.keys:
            self.report.keys.append(key)


def verify(
    folder: Path, *, keys: Iterable[str] = (), heads: Iterable[Head] = (), processes: int | None = None
) -> Report:
    """Return what a folder is.

    Args:
        folder: the audit folder; nothing in it is changed.
        keys: pinned public keys (base64). Without any, each stream is only held to the key it names itself.
        heads: heads that were exported before and kept elsewhere.
        processes: how many share the work; by default as many as there are processors, when there is much.
    """
    pinned, exported = set(keys), list(heads)
    known = segments(folder)
    asked = _asked(known, exported)
    trusted = pinned or None
    passes = {stream: _Pass(stream, trusted, asked.get(stream, ())) for stream in known}
    with scans([path for paths in known.values() for path in paths], processes) as scanned:
        for stream, paths in known.items():
            live = is_live(folder, stream)  # before it is read: it may end well meanwhile
            _finish(folder, passes[stream].run(paths, scanned), live=live)
    _again(folder, known, passes, asked, trusted)
    faults = [found.report.fault for found in passes.values() if found.report.fault]
    expired = {name for found in passes.values() for name in found.report.expired}
    faults += _exported(passes, [head for head in exported if head.stream not in expired], pinned)
    faults += _seen(passes, expired)
    for fault in faults:
        if fault.stream in passes:
            passes[fault.stream].report.state = "altered"
    reports = tuple(found.report for found in passes.values())
    state: State = (
        "altered" if faults else "torn tail" if any(item.state == "torn tail" for item in reports) else "intact"
    )
    return Report(state, reports, tuple(faults), bool(pinned))


def _again(
    folder: Path,
    known: dict[str, list[Path]],
    passes: dict[str, _Pass],
    asked: dict[str, list[int]],
    trusted: set[str] | None,
) -> None:
    """Look again at streams whose key another stream introduces that was read later: names sort by the second only."""
    before = -1
    while trusted is not None and len(trusted) != before:
        before = len(trusted)
        for stream, found in list(passes.items()):
            if found.report.fault is not None and found.report.fault.kind == "re-sign":
                passes[stream] = _Pass(stream, trusted, asked.get(stream, ()))
                _finish(folder, passes[stream].run(known[stream]), live=is_live(folder, stream))


def _finish(folder: Path, report: StreamReport, *, live: bool) -> None:
    """Judge the end of a stream (6)."""
    report.live = live
    ended = report.signed == report.records and (report.closed or report.sealed > 0) and not report.unterminated
    if live or ended or report.state == "altered":
        return
    if (folder / "live" / report.stream).exists():
        report.state = "torn tail"
        return
    report.state = "altered"
    message = "the stream has neither an end nor a marker that its process died: its last records are missing"
    report.fault = Fault("truncate", report.stream, report.records, message)


def _asked(known: dict[str, list[Path]], heads: Iterable[Head]) -> dict[str, list[int]]:
    """Return the sizes at which each stream's root or chain hash will be compared (7, 8)."""
    asked: dict[str, list[int]] = {}
    for head in heads:
        asked.setdefault(head.stream, []).append(head.size)
    for paths in known.values():
        for stream, size, _ in _seen_by(_first(paths[0])):
            asked.setdefault(stream, []).append(size)
    return asked


def _first(path: Path) -> dict[str, Any]:
    """Return the first record of a stream; empty when it is none."""
    with path.open("rb") as file:
        return parse(file.readline(MAX_LINE_BYTES).removesuffix(b"\n")) or {}


def _attrs(record: dict[str, Any]) -> dict[str, Any]:
    attrs = record.get("attrs")
    return attrs if isinstance(attrs, dict) else {}


def _seen_by(record: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yield what a first record says it saw of others: stream, number of records, hash of the last one."""
    entries = _attrs(record).get("seen")
    for entry in entries if isinstance(entries, list) else []:
        match entry:
            case {"stream": str(stream), "seq": int(seq), "hash": str(digest)}:
                yield stream, seq + 1, digest


def _exported(passes: dict[str, _Pass], heads: Iterable[Head], pinned: set[str]) -> Iterator[Fault]:
    """Yield a fault for every exported head that is no head of these trees (7)."""
    for head in heads:
        found = passes.get(head.stream)
        size = head.size
        if found is None:
            yield Fault("delete", head.stream, 0, f"the stream is gone; a head over {size} records was exported")
            continue
        signed = head.key and check(head.key, head_text(head.stream, size, head.root), head.sig)
        if head.key and (not signed or (pinned and head.key not in pinned and head.key not in found.report.keys)):
            yield Fault("foreign", head.stream, size, "the exported head is not signed by a trusted key")
        elif found.report.fault and found.report.fault.kind != "truncate":
            continue  # said already, with the record
        elif size > found.expected:
            yield Fault("truncate", head.stream, found.expected, f"a head over {size} records was exported")
        elif found.report.heads.get(size) != head.root:
            yield Fault("fork", head.stream, size, f"the first {size} records are not those of the exported head")


def _seen(passes: dict[str, _Pass], expired: set[str]) -> Iterator[Fault]:
    """Yield a fault for every stream that a later one saw and that is gone, shorter or other (8)."""
    said: set[str] = set()
    for witness, found in passes.items():
        for stream, size, digest in found.report.seen:
            other = passes.get(stream)
            if stream in expired or stream in said or (other is not None and other.report.fault):
                continue
            if other is None:
                fault = Fault("delete", stream, 0, f"the stream is gone; {witness} saw {size} records of it")
            elif size > other.expected:
                fault = Fault("truncate", stream, other.expected, f"{witness} saw {size} records of it")
            elif other.hashes.get(size) != digest:
                fault = Fault("fork", stream, size - 1, f"{witness} saw another record here")
            else:
                continue
            said.add(stream)
            yield fault
