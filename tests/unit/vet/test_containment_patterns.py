"""Automata mean what regular-expression engines mean, and what engines disagree about is never a reason to say yes."""

from __future__ import annotations

import itertools
import re
import sys

import pytest

from sandbox.vet.containment import No, Relation, Unknown, Yes, charset, compare, contained
from sandbox.vet.containment.automaton import Dfa, build
from sandbox.vet.containment.budget import Budget
from sandbox.vet.containment.reference import TooCostlyError, searches
from sandbox.vet.containment.regex import Reading, UnsupportedError, parse
from sandbox.vet.containment.strings import Box, Lexicon

SUPPORTED = (
    "a", "^a$", "^a*$", "a$", "^[a-c]{2,3}$", "(ab)*", "^(?!foo).*$", r"^\d+$", r"^\w+\s?$", "$^", "a|^b$|c$", "^$", "",
    "^(a|b)*abb$", "[^a]", r"\.", "a$\\n", "^(?=.*a)(?=.*b).{2,}$", "x*$", "(^a|b$)", "\\n$", "^.$", "(?:a$|b)\\n?",
    "^(?:a|b(?:c|d)?)+$", "a{0}b", "a{2,}", "^[^\\n]*$", "^a{1,2}?b", "[a\\-f]", "[.$^]", "\\x61\\u0062",
)  # fmt: skip
UNSUPPORTED = (
    r"\bfoo", r"(a)\1", "(?<=a)b", "a(?=b)c", r"\p{L}", "(?i)a", "a++", "[[a]]", "[]a]", "(?P<n>a)", "(?<n>a)", r"\Z",
    "a{,3}", "(", "a)", "*a", r"\ud83d", "[a--b]", "[b-a]", "a{3,2}", r"\cA", "^*", "(?#x)a", "(?>a)", "a**",
)  # fmt: skip
ALPHABET = "ab\nfox1 é."


def automaton(pattern: str, reading: Reading) -> Dfa:
    """Return the automaton of a pattern."""
    return build(parse(pattern, reading), reading, Budget(10_000_000))


@pytest.mark.parametrize("pattern", SUPPORTED)
def test_the_python_reading_is_that_of_re(pattern: str) -> None:
    """On every string of up to four letters the automaton and ``re.search`` agree."""
    dfa, compiled = automaton(pattern, Reading.PYTHON), re.compile(pattern)
    words = ("".join(letters) for size in range(5) for letters in itertools.product(ALPHABET, repeat=size))

    assert [] == [word for word in words if dfa.matches(word) != bool(compiled.search(word))]


ECMA = [
    ("^a$", "a\n", False), (r"^\d$", "\u0661", False), (r"^\w$", "é", False), (r"^\s$", "\ufeff", True),
    (r"^\s$", "\x1c", False), ("^.$", "\r", False), ("^.$", "\u2028", False), (r"^\S$", "\xa0", False),
    ("^.$", "\U0001f409", True),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "matches"), ECMA)
def test_the_ecma_reading_is_that_of_the_specification(pattern: str, text: str, matches: bool) -> None:
    """Where ECMA-262 differs from Python, the automaton follows it (with the ``u`` flag)."""
    assert matches == automaton(pattern, Reading.ECMA).matches(text)


@pytest.mark.parametrize("pattern", UNSUPPORTED)
def test_what_lies_outside_the_fragment_is_opaque(pattern: str) -> None:
    """A pattern that engines read differently, or not at all, is only known to be equal to itself."""
    for reading in Reading:
        with pytest.raises(UnsupportedError):
            automaton(pattern, reading)

    assert Relation.EQUAL is compare({"pattern": pattern}, {"pattern": pattern})
    assert not isinstance(contained({"pattern": pattern}, {"minLength": 1}), Yes)


@pytest.mark.parametrize("letter", "dws")
def test_python_classes_are_complete(letter: str) -> None:
    """No character beyond those that were asked about belongs to a class."""
    last = charset.python_class(letter)[-1][1]
    beyond = (chr(point) for point in range(last + 1, sys.maxunicode + 1))

    assert not any(re.match(rf"\{letter}", char) for char in beyond)


DISAGREEMENTS = [
    ({"const": "\u0661"}, {"pattern": r"^\d$"}),
    ({"const": "a\n"}, {"pattern": "^a$"}),
    ({"type": "string", "pattern": r"^\d$"}, {"pattern": "^[0-9]$"}),
]


@pytest.mark.parametrize(("a", "b"), DISAGREEMENTS)
def test_engines_that_disagree_leave_it_open(a: object, b: object) -> None:
    """A *yes* that holds for one engine only is not given; neither is a *no*."""
    assert isinstance(contained(a, b), Unknown)


def test_witnesses_are_readable_in_every_engine() -> None:
    """A counterexample avoids characters that engines read differently, even when that makes it longer."""
    answer = contained({"type": "string"}, {"pattern": "^.{0,3}$"})

    assert isinstance(answer, No)
    assert "aaaa" == answer.witness


def test_a_long_bound_is_decided_without_walking_it() -> None:
    """Periodicity decides lengths that no string could be written down for."""
    answer = contained(
        {"type": "string", "minLength": 10**9, "pattern": "^(ab)*c?d*$"}, {"pattern": "^(ab)*c?d*$", "minLength": 5}
    )

    assert isinstance(answer, Yes)


def test_words_are_given_once_and_to_the_last() -> None:
    """Enumerating a finite language yields each word once and ends."""
    lexicon = Lexicon(Reading.ECMA, Budget())
    box = Box(pos=frozenset({"^[ab]{1,2}$"}), neg=frozenset({"^b"}))

    assert ["a", "aa", "ab"] == lexicon.members(box, 10)


def test_catastrophic_backtracking_does_not_happen() -> None:
    """A pattern that would keep a backtracking engine busy for years is answered at once, or not at all."""
    hostile = "a" * 60 + "!"
    answer = contained({"const": hostile}, {"pattern": "^(a+)+$"})

    assert isinstance(answer, No)
    assert hostile == answer.witness
    with pytest.raises(TooCostlyError):
        searches(r"^(a|a)*\b$", hostile)
