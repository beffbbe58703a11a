from __future__ import annotations

import pytest

from sandbox.wire.errors import WireError
from sandbox.wire.framing import LineDecoder, check_line


def ids(items: list[bytes | WireError]) -> list[bytes | str]:
    """Return items with errors as their ids."""
    return [item.id if isinstance(item, WireError) else item for item in items]


def test_one_chunk_with_one_line() -> None:
    """The common case gives the line without its end."""
    assert [b'{"a":1}'] == LineDecoder().feed(b'{"a":1}\n')


def test_lines_across_chunks() -> None:
    """Lines may begin and end anywhere in the chunks."""
    decoder = LineDecoder()

    assert [] == decoder.feed(b"one")
    assert [b"one two", b"three"] == decoder.feed(b" two\nthree\nfo")
    assert [b"four"] == decoder.feed(b"ur\n")


def test_empty_lines_are_lines() -> None:
    """An empty line is given on, for the reader to refuse."""
    assert [b"", b""] == LineDecoder().feed(b"\n\n")


def test_crlf_is_one_line_end() -> None:
    """A CR directly before LF belongs to the line end, in one chunk and across two."""
    decoder = LineDecoder()

    assert [b"a"] == decoder.feed(b"a\r\n")
    assert [] == decoder.feed(b"b\r")
    assert [b"b"] == decoder.feed(b"\n")


def test_only_one_cr_is_dropped() -> None:
    """A second CR stays in the line, where it is refused."""
    assert [b"a\r"] == LineDecoder().feed(b"a\r\r\n")


@pytest.mark.parametrize("chunked", [False, True])
def test_line_of_exactly_the_bound(chunked: bool) -> None:
    """A line of the bound passes, one byte more is fatal."""
    fits, exceeds = b"x" * 8 + b"\n", b"x" * 9 + b"\n"

    for data, expected in ((fits, [b"x" * 8]), (exceeds, ["WIRE-001"])):
        decoder = LineDecoder(8)
        pieces = [data[at : at + 1] for at in range(len(data))] if chunked else [data]
        assert expected == [item for piece in pieces for item in ids(decoder.feed(piece))]


def test_nothing_is_read_after_a_line_too_long() -> None:
    """The lines before it are given on, and nothing after it."""
    decoder = LineDecoder(4)

    assert [b"ok", "WIRE-001"] == ids(decoder.feed(b"ok\n123456\nlate\n"))
    assert [] == decoder.feed(b"later\n")
    assert decoder.end() is None


def test_a_line_that_never_ends_keeps_no_memory() -> None:
    """What was collected is dropped when the bound is passed."""
    decoder = LineDecoder(100)
    for _ in range(50):
        decoder.feed(b"x" * 10)

    assert 0 == decoder.pending


def test_end_inside_a_line() -> None:
    """A message without line end was never complete."""
    decoder = LineDecoder()
    decoder.feed(b'{"jsonrpc":')
    torn = decoder.end()

    assert torn is not None
    assert ("WIRE-002", True) == (torn.id, torn.fatal)


def test_end_between_lines() -> None:
    """An orderly end is no error."""
    decoder = LineDecoder()
    decoder.feed(b"a\n")

    assert decoder.end() is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"a":1}\r{"b":2}', "WIRE-003"),
        (b"", "WIRE-004"),
        (b" \t ", "WIRE-004"),
        (b"\xef\xbb\xbf{}", "WIRE-005"),
        (b'{"a":"\x00"}', "WIRE-006"),
        (b'{"a":"\xff"}', "WIRE-006"),
        (b'{"a":"\xc0\xaf"}', "WIRE-006"),
        (b'{"a":"\xed\xa0\x80"}', "WIRE-006"),
    ],
)
def test_what_is_no_text(line: bytes, expected: str) -> None:
    """Each thing that is not a line of text has its own message."""
    with pytest.raises(WireError) as caught:
        check_line(line)

    assert expected == caught.value.id


def test_text_passes() -> None:
    """A line of UTF-8 is text, also with the separators that some programs take for line ends."""
    check_line('{"a":"é\u2028\u0085 \U0001f600"}'.encode())
