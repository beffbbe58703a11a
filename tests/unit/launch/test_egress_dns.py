"""The resolver inside a namespace: what it reads, what it answers, held against dnspython."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch.egress.inside import dns as ours
from sandbox.launch.egress.inside import reasons
from sandbox.launch.egress.inside.names import NameTable
from sandbox.launch.egress.inside.server import NameServer
from sandbox.policy.hosts import parse_rules

RULES = parse_rules(["api.example.com", "db.internal:5432", "*.example.org"])


def ask(name: str, kind: str = "A", **extra: Any) -> bytes:
    """Return a question as dnspython writes it."""
    return dns.message.make_query(name, kind, **extra).to_wire()


class Desk:
    """A name server without sockets, and what it told."""

    def __init__(self, *, congested: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.table = NameTable(RULES)
        self.server = NameServer(self.table, self.told.append, lambda: congested)

    def answer(self, data: bytes) -> dns.message.Message:
        """Return the answer as dnspython reads it."""
        return dns.message.from_wire(self.server.answer(data, "udp"))


@pytest.fixture
def desk() -> Desk:
    """Return a fresh desk; name servers want a running loop."""

    async def make() -> Desk:
        return Desk()

    return asyncio.run(make())


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("api.example.com", "198.18.1.0"),
        ("API.Example.COM", "198.18.1.0"),
        ("db.internal", "198.18.1.1"),
        ("a.example.org", "198.19.0.0"),
        ("b.c.example.org", "198.19.0.0"),
    ],
)
def test_an_allowed_name_has_a_synthetic_address(desk: Desk, name: str, address: str) -> None:
    """Exact names and names below a wildcard get an address; the question comes back in the case it was asked."""
    answer = desk.answer(ask(name))

    assert answer.rcode() == dns.rcode.NOERROR
    assert [record.to_text() for record in answer.answer[0]] == [address]
    assert answer.question[0].name.to_text() == f"{name}."


@pytest.mark.claim("P-EGR-05")
@pytest.mark.parametrize(
    "name",
    [
        "evil.test",
        "c2VjcmV0.evil.test",
        "example.org",
        "evilexample.org",
        "api.example.com.evil.test",
        "com",
        "198.51.100.7.in-addr.arpa",
        "a\\000.example.org",
        "a\\046b.example.org",
        ".",
    ],
)
def test_dns_exfiltration_every_other_name_does_not_exist(desk: Desk, name: str) -> None:
    """A name that is not allowed is NXDOMAIN and recorded, with the bytes that no host name has escaped."""
    answer = desk.answer(ask(name))

    assert answer.rcode() == dns.rcode.NXDOMAIN
    assert [event["reason"] for event in desk.told] == [reasons.NAME]
    assert "\x00" not in desk.told[0]["name"]


@pytest.mark.parametrize("kind", ["AAAA", "TXT", "MX", "SRV", "HTTPS", "ANY", "NS", "CNAME", "TYPE65280"])
def test_an_allowed_name_has_nothing_but_its_address(desk: Desk, kind: str) -> None:
    """No record of another type is given and none is fetched: HTTPS records would bring keys for encrypted hellos."""
    answer = desk.answer(ask("api.example.com", kind))

    assert (answer.rcode(), answer.answer) == (dns.rcode.NOERROR, [])


@pytest.mark.parametrize(("kind", "address"), [("A", "127.0.0.1"), ("AAAA", "::1")])
def test_localhost_is_the_namespace_itself(desk: Desk, kind: str, address: str) -> None:
    """RFC 6761 §6.3; nothing is recorded, because nothing leaves."""
    answer = desk.answer(ask("localhost", kind))

    assert [record.to_text() for record in answer.answer[0]] == [address]
    assert desk.told == []


def test_edns_is_answered_and_an_unknown_version_refused(desk: Desk) -> None:
    """Options are ignored, version 0 gets an OPT, version 1 gets BADVERS (RFC 6891 §6.1.3)."""
    plain = desk.answer(
        ask("api.example.com", use_edns=0, payload=4096, options=[dns.edns.GenericOption(10, b"12345678")])
    )
    newer = desk.answer(ask("api.example.com", use_edns=1))

    assert (plain.edns, plain.rcode()) == (0, dns.rcode.NOERROR)
    assert newer.rcode() == dns.rcode.BADVERS


def test_congested_evidence_means_no_answer(desk: Desk) -> None:
    """While questions cannot be recorded, none is answered with an address."""

    async def make() -> Desk:
        return Desk(congested=True)

    answer = asyncio.run(make()).answer(ask("api.example.com"))

    assert (answer.rcode(), answer.answer) == (dns.rcode.SERVFAIL, [])


GOOD = ask("api.example.com")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (GOOD[:2] + b"\x28\x00" + GOOD[4:], dns.rcode.NOTIMP),  # UPDATE
        (GOOD[:4] + b"\0\2" + GOOD[6:], dns.rcode.FORMERR),
        (GOOD[:4] + b"\0\0" + GOOD[6:], dns.rcode.FORMERR),
        (GOOD + b"x", dns.rcode.FORMERR),
        (GOOD[:12] + b"\xc0\x0c\0\1\0\1", dns.rcode.FORMERR),  # a name that points to itself
        (GOOD[:12] + b"\x3fabc\0\0\1\0\1", dns.rcode.FORMERR),
        (GOOD[:12] + b"\1a" * 130 + b"\0\0\1\0\1", dns.rcode.FORMERR),
        (GOOD[:-2] + b"\0\3", dns.rcode.REFUSED),  # class CHAOS
    ],
    ids=["update", "two questions", "none", "trailing", "pointer to itself", "long label", "long name", "chaos"],
)
def test_a_malformed_question_gets_its_error(desk: Desk, data: bytes, code: int) -> None:
    """Each malformed message has the RCODE that RFC 1035 §4.1.1 gives it, and no record."""
    answer = desk.server.answer(data, "udp")

    assert answer[3] & 0xF == code
    assert desk.told[0]["reason"] == reasons.NAME


@pytest.mark.parametrize("data", [b"", b"x", GOOD[:11], GOOD[:2] + b"\x81" + GOOD[3:]])
def test_an_answer_or_a_fragment_gets_no_answer(desk: Desk, data: bytes) -> None:
    """What has no whole header, or is itself an answer, is not answered: two servers never talk to each other."""
    assert desk.server.answer(data, "udp") == b""


def test_too_many_names_below_a_wildcard_are_refused(desk: Desk) -> None:
    """The table is bounded; names that have an address keep it."""
    desk.table._other = {f"n{number}.example.org": f"x{number}" for number in range(4096)}

    answer = desk.answer(ask("one-more.example.org"))

    assert answer.rcode() == dns.rcode.SERVFAIL
    assert desk.told[-1]["reason"] == reasons.NAMES
    assert desk.table.address("n7.example.org") == "x7"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_question_or_a_bad_question(data: bytes) -> None:
    """Nothing else is raised, and an answer never grows by more than one record and one OPT."""
    try:
        question = ours.parse(data)
    except ours.BadQuestion as bad:
        answer = bad.answer
    else:
        answer = ours.reply(question, ours.NOERROR, "198.18.1.0" if question.type == ours.A else "")

    assert len(answer) <= len(data) + 16 + 11


LABEL = st.binary(min_size=1, max_size=20)


@given(st.lists(LABEL, min_size=1, max_size=6), st.integers(0, 65535), st.booleans())
def test_what_we_read_is_what_dnspython_reads(labels: list[bytes], kind: int, edns: bool) -> None:
    """For every well-formed question both parsers agree on name, type and EDNS."""
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0" + struct.pack(">HH", kind, 1)
    opt = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    data = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 1 if edns else 0) + wire + opt
    theirs = dns.message.from_wire(data)

    mine = ours.parse(data)

    assert mine.type == theirs.question[0].rdtype
    assert (mine.edns is not None) == (theirs.edns >= 0)
    if mine.host:
        assert f"{mine.name}." == theirs.question[0].name.to_text().lower()
