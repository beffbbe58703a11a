from __future__ import annotations

import pytest

from sandbox.limits import MAX_STDERR_BYTES, MAX_STDERR_LINE_BYTES
from sandbox.transport.limiter import TokenBucket
from sandbox.transport.stderr import StderrTail, printable


def test_the_tail_is_kept() -> None:
    """The last lines stay, what came before is counted."""
    tail = StderrTail()
    for number in range(100_000):
        tail.feed(b"line %d\n" % number)

    assert tail.text().endswith("line 99999")
    assert MAX_STDERR_BYTES >= len(tail.text())
    assert tail.received - tail.dropped <= MAX_STDERR_BYTES


@pytest.mark.parametrize("piece", [b"x" * 100, b"x" * 10_000_000, b"\n" * 1000, b"x" * 5000 + b"\n"])
def test_memory_is_bounded_whatever_is_written(piece: bytes) -> None:
    """Long lines, no lines and only line ends keep no more than the bound."""
    tail = StderrTail()
    for _ in range(200):
        tail.feed(piece)
        assert tail._size + len(tail._partial) <= MAX_STDERR_BYTES + MAX_STDERR_LINE_BYTES


def test_lines_are_given_to_who_watches() -> None:
    """Whole lines arrive once, cut to the bound, across pieces."""
    seen: list[bytes] = []
    tail = StderrTail(seen.append)
    tail.feed(b"on")
    tail.feed(b"e\ntwo\n" + b"x" * 9000 + b"\nrest")

    assert [b"one", b"two", b"x" * MAX_STDERR_LINE_BYTES] == seen
    assert tail.text().endswith("rest")


def test_what_is_shown_controls_no_terminal() -> None:
    """Escapes, other control characters and broken UTF-8 are shown, not sent."""
    assert "a\\u001b]0;t\\u0007\\xff    b\\u202e" == printable(b"a\x1b]0;t\x07\xff\tb\xe2\x80\xae\r")


def test_bucket() -> None:
    """As many events as the rate pass at once, and the rate afterwards."""
    bucket = TokenBucket(10)

    assert 10 == sum(bucket.take(100.0) for _ in range(50))
    assert 5 == sum(bucket.take(100.5) for _ in range(50))
    assert 10 == sum(bucket.take(200.0) for _ in range(50))


def test_bucket_with_a_burst() -> None:
    """The size bounds what passes at once, the rate what passes in the long run; an event may cost more than one."""
    bucket = TokenBucket(10, 100)

    assert 5 == sum(bucket.take(100.0, 20) for _ in range(50))
    assert 1 == sum(bucket.take(102.0, 20) for _ in range(50))
    assert not TokenBucket(10, 100).take(1.0, 101)
