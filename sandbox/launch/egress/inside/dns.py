"""DNS as far as a resolver of synthetic names needs it: one question in, one answer out; pure.

Invariant: any bytes give a :class:`Question` or a :class:`BadQuestion`, and nothing else; an answer is never longer
than the question by more than one record and one OPT, so it fits every transport and amplifies nothing.

Written by hand because a full DNS library costs the broker 5 MB of memory and parses far more than the one shape that
is served here; the fuzz target holds it against dnspython. Sources: RFC 1035, RFC 6891 (EDNS), RFC 8020.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

A: Final = 1
PTR: Final = 12
AAAA: Final = 28
OPT: Final = 41
IN: Final = 1

NOERROR: Final = 0
FORMERR: Final = 1
SERVFAIL: Final = 2
NXDOMAIN: Final = 3
NOTIMP: Final = 4
REFUSED: Final = 5

TTL: Final = 30
"""Seconds that a synthetic address may be kept; it never changes while the namespace lives."""

UDP_SIZE: Final = 1232
"""Payload size that is offered (DNS flag day 2020)."""

_TYPE_NAMES: Final = "A 1 NS 2 CNAME 5 SOA 6 PTR 12 MX 15 TXT 16 AAAA 28 SRV 33 SVCB 64 HTTPS 65 ANY 255 CAA 257"
TYPES: Final = dict(zip(map(int, _TYPE_NAMES.split()[1::2]), _TYPE_NAMES.split()[::2], strict=True))
"""Names of the types that programs ask for."""

_HEADER: Final = struct.Struct(">HHHHHH")
_PAIR: Final = struct.Struct(">HH")
_RECORD: Final = struct.Struct(">HHIH")
_HOST: Final = re.compile(rb"[A-Za-z0-9_-]{1,63}\Z")
_QR: Final = 0x8000
_AA: Final = 0x0400
_RD: Final = 0x0100
_RA: Final = 0x0080
_OPCODE: Final = 0x7800
_MAX_NAME: Final = 255
_MAX_LABEL: Final = 63
_POINTER: Final = b"\xc0\x0c"


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: transaction id.
        flags: header flags as sent.
        name: lower-case text; bytes that no host name has are written as backslash and three digits (RFC 1035 §5.1).
        host: whether the name has the form of a host name, so that it may be looked up in the policy.
        type: QTYPE.
        section: the question as sent, which the answer repeats (names keep their case).
        edns: highest EDNS version of the question, ``None`` without OPT.
    """

    id: int
    flags: int
    name: str
    host: bool
    type: int
    section: bytes
    edns: int | None = None

    @property
    def type_name(self) -> str:
        """``A``, ``AAAA``, … or ``TYPEnnn`` (RFC 3597)."""
        return TYPES.get(self.type, f"TYPE{self.type}")


class BadQuestion(ValueError):
    """Bytes that are no question.

    Attributes:
        answer: what to send back, empty when nothing (answers, and what has no whole header).
    """

    def __init__(self, why: str, answer: bytes = b"") -> None:
        self.answer = answer
        super().__init__(why)


def parse(data: bytes) -> Question:
    """Return the question in a DNS message.

    Steps:

    1. A whole header; not an answer (QR).
    2. Opcode QUERY, exactly one question, no other records but OPT.
    3. The name, without compression, at most 255 bytes (RFC 1035 §2.3.4).
    4. Class IN.
    5. At most one OPT record, nothing after it.

    Raises:
        BadQuestion: with the answer that the error deserves.
    """
    # 1
    if len(data) < _HEADER.size:
        raise BadQuestion("no whole header")
    number, flags, questions, answers, authorities, additional = _HEADER.unpack_from(data)
    if flags & _QR:
        raise BadQuestion("an answer")
    # 2
    if flags & _OPCODE:
        raise BadQuestion("not a query", _error(number, flags, NOTIMP))
    if questions != 1 or answers or authorities or additional > 1:
        raise BadQuestion("not one question", _error(number, flags, FORMERR))
    try:
        # 3
        labels, end = _labels(data)
        kind, klass = _PAIR.unpack_from(data, end)
        end += _PAIR.size
        section = data[_HEADER.size : end]
        # 5
        edns = _edns(data, end, additional)
    except (IndexError, struct.error, ValueError) as error:
        raise BadQuestion(str(error), _error(number, flags, FORMERR)) from None
    # 4
    if klass != IN:
        raise BadQuestion("a class other than IN", _error(number, flags, REFUSED))
    host = bool(labels) and all(_HOST.match(label) for label in labels)
    return Question(number, flags, ".".join(map(_text, labels)), host, kind, section, edns)


def reply(question: Question, code: int, address: str = "") -> bytes:
    """Return the answer to a question.

    Args:
        question: what was asked.
        code: RCODE.
        address: A or AAAA record to give, empty for none.
    """
    record = b""
    if address:
        packed = ipaddress.ip_address(address).packed
        record = _POINTER + _RECORD.pack(question.type, IN, TTL, len(packed)) + packed
    opt = b"" if question.edns is None else _opt(question.edns)
    flags = _QR | _AA | _RA | (question.flags & _RD) | code
    head = _HEADER.pack(question.id, flags, 1, 1 if record else 0, 0, 1 if opt else 0)
    return head + question.section + record + opt


def _error(number: int, flags: int, code: int) -> bytes:
    return _HEADER.pack(number, _QR | (flags & (_OPCODE | _RD)) | code, 0, 0, 0, 0)


def _labels(data: bytes) -> tuple[list[bytes], int]:
    """Return the labels of the name behind the header and where it ends."""
    labels: list[bytes] = []
    at = _HEADER.size
    while length := data[at]:
        if length > _MAX_LABEL:
            raise ValueError("a compressed or extended label")
        label = data[at + 1 : at + 1 + length]
        if len(label) != length:
            raise ValueError("a label is cut off")
        labels.append(label)
        at += 1 + length
        if at - _HEADER.size >= _MAX_NAME:
            raise ValueError("a name of more than 255 bytes")
    return labels, at + 1


def _edns(data: bytes, at: int, additional: int) -> int | None:
    if not additional:
        if at != len(data):
            raise ValueError("bytes after the question")
        return None
    if data[at] != 0:
        raise ValueError("an additional record that is not OPT")
    kind, _, ttl, length = _RECORD.unpack_from(data, at + 1)
    if kind != OPT or at + 1 + _RECORD.size + length != len(data):
        raise ValueError("an additional record that is not one whole OPT")
    return int(ttl >> 16 & 0xFF)


def _opt(version: int) -> bytes:
    """Return our OPT; a version above 0 is answered with BADVERS (16), whose upper bits stand here."""
    extended = 1 if version > 0 else 0
    return b"\0" + _RECORD.pack(OPT, UDP_SIZE, extended << 24, 0)


def _text(label: bytes) -> str:
    if _HOST.match(label):
        return label.decode("ascii").lower()
    return "".join(chr(b).lower() if 0x21 <= b <= 0x7E and b not in b".\\" else f"\\{b:03d}" for b in label)  # noqa: PLR2004
