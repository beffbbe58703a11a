"""Invariant: any text becomes a canonical rule or one located ``SpecError``; what is accepted has one reading.

Run: ``python tests/fuzz/fuzz_hosts.py -max_total_time=60 tests/fuzz/corpus/hosts``
"""

from __future__ import annotations

import ipaddress
import sys

import atheris

with atheris.instrument_imports():
    from sandbox.errors import SpecError
    from sandbox.policy.destinations import is_literal
    from sandbox.policy.hosts import parse_rule


def one(data: bytes) -> None:
    """Parse one entry and hold the result to the invariant."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        rule = parse_rule(text, "DRIVER.md:1")
    except SpecError as error:
        if len(error.problems) != 1 or not error.problems[0].id.startswith("EGR-"):
            raise AssertionError from error
        return
    host = rule.host.removeprefix("*.")
    assert host.isascii()
    assert host == host.lower()
    assert not set(host) & set("\x00 %@\\#?\r\n\t")
    assert not host.endswith(".")
    assert is_literal(host) or not host.rpartition(".")[2].isdigit()
    if is_literal(host):
        assert str(ipaddress.ip_network(host)).removesuffix("/32").removesuffix("/128") in {
            host,
            host.partition("/")[0],
        }
    assert all(1 <= port <= 65535 for port in rule.ports)
    assert rule.ports


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
