"""Results: nothing of a server's answer hides text, carries a secret, points outside or speaks for somebody else."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from sandbox.errors import AuditUnavailable, CallRefused, PlatformError, ServerFault, ServerTimeout, VetRefused
from sandbox.serve.paths import Roots
from sandbox.serve.redact import Redactor, encodings
from sandbox.serve.results import ResultCleaner, aip_error, private_caching, result_uris, without_controls
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules

SECRET = 's3cr€t/key+with "quotes"&more'
SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
RULES = UriRules(Roots(["/w"]), "", (Template("demo://{x}"),))


def text(value: str) -> dict[str, Any]:
    """Return a result with one text."""
    return {"content": [{"type": "text", "text": value}]}


def cleaned(value: str) -> str:
    """Return what becomes of a text."""
    block: dict[str, Any] = ResultCleaner(RULES, Redactor({"api-key": SECRET})).clean(text(value))["content"][0]
    return str(block["text"])


@pytest.mark.claim("P-RESULT-01")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]8;;http://evil/\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\x9b31mred", "red"),
        ("\x1bPq data \x1b\\x", "x"),
        ("\x1b]unterminated", "unterminated"),
        ("a\0b\x07c\x08d\x7fe\x85f", "abcdef"),
        ("\u202egnp.exe\u202c", "gnp.exe"),
        ("\u2066x\u2069", "x"),
        ("hi\U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065", "hi"),
        ("tab\tline\ncrlf\r\n", "tab\tline\ncrlf\r\n"),
        ("می\u200cخواهم 👨\u200d👩\u200d👦 ❤️ שלום", "می\u200cخواهم 👨\u200d👩\u200d👦 ❤️ שלום"),
        (SCOTLAND + "!", SCOTLAND + "!"),
        ("🏴\U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065\U000e0020\U000e0061", "🏴"),
    ],
)  # fmt: skip
def test_hidden_text_and_terminal_sequences_are_removed(given: str, expected: str) -> None:
    """J13: sequences go whole, controls and invisible tags go, languages and flags stay."""
    assert without_controls(given) == expected


def test_names_and_nested_values_are_cleaned_too() -> None:
    """Keys, structured content and every string at any depth."""
    cleaner = ResultCleaner(None)
    result = cleaner.clean({"structuredContent": {"a\x1b[1m": [{"b": "x\x07"}]}})

    assert result == {"structuredContent": {"a": [{"b": "x"}]}}
    assert cleaner.last == {"controls": 5, "secrets": 0}


def test_two_names_that_become_one_are_a_fault() -> None:
    """A result whose meaning depends on hidden characters is not passed on."""
    with pytest.raises(ServerFault) as caught:
        ResultCleaner(None).clean({"structuredContent": {"a": 1, "a\x07": 2}})

    assert caught.value.id == "CALL-062"


RAW = SECRET.encode()
FORMS = {
    "raw": SECRET,
    "within": f"before{SECRET}after",
    "json": json.dumps(SECRET),
    "json in json": json.dumps({"x": SECRET}),
    "json unicode": json.dumps(SECRET, ensure_ascii=False),
    "percent": quote(SECRET, safe=""),
    "percent lower": quote(SECRET, safe="").lower(),
    "query": quote_plus(SECRET),
    "every byte": "".join(f"%{byte:02X}" for byte in RAW),
    "hex": RAW.hex(),
    "HEX": RAW.hex().upper(),
    "escapes": "".join(f"\\x{byte:02x}" for byte in RAW),
    "reversed": SECRET[::-1],
    "base32": base64.b32encode(RAW).decode(),
    "html": "s3cr€t/key+with &quot;quotes&quot;&amp;more",
    "ansi inside": SECRET[:5] + "\x1b[0m" + SECRET[5:],
    "invisible inside": "\u200b".join(SECRET),
    "lines inside": "\n".join(SECRET[i : i + 4] for i in range(0, len(SECRET), 4)),
    "hex in lines": " ".join(RAW.hex()[i : i + 2] for i in range(0, len(RAW.hex()), 2)),
    **{f"base64 at {n}": base64.b64encode(b"x" * n + RAW + b"yz").decode() for n in range(4)},
    **{f"urlsafe at {n}": base64.urlsafe_b64encode(b"x" * n + RAW).decode() for n in range(3)},
    "mime": base64.encodebytes(b"user:" + RAW * 4).decode(),
}


@pytest.mark.claim("P-RESULT-02")
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_redacted_in_common_encodings(form: str) -> None:
    """J22: whatever the encoding, what remains decodes to nothing of the value."""
    result = cleaned(f"error: {FORMS[form]} end")

    assert "[redacted:api-key]" in result
    assert not any(needle in result for needle in encodings(SECRET))
    assert result.startswith("error: ")


@pytest.mark.parametrize("value", ["nothing here", "s3cr", "key with quotes", "x" * 10_000, ""])
def test_other_text_is_left_alone(value: str) -> None:
    """What holds no secret is the same object."""
    assert Redactor({"k": SECRET}).redact(value) is value


def test_secrets_are_found_everywhere_in_a_result() -> None:
    """Names, numbers, links and binary content; a binary with a secret is replaced whole."""
    blob = base64.b64encode(b"\x89PNG" + b"hunter2hunter2" + b"\0" * 9).decode()
    cleaner = ResultCleaner(None, Redactor({"pin": "12345678", "pw": "hunter2hunter2"}))
    result = cleaner.clean(
        {
            "structuredContent": {"hunter2hunter2": 12345678, "n": 1234567},
            "content": [
                {"type": "image", "data": blob},
                {"type": "resource", "resource": {"uri": "demo://x", "blob": blob}},
            ],
        }
    )

    assert result["structuredContent"] == {"[redacted:pw]": "[redacted:pin]", "n": 1234567}
    assert base64.b64decode(result["content"][0]["data"]) == b"[redacted]"
    assert base64.b64decode(result["content"][1]["resource"]["blob"]) == b"[redacted]"
    assert cleaner.last["secrets"] == 4


def test_values_too_short_to_search_for_are_named() -> None:
    """An operator can be told which secrets cannot be covered."""
    assert Redactor({"a": "12345", "b": "123456"}).uncovered == ("a",)


def test_many_places_are_replaced_at_bounded_cost() -> None:
    """A flood of broken-up secrets replaces the text as a whole."""
    spaced = " ".join("hunter2hunter2")

    assert Redactor({"k": "hunter2hunter2"}).redact((spaced + "|") * 3000) == "[redacted]"


def test_the_size_of_a_result_is_bounded() -> None:
    """The bound passes; one character more is a fault."""
    overhead = len("content") + len("type") + len("text") + len("text")
    cleaner = ResultCleaner(None, most=1000)

    assert cleaner.clean(text("x" * (1000 - overhead)))
    with pytest.raises(ServerFault) as caught:
        cleaner.clean(text("x" * (1001 - overhead)))
    assert caught.value.id == "CALL-060"


@pytest.mark.claim("P-RESULT-03")
@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "resource_link", "uri": "file:///etc/passwd"}]},
        {"content": [{"type": "resource", "resource": {"uri": "http://169.254.169.254/", "text": "x"}}]},
        {"content": [{"type": "resource_link", "uri": "demo://x", "icons": [{"src": "https://evil.example/i.png"}]}]},
        {"contents": [{"uri": "file:///w/../etc/passwd", "text": "x"}]},
        {"messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "other://x"}}}]},
        {"messages": [{"role": "user", "content": [{"type": "resource_link", "uri": "javascript:alert(1)"}]}]},
    ],
)
def test_a_result_cannot_point_outside(result: dict[str, Any]) -> None:
    """J17: links and embedded resources are held to the rules for what clients send."""
    with pytest.raises(ServerFault) as caught:
        ResultCleaner(RULES).clean(result)

    assert caught.value.id == "CALL-061"


def test_links_within_the_rules_pass() -> None:
    """Declared templates, files below a root, and pictures that come along."""
    link = {"type": "resource_link", "uri": "demo://x", "icons": [{"src": "data:image/png;base64,AA"}]}
    result = {"content": [link, {"type": "resource", "resource": {"uri": "file:///w/a", "text": "x"}}]}

    assert ResultCleaner(RULES).clean(result) == result
    assert [place for place, _ in result_uris(result)] == ["/content/0/uri", "/content/1/resource/uri"]


@pytest.mark.claim("P-RESULT-04")
def test_a_server_speaks_for_nobody_else() -> None:
    """J18: trace context, baggage, progress tokens and tenants in a server's `_meta` are dropped; its own keys stay."""
    meta = {"traceparent": "00-1", "baggage": "x", "progressToken": 1, "tenant": "evil", "com.example/x": 1}
    result = ResultCleaner(None).clean(
        {
            "content": [{"type": "text", "text": "x", "_meta": dict(meta)}],
            "_meta": dict(meta),
            "structuredContent": {"_meta": meta},
        }
    )

    assert result["_meta"] == {"com.example/x": 1}
    assert result["content"][0]["_meta"] == {"com.example/x": 1}
    assert result["structuredContent"] == {"_meta": meta}


def test_a_public_cache_hint_becomes_private() -> None:
    """J19: whatever a server says, an answer belongs to the tenant that asked."""
    assert private_caching({"cacheScope": "public", "ttlMs": 5}) == {"cacheScope": "private", "ttlMs": 5}
    assert private_caching({"x": 1}) == {"x": 1}


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (None, "upstream_error", False),
        (CallRefused("CALL-001", "m"), "input_invalid", False),
        (CallRefused("POL-020", "m"), "policy_violation", False),
        (CallRefused("CALL-050", "m"), "policy_violation", True),
        (ServerFault("CALL-022", "m"), "output_parse_failed", False),
        (ServerFault("X-1", "m"), "upstream_error", False),
        (ServerTimeout("X-1", "m"), "timeout", True),
        (PlatformError("X-1", "m"), "internal", True),
        (AuditUnavailable("X-1", "m"), "internal", False),
        (VetRefused("X-1", "m"), "tool_unavailable", False),
        (asyncio.CancelledError(), "cancelled", True),
        (KeyError("secret detail"), "internal", False),
    ],
)
def test_errors_have_their_aip_code(error: BaseException | None, code: str, retryable: bool) -> None:
    """B0-6: each failure maps to the closed list, and an unknown one says nothing of itself."""
    mapped = aip_error(error, "words of the server")

    assert (mapped["code"], mapped["retryable"]) == (code, retryable)
    assert "secret detail" not in mapped["message"]
