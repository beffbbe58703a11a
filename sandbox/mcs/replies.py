"""Finds the call in what a model answered: a text, a message, a native call. Pure; nothing is ever evaluated.

A model's answer is untrusted twice over: the model errs, and it quotes what tools gave it, which may have been written
to be taken for a call. So a call is only what stands as one, and whatever could be read in two ways is none (ADR 0116):

1. the answer has at most ``MAX_REPLY`` characters, and is Unicode text
2. a call stands alone: the whole answer is its JSON, or one fenced block (untagged, or tagged ``json``), or it begins
   and ends on lines of its own outside of fences; in a sentence, a quotation or a block of another language it is text
3. its JSON is strict: no member twice, no comments, bounded depth
4. it is ``{"tool": name, "arguments": {…}}`` (``name`` may stand for ``tool``) with nothing else but ``id`` and
   ``type``; an array of calls is several calls, in that order
5. one place of the answer calls, not two; and no other place names a known tool in the form of a call

What breaks a rule and names a known tool is a *problem*, which the model is told. What names no known tool is no call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox import jsontext

MAX_REPLY: Final = 1024 * 1024
"""Characters of one answer; models write at most some 400 000."""

MAX_CALLS: Final = 16
"""Calls of one answer."""

MAX_PLACES: Final = 1_000
"""Places of one answer that are read as JSON; what follows them is text."""

_FENCE: Final = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*(?P<tag>[A-Za-z0-9_+-]*)[ \t]*\r?")
_TAGS: Final = frozenset(("", "json", "tool_call", "tool"))
_MEMBERS: Final = frozenset(("tool", "name", "arguments", "id", "type"))
_NAMED: Final = re.compile(r'["\'](?:tool|name)["\']\s*:\s*["\'](?P<name>[^"\'\n]{1,256})["\']')
_TOKEN: Final = re.compile(r'[{}\[\]]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?$)', re.DOTALL)
_BEGIN: Final = re.compile(r" {0,3}(?=[{\[])")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a model asks for."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer asks for.

    Attributes:
        calls: in order; empty when there is none.
        problem: why what looks like a call is not carried out, for the model; empty otherwise.
    """

    calls: tuple[Call, ...] = ()
    problem: str = ""


class _Unclear(Exception):
    """Something has the form of a call and breaks a rule; its text says which."""


def read(reply: object, known: Collection[str]) -> Reading:
    """Return what an answer asks for; never raises.

    Args:
        reply: text, or a message as a dictionary: ``content``, ``tool_calls``, content blocks, or a call itself.
        known: names of the tools.
    """
    try:
        calls = _of_message(reply, known) if isinstance(reply, Mapping) else _of_text(str(reply), known)
        _check_together(calls, known)
    except _Unclear as error:
        return Reading(problem=str(error))
    return Reading(tuple(calls))


def _check_together(calls: list[Call], known: Collection[str]) -> None:
    """Check several calls: all are carried out, or none is begun."""
    if len(calls) > MAX_CALLS:
        raise _Unclear(f"more than {MAX_CALLS} calls in one answer")
    ours = [call.tool in known for call in calls]
    if any(ours) and not all(ours):
        stranger = calls[ours.index(False)].tool
        raise _Unclear(f"one of several calls names a tool that does not exist: {stranger[:80]!r}")


# --- messages -------------------------------------------------------------------------------------------------------
def _of_message(reply: Mapping[str, Any], known: Collection[str]) -> list[Call]:
    if "tool_calls" in reply:
        if "tool" in reply:
            raise _Unclear("the message has `tool` and `tool_calls`")
        return _native(reply["tool_calls"])
    if "tool" in reply or ("name" in reply and "arguments" in reply):
        return [_call(reply, known)]
    content = reply.get("content")
    if isinstance(content, str):
        return _of_text(content, known)
    if isinstance(content, list):
        used = [one for one in content if isinstance(one, Mapping) and one.get("type") == "tool_use"]
        return [_checked(one.get("name"), one.get("input")) for one in used]
    return []


def _native(calls: Any) -> list[Call]:
    """Return the calls of a ``tool_calls`` member, whose arguments are JSON texts."""
    found: list[Call] = []
    for one in calls if isinstance(calls, list) else []:
        function = one.get("function") if isinstance(one, Mapping) else None
        if not isinstance(function, Mapping):
            raise _Unclear("a member of `tool_calls` has no `function`")
        given = function.get("arguments", {})
        found.append(_checked(function.get("name"), _parsed(given or "{}") if isinstance(given, str) else given))
    return found


# --- texts ----------------------------------------------------------------------------------------------------------
def _of_text(text: str, known: Collection[str]) -> list[Call]:
    if len(text) > MAX_REPLY:  # 1
        raise _Unclear(f"the answer is longer than {MAX_REPLY} characters")
    found: list[list[Call]] = []
    rest: list[str] = []
    places = 0
    for standing, part in _parts(text):  # 2
        places += standing
        calls = _calls(part, known) if standing and places <= MAX_PLACES else None
        if calls is None:
            rest.append(part)
        elif calls:
            found.append(calls)
    if len(found) > 1:  # 5
        raise _Unclear("the answer has calls in several places")
    quoted = next((match["name"] for part in rest for match in _NAMED.finditer(part) if match["name"] in known), None)
    if quoted is not None:
        raise _Unclear(f"`{quoted}` is named in the form of a call, but the call does not stand alone or is no JSON")
    return found[0] if found else []


def _calls(part: str, known: Collection[str]) -> list[Call] | None:
    """Return the calls of what stands alone, nothing when it is other JSON, ``None`` when it is no JSON."""
    try:
        value = _parsed(part)  # 3
    except _Unclear:
        return None
    if isinstance(value, Mapping) and "tool_calls" in value:
        return _of_message(value, known)
    values = value if isinstance(value, list) else [value]
    called = [_called(one) for one in values]
    if not any(called):
        return None if _NAMED.search(part) else []
    if not all(called):
        raise _Unclear("an array holds calls and other things")
    return [_call(one, known) for one in values]


def _called(value: Any) -> bool:
    return isinstance(value, Mapping) and ("tool" in value or ("name" in value and "arguments" in value))


def _call(value: Mapping[str, Any], known: Collection[str]) -> Call:
    """Return the call of an object of that form (4)."""
    if "tool" in value and "name" in value:
        raise _Unclear("a call has `tool` and `name`")
    name = value.get("tool", value.get("name"))
    call = _checked(name, value.get("arguments", {}))
    strange = sorted(str(key) for key in value.keys() - _MEMBERS)
    if strange and call.tool in known:
        raise _Unclear(f"a call has the member {strange[0][:80]!r}; arguments stand in `arguments`")
    return call


def _checked(name: Any, arguments: Any) -> Call:
    if not isinstance(name, str) or not name:
        raise _Unclear("a call names no tool")
    if not isinstance(arguments, dict):
        raise _Unclear(f"the arguments of `{name[:80]}` are no object")
    return Call(name, arguments)


def _parsed(text: str) -> Any:
    try:
        return jsontext.parse(text.strip().encode())
    except (jsontext.JsonTextError, UnicodeEncodeError) as error:
        raise _Unclear(f"the arguments are no strict JSON: {error}") from None


# --- places ---------------------------------------------------------------------------------------------------------
def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of an answer, each with whether a call could stand there (2)."""
    if text.lstrip()[:1] in {"{", "["} and _end(text, len(text) - len(text.lstrip())) == len(text.rstrip()):
        yield True, text
        return
    prose: list[str] = []
    block: list[str] = []
    fence: re.Match[str] | None = None
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if fence is None and match is not None:
            yield from _standing("\n".join(prose))
            fence, prose, block = match, [], []
        elif fence is None:
            prose.append(line)
        elif match is not None and not match["tag"] and match["mark"].startswith(fence["mark"]):
            yield fence["tag"].lower() in _TAGS, "\n".join(block)
            fence = None
        else:
            block.append(line)
    if fence is None:
        yield from _standing("\n".join(prose))
    else:  # a fence that is not closed ends with the answer (CommonMark, section 4.5)
        yield fence["tag"].lower() in _TAGS, "\n".join(block)


def _standing(prose: str) -> Iterator[tuple[bool, str]]:
    """Yield the JSON values of prose that begin and end on lines of their own, and what is between them."""
    start = at = 0
    while at < len(prose):
        ending = prose.find("\n", at)
        ending = len(prose) if ending < 0 else ending
        first = _BEGIN.match(prose, at)
        if first is not None:
            end = _end(prose, first.end())
            if end < 0:
                break  # not closed: everything behind it may be inside
            ending = prose.find("\n", end)
            ending = len(prose) if ending < 0 else ending
            if not prose[end:ending].strip():
                yield False, prose[start:at]
                yield True, prose[at:end]
                start = ending
        at = ending + 1
    yield False, prose[start:]


def _end(text: str, start: int) -> int:
    """Return where the JSON value that begins at an opening bracket ends, -1 when it does not; linear."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth <= 0:
                return token.end()
    return -1
