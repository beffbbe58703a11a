"""URI properties.

*Any text is either refused or forwarded in a form that is checked again to itself, and no decoding, folding or joining
of that form names anything outside the roots.*
"""

from __future__ import annotations

import posixpath
import unicodedata
from urllib.parse import quote, unquote, urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import CallRefused
from sandbox.serve.paths import Checked, Roots, check_path
from sandbox.serve.readings import TooManyReadings, readings
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules, check_reference, check_uri

ROOTS = ("/data/a", "/srv")
RULES = UriRules(Roots(ROOTS), "/data/a/w", (Template("m://{x}/{+y}"),), lambda _host, _port: None)

PIECES = [
    "..", ".", "/", "//", "\\", "%2e", "%2E", "%2f", "%5c", "%252e", "%25", "%", "%00", "%c0%ae", "%c0%af", "%u002e",
    "．", "／", "∕", "‥", "․", "\u200b", "\u202e", " ", ";", "?", "#", ":", "@", "data", "a", "srv", "_evil", "etc",
    "passwd", "é", "e\u0301", "C:",
    "~", "-", "\n", "\0", "localhost", "127.0.0.1", "0x7f", "[::1]", "example.com", "{", "}", "&", "=",
]  # fmt: skip
pieces = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12).map("".join)
heads = st.sampled_from(
    [
        "",
        "/",
        "/data/a/",
        "/data/a",
        "/srv/",
        "./",
        "file:///data/a/",
        "file:///",
        "file:",
        "http://",
        "https://h/",
        "m://x/",
        "m:",
    ]
)
texts = st.builds(str.__add__, heads, pieces)
names = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/"), min_size=1, max_size=40)


def inside(path: str) -> bool:
    """Return whether a path is lexically a root or below one."""
    plain = posixpath.normpath(path)
    return any(plain == root or plain.startswith(root + "/") for root in ROOTS)


def meanings(path: str) -> set[str]:
    """Return what servers make of a path: decoded, folded, with backslashes as slashes, cut at NUL."""
    found = {path}
    for _ in range(3):
        found |= {unquote(each, errors="replace") for each in found}
    found |= {unicodedata.normalize(form, each) for each in found for form in ("NFC", "NFD", "NFKC", "NFKD")}
    found |= {each.replace("\\", "/") for each in found}
    return found | {each.split("\0")[0] for each in found}


def attempt(check: object, *args: object) -> Checked | None:
    """Return what a check forwards, or ``None`` when it refuses; nothing else may be raised."""
    try:
        return check(*args)  # type: ignore[operator, no-any-return]
    except CallRefused:
        return None


@given(texts)
@settings(max_examples=1000, deadline=None)
@example("/data/a/..%c0%af..%c0%afetc/passwd")
@example("/data/a/.\u200b./.\u200b./etc")
def test_an_accepted_path_stays_below_its_root(text: str) -> None:
    """Every meaning of an accepted path lies inside a root, and checking it again changes nothing."""
    checked = attempt(check_path, text, RULES.roots, RULES.cwd)
    if checked is None:
        return

    assert {each for each in meanings(checked.text) if not inside(each)} == set()
    assert check_path(checked.text, RULES.roots) == checked


@given(texts)
@settings(max_examples=1000, deadline=None)
def test_an_accepted_uri_is_confined(text: str) -> None:
    """An accepted file URI names something inside a root in every meaning; an http URI has one host."""
    checked = attempt(check_uri, text, RULES)
    if checked is None:
        return

    assert check_uri(checked.text, RULES) == checked
    if checked.kind == "file":
        assert {each for each in meanings(urlsplit(checked.text).path) if ".." in each.split("/")} == set()
        assert inside(checked.path)
        assert unquote(urlsplit(checked.text).path).rstrip("/") == checked.path.rstrip("/")
    if checked.kind == "http":
        parts = urlsplit(checked.text)
        assert (parts.scheme, parts.hostname, parts.username) == (checked.scheme, checked.host.strip("[]"), None)


@given(texts)
@settings(max_examples=400, deadline=None)
def test_an_accepted_reference_is_an_accepted_uri(text: str) -> None:
    """What a reference resolves to is accepted as the URI it is."""
    checked = attempt(check_reference, text, RULES)

    assert checked is None or check_uri(checked.text, RULES) == checked


@given(texts)
@settings(max_examples=1000, deadline=None)
def test_an_accepted_relative_name_stays_below_anything(text: str) -> None:
    """A relative name joined to any directory, in any meaning, stays below it."""
    checked = attempt(check_path, text, RULES.roots, "", "relative")
    if checked is None:
        return

    for each in meanings(checked.text):
        joined = posixpath.normpath(posixpath.join("/some/dir", each))
        assert joined == "/some/dir" or joined.startswith("/some/dir/")


@given(names)
@settings(max_examples=1000, deadline=None)
def test_a_name_without_a_second_meaning_is_accepted(name: str) -> None:
    """A file name is accepted unless one of its own readings climbs, is absolute or has control characters."""
    try:
        odd = any(
            unicodedata.category(character) == "Cc" for reading in readings(name) for character in reading
        ) or any("/" in reading or "\\" in reading or ".." in reading or ". " in reading for reading in readings(name))
    except TooManyReadings:
        return
    if odd or name == ".":
        return

    assert check_path(f"/data/a/{name}", RULES.roots).text == f"/data/a/{name}"
    assert check_uri(f"file:///data/a/{quote(name)}", RULES).path == f"/data/a/{name}"
