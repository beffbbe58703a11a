"""Kinds of text that stand in manifests, each with its grammar, bound and reason.

Everything here ends as one element of an argument vector, one environment variable, one label or one field of an engine
request, never as part of a shell command; the grammars keep it that way even where a later stage is careless (probe
D03). Patterns taken from the AIP schemas are written in their ASCII meaning.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from sandbox.limits import KIB
from sandbox.spec.shape import fault
from sandbox.spec.versions import is_range, is_version

MAX_TEXT_CHARS: Final = 2000
"""A description (AIP-30, AIP-14, AIP-19)."""

MAX_WORD_CHARS: Final = 4 * KIB
"""A path, URL, argument or value. Linux refuses one argument above 128 KiB."""

_LINE: Final = re.compile(r"[^\x00-\x1f\x7f]*")
_NPM_NAME: Final = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NPM_RANGE: Final = re.compile(r"[0-9A-Za-z.^~<>=|*+ -]+")
_PIP: Final = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"  # name, PEP 508
    r"(?:\[[A-Za-z0-9._-]+(?:, ?[A-Za-z0-9._-]+)*\])?"  # extras
    r"(?: ?(?:==|!=|<=|>=|<|>|~=) ?[A-Za-z0-9.*+!_-]+(?: ?, ?(?:==|!=|<=|>=|<|>|~=) ?[A-Za-z0-9.*+!_-]+)*)?"
)
_APT: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+~:-]+)?")
_IMAGE: Final = re.compile(
    r"sha256:[a-f0-9]{64}"  # an image id
    r"|(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"  # registry
    r"|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*"  # repository
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"  # tag
    r"(?:@sha256:[a-f0-9]{64})?"  # digest
)
_MAX_IMAGE_CHARS: Final = 512
_MAX_NPM_NAME: Final = 214
"""npm's own bound of a package name."""


def line(text: str) -> str:
    """Accept text without line breaks, tabs and other controls."""
    if not _LINE.fullmatch(text):
        raise fault("SPEC-046", "the text has a line break or control character", mend="write it on one line")
    return text


def no_placeholder(text: str) -> str:
    """Accept text in which nothing waits to be substituted."""
    if "${" in text:
        raise fault(
            "SPEC-072",
            "nothing is substituted here, least of all a secret: arguments and paths are visible to every process",
            allowed="literal text",
            mend="pass the value in `server.env`",
        )
    return text


def unique(items: list[str]) -> list[str]:
    """Accept a list whose entries differ."""
    if len(set(items)) != len(items):
        raise fault("SPEC-045", "an entry stands here twice", allowed="different entries", mend="remove the second")
    return items


def semantic_version(text: str) -> str:
    """Accept a semantic version."""
    if not is_version(text):
        raise fault("SPEC-047", "this is not a semantic version", allowed="such as `1.4.0`", mend="write all 3 numbers")
    return text


def npm_range(text: str) -> str:
    """Accept a range as npm reads it."""
    if not is_range(text):
        raise fault(
            "SPEC-048", "this is not an npm version range", allowed="such as `^1.0.0` or `>=2.40 <3`", mend="correct it"
        )
    return text


def npm_package(text: str) -> str:
    """Accept ``name``, ``name@version`` or ``name@range`` of the npm registry, never a URL, path, alias or tag."""
    at = text.find("@", 1)
    name, wanted = (text, "") if at < 0 else (text[:at], text[at + 1 :])
    good = len(name) <= _MAX_NPM_NAME and _NPM_NAME.fullmatch(name) is not None
    if not good or (at > 0 and not (_NPM_RANGE.fullmatch(wanted) and is_range(wanted))):
        raise fault(
            "SPEC-073",
            "this does not name a package of the npm registry",
            allowed="`name`, `@scope/name`, either with `@1.2.3` or `@^1.2`; no URL, git, file, alias or tag",
            mend="name the package, and a version if it matters",
        )
    return text


def pip_package(text: str) -> str:
    """Accept a PEP 508 requirement without URL and marker."""
    if not _PIP.fullmatch(text):
        raise fault(
            "SPEC-073",
            "this does not name a package of the Python registry",
            allowed="`name`, `name[extra]`, `name==1.2.3`; no URL, path or option",
            mend="name the package, and a version if it matters",
        )
    return text


def apt_package(text: str) -> str:
    """Accept a Debian package name, optionally ``=version``."""
    if not _APT.fullmatch(text):
        raise fault(
            "SPEC-073",
            "this does not name a Debian package",
            allowed="`name` or `name=version`",
            mend="name one package",
        )
    return text


def image_reference(text: str) -> str:
    """Accept an OCI image reference (distribution specification) or an image id."""
    if len(text) > _MAX_IMAGE_CHARS or not _IMAGE.fullmatch(text):
        raise fault(
            "SPEC-074",
            "this is not an image reference",
            allowed="`[registry/]name[:tag][@sha256:<64 hex>]` or `sha256:<64 hex>`",
            mend="write the reference alone; options cannot be added to it",
        )
    return text


def https_url(text: str) -> str:
    """Accept an https URL without credentials and fragment."""
    return _url(text, ("https",))


def server_url(text: str) -> str:
    """Accept the URL of a remote server; plain http is for the operator to allow, host by host (PLAN-062)."""
    return _url(text, ("https", "http"))


def _url(text: str, schemes: tuple[str, ...]) -> str:
    parts = _split(text)
    if parts is None or parts.scheme not in schemes or not parts.hostname:
        raise fault(
            "SPEC-075",
            "this is not an https URL",
            allowed="`https://host[:port]/path`; plain http is refused (AIP-32 ADAPTER)",
            mend="write the https address",
            secret="@" in text,
        )
    if parts.username is not None or parts.password is not None or parts.fragment or "\\" in text or " " in text:
        raise fault(
            "SPEC-075",
            "the URL holds credentials, a fragment, a space or a backslash",
            allowed="`https://host[:port]/path`",
            mend="remove them; credentials belong into SECRETS.md",
            secret=True,
        )
    return text


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - parses the port
    except ValueError:
        return None
    return parts


Line = Annotated[str, Field(max_length=MAX_WORD_CHARS), AfterValidator(line)]
"""One line, possibly empty."""

Word = Annotated[str, Field(min_length=1, max_length=MAX_WORD_CHARS), AfterValidator(line)]
"""One line, not empty."""

Plain = Annotated[Line, AfterValidator(no_placeholder)]
"""One line in which nothing is substituted."""

PlainWord = Annotated[Word, AfterValidator(no_placeholder)]
"""The same, not empty."""

Name = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(line)]
Description = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
Version = Annotated[
    str,
    Field(max_length=256, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z_.-]+)?$"),
    AfterValidator(semantic_version),
]
"""AIP-30, AIP-14 ``version``: their pattern, and a semantic version at that."""

Range = Annotated[str, AfterValidator(npm_range)]
Tag = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Tags = Annotated[list[Tag], AfterValidator(unique)]
Duration = Annotated[str, Field(max_length=64, pattern=r"^P(T)?[^\s]+$")]
Sha256 = Annotated[str, Field(pattern=r"^[a-f0-9]{64}$")]
NpmPackage = Annotated[Line, AfterValidator(npm_package)]
PipPackage = Annotated[Line, AfterValidator(pip_package)]
AptPackage = Annotated[Line, AfterValidator(apt_package)]
ImageReference = Annotated[Line, AfterValidator(image_reference)]
HttpsUrl = Annotated[Line, AfterValidator(https_url)]
ServerUrl = Annotated[Line, AfterValidator(server_url)]
Url = Word
"""A URL that is only kept, never fetched."""
