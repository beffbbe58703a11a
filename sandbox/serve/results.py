"""What a server answers, before anybody behind us reads it (step 13; J13, J18, J19, J21, J22).

The parts, the same numbers in the code; one walk over the result does 1 to 3:

1. Bound: text and keys together have at most :data:`MAX_RESULT_CHARS` characters.
2. Control: terminal sequences are removed whole, then control characters but tab and line ends, direction overrides and
   invisible tag characters. Joiners, marks and flag emoji stay: they are how some languages and pictures are written.
3. Secrets: known values are replaced (``redact``), in keys and numbers too; binary content with one is replaced whole.
4. ``_meta`` of result and content loses what is reserved, identities and trace context: the server's is not the
   caller's.
5. URIs of links and embedded resources are held to the same rules as those that clients send.
6. ``cacheScope: public`` becomes ``private``: an answer belongs to the tenant that asked.

A result that cannot be made harmless (too large, a URI out of bounds) is a fault of the server, and none of it is
passed on.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import AuditUnavailable, CallRefused, PlatformError, SandboxError, ServerFault, ServerTimeout
from sandbox.limits import MIB
from sandbox.serve.context import clean_meta
from sandbox.serve.redact import Redactor
from sandbox.serve.uris import UriRules, check_uri

MAX_RESULT_CHARS: Final = 12 * MIB
"""Characters of one result. A tool result of 10 MB is legal and seen (limits.MAX_LINE_BYTES)."""

_ANSI: Final = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]?"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\\\|\x9c))?"
    "|\x1b[ -/]{0,16}[0-~]?"
)
_BAD: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,8}\U000e007f")
_TRACE: Final = frozenset(("traceparent", "tracestate"))
_BINARY: Final = frozenset(("data", "blob"))
_TELLING: Final = frozenset(("_meta", "uri", "icons"))
_ASCII_CONTROLS: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_REPLACED: Final = base64.b64encode(b"[redacted]").decode()


@dataclass(slots=True)
class _Counts:
    """What the walk met; ``meta`` and ``points`` tell whether parts 4 and 5 have anything to do."""

    chars: int = 0
    controls: int = 0
    secrets: int = 0
    meta: bool = False
    points: bool = False


class ResultCleaner:
    """Cleans results of one server (``sandbox.serve.calls.Cleaner``).

    Args:
        rules: what URIs in results are held to; ``None`` leaves them, for servers without resources behind this check.
        redactor: secrets that the server was given.
        most: bound of part 1.

    Attributes:
        last: how many control characters and secrets the last result had, for the record.
    """

    def __init__(self, rules: UriRules | None, redactor: Redactor | None = None, most: int = MAX_RESULT_CHARS) -> None:
        self._rules = rules
        self._redactor = redactor or None
        self._most = most
        self.last: Mapping[str, int] = {}

    def clean(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a harmless result; what was harmless is the same.

        Raises:
            ServerFault: ``CALL-060`` too large, ``CALL-061`` a URI out of bounds, ``CALL-062`` two names that cleaning
                makes one.
        """
        counts = _Counts()
        cleaned: dict[str, Any] = self._value(result, counts)  # 1, 2, 3
        self.last = {"controls": counts.controls, "secrets": counts.secrets}
        if counts.meta:
            cleaned = _without_foreign_meta(cleaned)  # 4
        if self._rules is not None and counts.points:
            check_result_uris(cleaned, self._rules)  # 5
        return private_caching(cleaned)  # 6

    def _value(self, value: Any, counts: _Counts) -> Any:
        if isinstance(value, str):
            return self._text(value, counts)
        if isinstance(value, Mapping):
            return self._object(value, counts)
        if isinstance(value, list):
            return [self._value(item, counts) for item in value]
        if self._redactor is not None and isinstance(value, int | float) and self._redactor.finds(str(value)):
            counts.secrets += 1
            return self._redactor.redact(str(value))
        return value

    def _object(self, value: Mapping[str, Any], counts: _Counts) -> dict[str, Any]:
        cleaned = {}
        for name, item in value.items():
            if name in _BINARY and isinstance(item, str) and self._holds_secret(item):
                counts.secrets += 1
                cleaned[name] = _REPLACED
                continue
            plain = self._text(name, counts)
            cleaned[plain] = self._value(item, counts)
            if plain in _TELLING:
                counts.meta |= plain == "_meta"
                counts.points |= plain != "_meta"
        if len(cleaned) != len(value):
            raise ServerFault(
                "CALL-062", "the result has two names that differ only in hidden characters", "report the server"
            )
        return cleaned

    def _holds_secret(self, encoded: str) -> bool:
        return self._redactor is not None and self._redactor.finds(encoded)

    def _text(self, text: str, counts: _Counts) -> str:
        counts.chars += len(text)
        if counts.chars > self._most:
            message = f"the result has more than {self._most} characters"
            raise ServerFault("CALL-060", message, "ask for less, or page through it")
        plain = without_controls(text)
        counts.controls += len(text) - len(plain)
        if self._redactor is None:
            return plain
        safe = self._redactor.redact(plain)
        counts.secrets += safe is not plain
        return safe


def without_controls(text: str) -> str:
    """Return text without terminal sequences, control characters, direction overrides and invisible tags (part 2)."""
    if text.isprintable() or not _has_bad(text):
        return text
    flags = _FLAG.findall(text)
    parts = _FLAG.split(text) if flags else [text]
    plain = [_BAD.sub("", _ANSI.sub("", part)) for part in parts]
    return "".join(part + flag for part, flag in zip(plain, [*flags, ""], strict=True))


def _has_bad(text: str) -> bool:
    if text.isascii():
        data = text.encode("ascii")  # an order of magnitude faster than the expression
        return len(data.translate(None, _ASCII_CONTROLS)) != len(data)
    return _BAD.search(text) is not None


def private_caching(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result that no shared cache may keep (part 6); MCP 2026-07-28, caching."""
    return {**result, "cacheScope": "private"} if result.get("cacheScope", "private") != "private" else result


def result_uris(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield place and text of each URI by which a result points at a resource: links and embedded resources.

    Covers results of ``tools/call`` (``content``), ``prompts/get`` (``messages``) and ``resources/read``
    (``contents``).
    """
    for name in ("content", "contents", "messages"):
        blocks = result.get(name)
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if isinstance(block, Mapping):
                yield from _block_uris(block, f"/{name}/{index}")


def check_result_uris(result: Mapping[str, Any], rules: UriRules) -> None:
    """Hold the URIs of a result to the rules for those that clients send (part 5).

    Raises:
        ServerFault: ``CALL-061``.
    """
    for place, uri in result_uris(result):
        try:
            check_uri(uri, rules)
        except CallRefused as refusal:
            message = f"the result points outside what the server may offer, at {place}: {refusal.message}"
            raise ServerFault(
                "CALL-061", message, f"declare it in DRIVER.md, or report the server ({refusal.id})"
            ) from None


def _block_uris(block: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if isinstance(block.get("uri"), str):
        yield f"{place}/uri", block["uri"]
    icons = block.get("icons")
    for index, icon in enumerate(icons if isinstance(icons, list) else ()):
        source = icon.get("src") if isinstance(icon, Mapping) else None
        if isinstance(source, str) and not source.startswith("data:image/"):
            yield f"{place}/icons/{index}", source  # a client fetches it as soon as it shows the link
    for name in ("resource", "content"):
        inner = block.get(name)
        if isinstance(inner, Mapping):
            yield from _block_uris(inner, f"{place}/{name}")
        elif isinstance(inner, list):
            for index, item in enumerate(inner):
                if isinstance(item, Mapping):
                    yield from _block_uris(item, f"{place}/{name}/{index}")


def _without_foreign_meta(result: dict[str, Any]) -> dict[str, Any]:
    """Clean ``_meta`` of a result and of its parts, but not of ``structuredContent``: that is data."""
    cleaned = {}
    for name, value in result.items():
        if name == "_meta":
            meta = clean_meta(value) if isinstance(value, Mapping) else {}
            kept = {key: item for key, item in meta.items() if key not in _TRACE}
            if kept:
                cleaned[name] = kept
        elif name == "structuredContent":
            cleaned[name] = value
        else:
            cleaned[name] = _meta_within(value)
    return cleaned


def _meta_within(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_foreign_meta(value)
    return [_meta_within(item) for item in value] if isinstance(value, list) else value


AIP_CODES: Final[Mapping[str, str]] = {
    "CALL-001": "input_invalid",
    "CALL-020": "output_parse_failed",
    "CALL-021": "output_parse_failed",
    "CALL-022": "output_parse_failed",
}
"""Errors by id that have an AIP-30 code of their own; the others follow from their class."""


def aip_error(error: BaseException | None, text: str = "") -> dict[str, Any]:
    """Return the AIP-30 error object of what went wrong (B0-6, B0-7).

    Args:
        error: what was raised; ``None`` for a result with ``isError``, which is the server's own ``upstream_error``.
        text: the server's words in that case, already cleaned.
    """
    if error is None:
        return {"code": "upstream_error", "message": text, "retryable": False}
    if not isinstance(error, SandboxError):
        cancelled = type(error).__name__ == "CancelledError"
        code = "cancelled" if cancelled else "internal"
        return {
            "code": code,
            "message": "the call was cancelled" if cancelled else "internal error",
            "retryable": cancelled,
        }
    code = AIP_CODES.get(error.id) or _code_of_class(error)
    retryable = isinstance(error, ServerTimeout | PlatformError) or error.id in ("CALL-050", "CALL-051", "CALL-052")
    return {"code": code, "message": error.message, "retryable": retryable}


def _code_of_class(error: SandboxError) -> str:
    match error:
        case CallRefused():
            return "policy_violation"
        case ServerTimeout():
            return "timeout"
        case ServerFault():
            return "upstream_error"
        case PlatformError() | AuditUnavailable():
            return "internal"
        case _:
            return "tool_unavailable"
