r"""Strict matching of URIs against declared RFC 6570 templates.

Matching is the reverse of expansion, and libraries do it with backtracking expressions (CVE-2026-0621 in an SDK) or let
a variable swallow a slash. Here a template becomes a small automaton that is run without backtracking: time is linear
in the URI, whatever the template.

A variable matches at least one character, and never ``/ ? # [ ] \`` or an encoded slash, backslash or NUL. Only
``{+x}`` and ``{#x}`` match slashes; ``{/x*}`` matches segments that each begin with one. What ``..`` means is refused
by the caller, in every reading. Supported: all operators of RFC 6570, explode, prefixes up to :data:`MAX_PREFIX`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_TEMPLATE_CHARS: Final = 2048
"""One template; real ones have fewer than 200 characters."""

MAX_PREFIX: Final = 64
"""``{x:n}``: each character of a prefix is a state of its own."""

MAX_MEMO: Final = 4096
"""Transitions remembered of one template; beyond it the memo starts anew, and only speed is lost."""

_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_.%,:*]+)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z0-9_.%]+)(\*|:[1-9][0-9]{0,3})?")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")

_PAIR, _PLAIN, _RESERVED = 1, 2, 3
"""Classes of characters that a variable takes, each within the next: of a pair of a query, of a segment, any."""

_NOT_PLAIN: Final = frozenset("/?#[]")
_NOT_PAIR: Final = frozenset("&;")
_SEPARATOR: Final = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&"}
_FIRST: Final = {"": "", "+": "", "#": "#", ".": ".", "/": "/", ";": ";", "?": "?", "&": "&"}


class TemplateError(ValueError):
    """The template is not RFC 6570, or not of a form that can be matched strictly; the text says why."""


@dataclass(slots=True)
class _Automaton:
    """States are numbers; an edge takes one character (a text of length one) or one class."""

    edges: list[list[tuple[str | int, int]]] = field(default_factory=lambda: [[]])
    empty: list[list[int]] = field(default_factory=lambda: [[]])

    def state(self) -> int:
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def text(self, at: int, text: str) -> int:
        for character in text:
            after = self.state()
            self.edges[at].append((character, after))
            at = after
        return at

    def some(self, at: int, kind: int, most: int = 0) -> int:
        """Add one or more characters of a class, at most ``most`` when that is not 0."""
        after = self.state()
        if not most:
            self.edges[at].append((kind, after))
            self.edges[after].append((kind, after))
            return after
        for _ in range(most):
            step = self.state()
            self.edges[at].append((kind, step))
            self.empty[step].append(after)
            at = step
        return after

    def closure(self, states: set[int]) -> frozenset[int]:
        pending = list(states)
        while pending:
            for after in self.empty[pending.pop()]:
                if after not in states:
                    states.add(after)
                    pending.append(after)
        return frozenset(states)


class Template:
    """A compiled template.

    Args:
        text: RFC 6570; begins with a literal scheme.

    Raises:
        TemplateError: not such a template.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEMPLATE_CHARS:
            raise TemplateError(f"more than {MAX_TEMPLATE_CHARS} characters")
        scheme = _SCHEME.match(text)
        if scheme is None:
            raise TemplateError("does not begin with a literal, lower-case scheme")
        self.text = text
        self.scheme = scheme[0][:-1]
        self._automaton = _Automaton()
        self._end = self._compile(text)
        self._start = self._automaton.closure({0})
        self._memo: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, uri: str) -> bool:
        """Return whether a URI is an expansion of this template; linear in its length."""
        states, memo = self._start, self._memo
        for character in uri:
            key = (states, character)
            following = memo.get(key)
            if following is None:
                following = self._step(states, character)
            if not following:
                return False
            states = following
        return self._end in states

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        kind = _RESERVED if character in _NOT_PLAIN else _PLAIN if character in _NOT_PAIR else _PAIR
        reached = {
            after
            for state in states
            for label, after in self._automaton.edges[state]
            if label == character or (isinstance(label, int) and kind <= label and character != "\\")
        }
        following = self._automaton.closure(reached)
        if len(self._memo) >= MAX_MEMO:
            self._memo.clear()
        self._memo[(states, character)] = following
        return following

    def _compile(self, text: str) -> int:
        at, position = 0, 0
        for match in _EXPRESSION.finditer(text):
            at = self._automaton.text(at, _literal(text[position : match.start()]))
            at = self._expression(at, match[1], match[2])
            position = match.end()
        return self._automaton.text(at, _literal(text[position:]))

    def _expression(self, at: int, operator: str, listed: str) -> int:
        """Add one expression. With a first character it may be missing whole: its variables may be undefined."""
        automaton = self._automaton
        end = automaton.state()
        if _FIRST[operator]:
            automaton.empty[at].append(end)
        entries = {automaton.text(at, _FIRST[operator])} if _FIRST[operator] else {at}
        for spec in listed.split(","):
            entries = self._variable(entries, operator, spec, end)
        return end

    def _variable(self, entries: set[int], operator: str, spec: str, end: int) -> set[int]:
        """Add one variable that may be entered from several states, and return where the next one may be entered."""
        parsed = _VARIABLE.fullmatch(spec)
        if parsed is None:
            raise TemplateError(f"`{spec}` is not a variable")
        automaton, modifier = self._automaton, parsed[2] or ""
        most = int(modifier[1:]) if modifier.startswith(":") else 0
        if most > MAX_PREFIX:
            raise TemplateError(f"`{spec}` has a prefix longer than {MAX_PREFIX}")
        begin = automaton.state()
        for entry in entries:
            automaton.empty[entry].append(begin)
        value = self._value(begin, operator, parsed[1], most, exploded=modifier == "*")
        automaton.empty[value].append(end)
        again = automaton.text(value, _SEPARATOR[operator])
        if modifier == "*":
            automaton.empty[again].append(begin)
        return {*entries, again}

    def _value(self, begin: int, operator: str, name: str, most: int, *, exploded: bool) -> int:
        automaton = self._automaton
        if operator in ("?", "&", ";"):
            named = automaton.some(begin, _PAIR) if exploded else automaton.text(begin, name)
            equals = automaton.text(named, "=")
            value = automaton.some(equals, _PAIR, most)
            if operator == ";":
                automaton.empty[named].append(value)  # `;x` is an empty x
            else:
                automaton.empty[equals].append(value)  # `?x=`
            return value
        return automaton.some(begin, _RESERVED if operator in ("+", "#") else _PLAIN, most)


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise TemplateError("has a brace outside an expression")
    return text


def match_template(template: Template | str, uri: str) -> bool:
    """Return whether a URI is an expansion of a template."""
    return (template if isinstance(template, Template) else Template(template)).matches(uri)
