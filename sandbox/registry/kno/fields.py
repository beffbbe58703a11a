"""Every field of an ``mcp-server`` entity: its form, and the release of the schema that brought it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

Check = Callable[[Any], str]
"""Returns what is wrong with a value, empty when nothing is."""

ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
SLUG: Final = re.compile(r"pspace-[a-z0-9-]+-mcp")
NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
PATH: Final = re.compile(r"/mcp/[a-z0-9-]+")
SCOPE: Final = re.compile(r"pspace:[a-z0-9-]+:[a-z0-9-]+")
META_KEY: Final = re.compile(r"[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+(/[a-zA-Z0-9._*-]*)?")
SIZE: Final = re.compile(r"\d+x\d+|any", re.ASCII)
VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0")


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        check: of its value.
        allowed: for messages.
        required: it must be there.
        since: release that brought it.
    """

    check: Check
    allowed: str
    required: bool = False
    since: str = "0.1.0"


def text(least: int = 1, most: int = 10_000, pattern: re.Pattern[str] | None = None) -> Check:
    """Return a check of text by length and pattern."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            return "it is no text"
        if not least <= len(value) <= most:
            return f"it has {len(value)} characters"
        return "" if pattern is None or pattern.fullmatch(value) else "it has another form"

    return check


def one_of(*values: str) -> Check:
    """Return a check of one of some words."""
    return lambda value: "" if isinstance(value, str) and value in values else "it is none of them"


def url(*schemes: str) -> Check:
    """Return a check of an absolute URL."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or re.search(r"\s", value):
            return "it is no URL"
        parts = urlsplit(value)
        return "" if parts.scheme in schemes and parts.netloc else "it is no absolute URL"

    return check


def list_of(item: Check, least: int = 0) -> Check:
    """Return a check of a list by its items."""

    def check(value: Any) -> str:
        if not isinstance(value, list):
            return "it is no list"
        if len(value) < least:
            return f"it has fewer than {least} items"
        return next((f"item {place}: {wrong}" for place, one in enumerate(value) if (wrong := item(one))), "")

    return check


def members(required: dict[str, Check], optional: dict[str, Check]) -> Check:
    """Return a check of an object by its members."""

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return "it is no object"
        missing = [name for name in required if name not in value]
        if missing:
            return f"`{missing[0]}` is missing"
        for name, one in value.items():
            known = required.get(name) or optional.get(name)
            if known is None:
                return f"`{name}` is not known"
            if wrong := known(one):
                return f"`{name}`: {wrong}"
        return ""

    return check


def anything(_value: Any) -> str:
    """Accept what is kept as it is."""
    return ""


def objects(value: Any) -> str:
    """Accept an object."""
    return "" if isinstance(value, dict) else "it is no object"


def sizes(value: Any) -> str:
    """Check ``48x48 96x96``."""
    good = isinstance(value, str) and value.split() and all(SIZE.fullmatch(one) for one in value.split())
    return "" if good else "it is no list of WxH"


def icon_source(value: Any) -> str:
    """Check an icon's address: absolute, or without a scheme, which stands for https."""
    return url("https", "http", "")(value) if isinstance(value, str) and len(value) <= 255 else "it is too long"  # noqa: PLR2004


FIELDS: Final[dict[str, Field]] = {
    "$schema": Field(text(), "kno@0.0.9, or a release of the mcp-server schema"),
    "id": Field(text(pattern=ULID), "a ULID", required=True),
    "slug": Field(text(pattern=SLUG), "pspace-…-mcp", required=True),
    "type": Field(one_of("service-config"), "service-config", required=True),
    "subtype": Field(one_of("mcp-server"), "mcp-server", required=True),
    "version": Field(text(pattern=SEMVER), "a semantic version", required=True),
    "endpoint_path": Field(text(pattern=PATH), "/mcp/… in lower case", required=True),
    "description": Field(text(1, 100), "1 to 100 characters", required=True),
    "required_scopes": Field(list_of(text(pattern=SCOPE)), "a list of pspace:…:…", required=True),
    "name": Field(text(3, 200, NAME), "reverse-DNS namespace, a slash and a name", since="0.2.0"),
    "title": Field(text(1, 100), "1 to 100 characters"),
    "remotes": Field(
        list_of(
            members(
                {"type": one_of("streamable-http", "sse"), "url": text()}, {"headers": objects, "variables": objects}
            ),
            least=1,
        ),
        "a list of {type, url, headers, variables}",
        since="0.2.0",
    ),
    "repository": Field(
        members(
            {"url": url("https", "http"), "source": one_of("github", "gitlab", "bitbucket", "other")},
            {"subfolder": text()},
        ),
        "{url, source, subfolder}",
        since="0.2.0",
    ),
    "icons": Field(
        list_of(members({"src": icon_source}, {"mimeType": text(), "sizes": sizes, "theme": one_of("light", "dark")})),
        "a list of {src, mimeType, sizes, theme}",
        since="0.2.0",
    ),
    "websiteUrl": Field(url("https", "http"), "a URL", since="0.2.0"),
    "_meta": Field(objects, "an object", since="0.2.0"),
    "auth": Field(one_of("none", "bearer"), "none or bearer", since="0.3.0"),
    "visibility": Field(
        one_of("public", "authenticated", "internal", "restricted"),
        "public, authenticated, internal or restricted",
        since="0.5.0",
    ),
    "purpose": Field(text(most=100_000), "text"),
    "provenance": Field(objects, "an object"),
    "taxonomy": Field(objects, "an object"),
    "relationships": Field(objects, "an object"),
    "quality": Field(objects, "an object"),
    "_history": Field(objects, "an object"),
}
"""Field → its form. Those after ``visibility`` are inherited from documents: kept, and not projected."""
