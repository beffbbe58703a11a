from __future__ import annotations

import time

import pytest
import yaml

from sandbox.limits import MAX_MANIFEST_BYTES, MAX_YAML_DEPTH, MAX_YAML_NODES
from sandbox.spec.frontmatter import Document, FrontMatterError, _Builder, parse


def matter(text: str) -> bytes:
    """Return a manifest with some front matter."""
    return f"---\n{text}\n---\nbody\n".encode()


def faults(data: bytes) -> list[tuple[str, int]]:
    """Return id and line of everything wrong, whether or not the rest could be read."""
    try:
        return [(fault.id, fault.line) for fault in parse(data).faults]
    except FrontMatterError as error:
        return [(fault.id, fault.line) for fault in error.faults]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("9223372036854775807", 9223372036854775807),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("2025-03", "2025-03"),
        ("2025-03-26", "2025-03-26"),
        ("2025-03-26T10:00:00Z", "2025-03-26T10:00:00Z"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("=", "="),
        ("1.0.0", "1.0.0"),
        ("'12'", "12"),
        ('"true"', "true"),
        ('"0600"', "0600"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    """A scalar is what YAML 1.2 says, so that no text turns into a date, a sexagesimal number or a truth value."""
    found = parse(matter(f"key: {text}")).values["key"]

    assert (value, type(value)) == (found, type(found))


@pytest.mark.parametrize(
    "text", ["0600", "-007", "00", "01.5", ".inf", "-.Inf", ".nan", "1e999", "9" * 30, "9" * 10_000]
)
def test_ambiguous_and_unrepresentable_numbers_are_refused(text: str) -> None:
    """A number that readers disagree about, or that JSON lacks, is refused at its line."""
    assert [("SPEC-031", 2)] == faults(matter(f"key: {text}"))


def test_lines_are_those_of_the_file() -> None:
    """Every field knows the line it stands in, blank lines, comments and CRLF notwithstanding."""
    text = "---\r\n\r\n# note\r\na: 1\r\nb:\r\n  - x\r\n  - {c: 2,\r\n     d: 3}\r\n---\r\n"

    lines = parse(text.encode()).lines

    assert {"a": 4, "b": 5, "b[0]": 6, "b[1]": 7, "b[1].c": 7, "b[1].d": 8} == {k: v for k, v in lines.items() if k}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("duplicate key", "a: 1\nb: 2\na: 3", [("SPEC-029", 4)]),
        ("duplicate key in another quoting", "a: 1\n'a': 3", [("SPEC-029", 3)]),
        ("nested duplicate key", "s: {read: [], read: [/etc]}", [("SPEC-029", 2)]),
        ("anchor and alias", "a: &x 1\nb: *x", [("SPEC-027", 2), ("SPEC-027", 3)]),
        ("merge key", "<<: {a: 1}", [("SPEC-027", 2)]),
        ("python tag", "a: !!python/object/apply:os.system [id]", [("SPEC-028", 2)]),
        ("standard tag", "a: !!str 1", [("SPEC-028", 2)]),
        ("own tag on a key", "!x a: 1", [("SPEC-028", 2)]),
        ("directive", "%YAML 1.1\na: 1", [("SPEC-024", 3)]),
        ("second document", "a: 1\n...\nb: 2", [("SPEC-024", 4)]),
        ("list as a key", "? [a]\n: 1", [("SPEC-030", 2)]),
        ("empty key", "'': 1", [("SPEC-030", 2)]),
        ("line break in a key", '"a\\nb": 1', [("SPEC-030", 2)]),
        ("not a mapping", "- a", [("SPEC-025", 2)]),
        ("nothing", "", [("SPEC-025", 2)]),
        ("open quotation", "a: 'x", [("SPEC-024", 3)]),
        ("tab as indentation", "a:\n\tb: 1", [("SPEC-024", 3)]),
        ("right-to-left override", "a: \u202etxt", [("SPEC-021", 2)]),
        ("zero-width space", "a\u200b: 1", [("SPEC-021", 2)]),
        ("tag characters", "a: x\U000e0041", [("SPEC-021", 2)]),
        ("next line", "a: x\x85b: 2", [("SPEC-021", 2)]),
        ("line separator", "a: x\u2028b: 2", [("SPEC-021", 2)]),
        ("lone carriage return", "a: x\rb: 2", [("SPEC-021", 2)]),
        ("escape character", "a: x\x1b[2J", [("SPEC-021", 2)]),
        ("escaped NUL", 'a: "x\\0"', [("SPEC-021", 2)]),
        ("escaped override", 'a: "\\u202e"', [("SPEC-021", 2)]),
    ],
)
def test_what_could_surprise_a_reviewer_is_refused(name: str, text: str, expected: list[tuple[str, int]]) -> None:
    """Each part of YAML that reads differently than it looks is refused with its line."""
    assert expected == faults(matter(text)), name


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "SPEC-022"),
        (b"name: x\n", "SPEC-022"),
        (b"\n---\na: 1\n---\n", "SPEC-022"),
        (b" ---\na: 1\n---\n", "SPEC-022"),
        (b"----\na: 1\n----\n", "SPEC-022"),
        (b"---\na: 1\n", "SPEC-022"),
        (b"---\na: 1\n----\n", "SPEC-022"),
        (b"---\na: \xff\n---\n", "SPEC-020"),
        ("---\na: 1\n---\n".encode("utf-16"), "SPEC-020"),
        (b"---\na: 1\n---\nbody \x00\n", "SPEC-021"),
        (b"---\n" + b"#" * MAX_MANIFEST_BYTES + b"\n---\n", "SPEC-012"),
    ],
)
def test_files_that_are_no_front_matter_are_refused(data: bytes, expected: str) -> None:
    """A file without two plain `---` lines, in another encoding or too large is refused."""
    assert [expected] == [found for found, _ in faults(data)]


def test_a_byte_order_mark_is_read_and_told() -> None:
    """A UTF-8 mark, as some editors write it, changes nothing but is reported."""
    document = parse("\ufeff---\na: 1\n---\n".encode())

    assert Document({"a": 1}, {"": 2, "a": 2}, {"a": "1"}, (), mark=True) == document


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep flow sequence", "a: " + "[" * 100_000),
        ("deep flow mapping", "a: " + "{a: " * 50_000),
        ("deep block", "\n".join(" " * i + "a:" for i in range(500))),
        ("deep compact sequence", "- " * 100_000),
        ("many items", "a: [" + "1," * 100_000 + "]"),
        ("many keys", "\n".join(f"k{i}: 1" for i in range(20_000))),
        (
            "billion laughs",
            "a: &a [x,x]\n" + "\n".join(f"{c}: &{c} [*{p},*{p}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
        ),
        ("long key above many items", "k" * 200_000 + ": [" + "1," * 5000 + "]"),
        (
            "long keys, deep",
            "\n".join(" " * i + "k" * 250 + ":" for i in range(60)) + "\n" + (" " * 60 + "- 1\n") * 3000,
        ),
        ("long number", "a: " + "9" * 200_000),
        ("many tags", "a: " + "!" * 200_000),
        ("many anchors", "a: " + "&a " * 80_000),
        ("many colons", "a: " * 80_000),
        ("open quotation", "a: '" + "x" * 200_000),
        ("many question marks", "? " * 100_000),
        ("comments", "#" * 200_000 + "\na: 1"),
        ("empty lines", "\n" * 250_000 + "a: 1"),
    ],
)
def test_bombs_end_quickly_in_a_fault_or_a_value(name: str, text: str) -> None:
    """No front matter within the size bound takes noticeable time, whatever it nests or repeats."""
    started = time.process_time()
    found = faults(matter(text)[:MAX_MANIFEST_BYTES])
    spent = time.process_time() - started

    assert all(found_id.startswith("SPEC-") for found_id, _ in found), name
    assert spent < 2, name


def test_bounds_hold_exactly() -> None:
    """Depth and number of values are admitted up to the bound and refused one above."""
    deep = parse(matter("a: " + "[" * (MAX_YAML_DEPTH - 1) + "]" * (MAX_YAML_DEPTH - 1)))
    wide = parse(matter("a: [" + "1," * (MAX_YAML_NODES - 3) + "]"))

    assert deep.faults == wide.faults == ()
    assert [("SPEC-032", 2)] == faults(matter("a: " + "[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH))
    assert [("SPEC-032", 2)] == faults(matter("a: [" + "1," * (MAX_YAML_NODES - 2) + "]"))


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2", "%YAML 1.1\n---\na: 1", "%TAG ! x:\n---\na: 1"])
def test_a_document_after_the_first_is_never_taken_for_it(text: str) -> None:
    """The splitter lets neither directives nor further documents through; the builder would refuse them as well."""
    with pytest.raises(FrontMatterError) as caught:
        _Builder(1).build(yaml.parse(text))

    assert ["SPEC-026"] == [fault.id for fault in caught.value.faults]
