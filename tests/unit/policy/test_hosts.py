"""Entries of ``network.egress``: one text has one meaning, and what could have two is refused."""

from __future__ import annotations

import ipaddress
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.policy.destinations import EgressRule, address_allowed, address_refusal, networks
from sandbox.policy.hosts import canonical_name, match, narrowed, parse_rule, parse_rules

CANONICAL = [
    ("api.example.com", "api.example.com", (443,), "tls"),
    ("API.Example.COM", "api.example.com", (443,), "tls"),
    ("https://api.example.com", "api.example.com", (443,), "tls"),
    ("HTTPS://api.example.com:8443", "api.example.com", (8443,), "tls"),
    ("http://api.example.com", "api.example.com", (80,), "http"),
    ("http://api.example.com:8080", "api.example.com", (8080,), "http"),
    ("api.example.com:80", "api.example.com", (80,), "http"),
    ("db.internal:5432", "db.internal", (5432,), "auto"),
    ("db.internal:5432,443", "db.internal", (443, 5432), "auto"),
    ("tcp://db.internal:443", "db.internal", (443,), "tcp"),
    ("db:6379", "db", (6379,), "auto"),
    ("*.example.org:443", "*.example.org", (443,), "tls"),
    ("*.Bücher.example", "*.xn--bcher-kva.example", (443,), "tls"),
    ("bücher.example", "xn--bcher-kva.example", (443,), "tls"),
    ("XN--BCHER-KVA.example", "xn--bcher-kva.example", (443,), "tls"),
    ("straße.example", "xn--strae-oqa.example", (443,), "tls"),
    ("ＡＰＩ.example", "api.example", (443,), "tls"),
    ("api。example", "api.example", (443,), "tls"),
    ("my_bucket.example", "my_bucket.example", (443,), "tls"),
    ("198.51.100.7:5432", "198.51.100.7", (5432,), "auto"),
    ("198.51.100.0/24:5432", "198.51.100.0/24", (5432,), "auto"),
    ("[2001:DB8::1]:443", "2001:db8::1", (443,), "tls"),
    ("[2001:db8::/32]", "2001:db8::/32", (443,), "tls"),
]

REFUSED = [
    ("", "EGR-001"),
    ("a" * 401, "EGR-001"),
    ("evil.test\x00.allowed.test", "EGR-001"),
    ("evil.test%00.allowed.test", "EGR-001"),
    ("allowed.test\r\n", "EGR-001"),
    ("allowed.test\t", "EGR-001"),
    (" allowed.test", "EGR-001"),
    ("allowed.test@evil.test", "EGR-001"),
    ("allowed.test\\evil.test", "EGR-001"),
    ("allowed.test#evil.test", "EGR-001"),
    ("allowed.test?evil.test", "EGR-001"),
    ("ftp://allowed.test", "EGR-001"),
    ("2001:db8::1", "EGR-001"),
    ("[2001:db8::1", "EGR-001"),
    ("[2001:db8::1]443", "EGR-001"),
    ("allowed.test:443:444", "EGR-001"),
    ("tcp://allowed.test", "EGR-002"),
    ("allowed.test:", "EGR-002"),
    ("allowed.test:0", "EGR-002"),
    ("allowed.test:65536", "EGR-002"),
    ("allowed.test:0443", "EGR-002"),
    ("allowed.test:443,", "EGR-002"),
    ("allowed.test:٤٤٣", "EGR-002"),
    ("allowed.test:" + ",".join(map(str, range(1, 18))), "EGR-002"),
    ("allowed.test.", "EGR-003"),
    (".allowed.test", "EGR-003"),
    ("allowed..test", "EGR-003"),
    ("-allowed.test", "EGR-003"),
    ("a" * 64 + ".test", "EGR-003"),
    (".".join(["a" * 50] * 6), "EGR-003"),
    ("xn--.test", "EGR-003"),
    ("xn--a.test", "EGR-003"),
    ("allowed\u200b.\u200d.test", "EGR-003"),
    ("allowed.test。", "EGR-003"),
    ("*", "EGR-004"),
    ("*.", "EGR-003"),
    ("*.com", "EGR-004"),
    ("*allowed.test", "EGR-004"),
    ("*.*.test", "EGR-004"),
    ("a.*.test", "EGR-003"),
    ("*.1.2.3", "EGR-004"),
    ("127.1", "EGR-005"),
    ("2130706433", "EGR-005"),
    ("0x7f000001", "EGR-005"),
    ("0x7f.1", "EGR-005"),
    ("0177.0.0.1", "EGR-005"),
    ("0x", "EGR-005"),
    ("198.51.100.256", "EGR-005"),
    ("198.051.100.7", "EGR-005"),
    ("①②⑦.0.0.1", "EGR-005"),
    ("evil.0x7f", "EGR-005"),
    ("198.51.100.7/24", "EGR-005"),
    ("allowed.test/path", "EGR-005"),
    ("[::ffff:198.51.100.7]", "EGR-005"),
    ("[2002:c633:6407::1]", "EGR-005"),
    ("[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "EGR-005"),
    ("[allowed.test]", "EGR-005"),
    ("localhost", "EGR-006"),
    ("LOCALHOST:8080", "EGR-006"),
    ("a.localhost", "EGR-006"),
    ("*.a.localhost", "EGR-006"),
    ("127.0.0.1", "EGR-006"),
    ("127.8.0.0/16", "EGR-006"),
    ("0.0.0.0", "EGR-006"),
    ("169.254.169.254:80", "EGR-006"),
    ("168.63.129.16", "EGR-006"),
    ("[::1]", "EGR-006"),
    ("[::]", "EGR-006"),
    ("[fe80::1]", "EGR-006"),
    ("[fd00:ec2::254]", "EGR-006"),
    ("0.0.0.0/0", "EGR-008"),
    ("128.0.0.0/7:22", "EGR-008"),
    ("[2000::/3]", "EGR-008"),
]

NAMES = st.lists(
    st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8).filter(lambda s: not s.startswith("xn")),
    min_size=2,
    max_size=4,
).map(lambda labels: ".".join([*labels, "test"]))


@pytest.mark.parametrize(("text", "host", "ports", "mode"), CANONICAL)
def test_an_entry_has_one_canonical_form(text: str, host: str, ports: tuple[int, ...], mode: str) -> None:
    """Case, schemes, default ports and international forms fold to the one form that is matched and dialled."""
    rule = parse_rule(text, "DRIVER.md:7")

    assert EgressRule(host, ports, mode, "DRIVER.md:7") == rule


@pytest.mark.claim("P-EGR-09")
@pytest.mark.parametrize(("text", "id_"), REFUSED, ids=lambda value: ascii(value)[:40])
def test_an_ambiguous_entry_is_refused_with_its_place(text: str, id_: str) -> None:
    """What two parsers could read differently is refused, and the message carries id, file and line."""
    with pytest.raises(SpecError) as caught:
        parse_rule(text, "drivers/x/DRIVER.md:12")

    (problem,) = caught.value.problems

    assert (id_, "drivers/x/DRIVER.md", 12) == (problem.id, problem.file, problem.line)


def test_every_bad_entry_of_a_list_is_reported_at_once() -> None:
    """An author repairs all entries in one go."""
    with pytest.raises(SpecError) as caught:
        parse_rules(["ok.example.com", "bad host", "*.com"], ["D.md:1", "D.md:2", "D.md:3"])

    assert [(problem.id, problem.line) for problem in caught.value.problems] == [("EGR-001", 2), ("EGR-004", 3)]


def test_a_list_longer_than_anybody_reviews_is_refused() -> None:
    """The bound of 256 entries holds, and one below it passes."""
    entries = [f"h{number}.example.com" for number in range(257)]

    assert len(parse_rules(entries[:256])) == 256
    with pytest.raises(SpecError, match="EGR-007"):
        parse_rules(entries)


@pytest.mark.parametrize(
    ("name", "port", "found"),
    [
        ("api.example.org", 443, "api.example.org"),
        ("x.example.org", 443, "*.example.org"),
        ("x.y.example.org", 443, "*.example.org"),
        ("z.deep.example.org", 443, "*.deep.example.org"),
        ("example.org", 443, None),
        (".example.org", 443, None),
        ("evilexample.org", 443, None),
        ("api.example.org.evil.test", 443, None),
        ("api.example.org", 22, None),
        ("198.51.100.9", 5432, "198.51.100.0/24"),
        ("198.51.101.9", 5432, None),
    ],
)
def test_matching_is_exact_or_by_an_explicit_wildcard(name: str, port: int, found: str | None) -> None:
    """Suffix confusion finds nothing; of several rules the most specific one decides."""
    rules = parse_rules(["*.example.org", "api.example.org", "*.deep.example.org", "198.51.100.0/24:5432"])

    rule = match(rules, name, port)

    assert found == (rule.host if rule else None)


@pytest.mark.parametrize(
    ("entry", "ceiling", "within"),
    [
        ("a.example.org", ["*"], True),
        ("a.example.org", [], False),
        ("a.example.org", ["*.example.org"], True),
        ("example.org", ["*.example.org"], False),
        ("*.example.org", ["*.example.org"], True),
        ("*.b.example.org", ["*.example.org"], True),
        ("*.example.org", ["a.example.org"], False),
        ("a.example.org:22", ["a.example.org:443"], False),
        ("a.example.org:22,443", ["a.example.org:443", "*.example.org:22"], True),
        ("198.51.100.7:22", ["*"], False),
        ("198.51.100.7:22", ["198.51.100.0/24"], True),
        ("198.51.100.0/24:22", ["198.51.100.0/28"], False),
    ],
)
def test_a_ceiling_only_narrows(entry: str, ceiling: list[str], within: bool) -> None:
    """Each port of each rule needs a pattern; addresses need a pattern that names addresses."""
    assert within == narrowed(parse_rule(entry), ceiling)


FLOOR = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.10",
    "198.51.100.7", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
    "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1", "127.1", "0x7f000001", "2130706433", "127.0.0.01", "", "host",
]  # fmt: skip


@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize("text", FLOOR)
def test_an_address_that_is_not_public_is_not_dialled(text: str) -> None:
    """Private, loopback, link-local, metadata and unspecified addresses are below the floor in every notation."""
    assert address_allowed(text) is False


@pytest.mark.parametrize("text", ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_a_public_address_is_dialled(text: str) -> None:
    """Positive control of the floor: its neighbours are open."""
    assert address_allowed(text) is True


@pytest.mark.parametrize("text", ["10.1.2.3", "198.51.100.7", "::ffff:10.1.2.3", "fc00::1", "2001:db8::1"])
def test_an_operator_may_open_a_reserved_range(text: str) -> None:
    """An operator's CIDR is an exception from the floor for exactly its addresses."""
    assert address_allowed(text, ("10.0.0.0/8", "198.51.100.0/24", "fc00::/7", "2001:db8::/32")) is True
    assert address_allowed("192.168.1.1", ("10.0.0.0/8",)) is False


@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize("text", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "fd00:ec2::254"])
def test_no_operator_can_open_loopback_or_metadata(text: str) -> None:
    """Not even a CIDR that contains everything."""
    assert address_allowed(text, ("0.0.0.0/0", "::/0")) is False


@given(st.text(max_size=60))
def test_any_text_becomes_a_rule_or_one_located_problem(text: str) -> None:
    """No text crashes the parser, and what it accepts is already canonical: parsing it again changes nothing."""
    lines: list[int] = []
    try:
        rule = parse_rule(text, "D.md:1")
    except SpecError as error:
        lines = [problem.line for problem in error.problems]
    if lines:
        assert lines == [1]
        return
    again = parse_rule(f"tcp://{f'[{rule.host}]' if ':' in rule.host else rule.host}:1")

    assert rule.host == again.host


@given(NAMES)
def test_a_name_is_matched_only_by_itself_and_its_parents(name: str) -> None:
    """``*.parent`` stands for a name, ``*.name`` does not stand for it, and a prefix glued on changes it."""
    parent = name.partition(".")[2]
    rules = parse_rules([f"*.{parent}"])

    assert (
        match(rules, name, 443) is not None,
        match(rules, parent, 443) is not None,
        match(rules, f"evil{parent}", 443) is not None,
    ) == (True, False, False)


@given(st.ip_addresses())
def test_the_mapped_form_of_an_address_is_judged_like_the_address(address: ipaddress.IPv4Address) -> None:
    """Writing an IPv4 address inside an IPv6 one never changes the verdict."""
    if address.version == 4:
        assert address_allowed(str(address)) == address_allowed(f"::ffff:{address}")


@given(st.ip_addresses(v=4), st.sampled_from(["10.0.0.0/8", "198.51.100.0/24", "0.0.0.0/0"]))
def test_an_exception_opens_nothing_outside_its_cidr(address: ipaddress.IPv4Address, cidr: str) -> None:
    """An address that an operator's CIDR does not contain keeps its verdict."""
    (network,) = networks((cidr,))
    if address not in network:
        assert bool(address_refusal(address)) == bool(address_refusal(address, (network,)))


def test_a_canonical_name_stays_as_it_is() -> None:
    """Canonical names are fixed points, and others are folded or refused."""
    assert [canonical_name("A.b"), canonical_name("BÜCHER.de")] == ["a.b", "xn--bcher-kva.de"]
    with pytest.raises(ValueError, match="trailing dot"):
        canonical_name("a.b.")
