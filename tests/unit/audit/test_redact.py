"""Known secret values never reach a record, in any form in which they are passed on."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox.audit.record import encode
from sandbox.audit.redact import MARK, MIN_CHARS, Redactor, forms

SECRET = 'p&ss "wörd"/+?\\'


def redactor(*values: str) -> Redactor:
    """Return a redactor that knows values."""
    found = Redactor()
    found.add(*values)
    return found


def fields(**attrs: object) -> dict[str, object]:
    """Return the members of a record."""
    return {"after": "a" * 64, "seq": 0, "name": "x.y", "phase": "fact", "time": "t", "v": 1, "attrs": attrs}


ENCODINGS = {
    "plain": lambda text: text,
    "json": lambda text: json.dumps({"k": text}),
    "json-raw": lambda text: json.dumps({"k": text}, ensure_ascii=False),
    "json-twice": lambda text: json.dumps(json.dumps({"k": text})),
    "percent": lambda text: "https://x/?k=" + quote(text, safe=""),
    "percent-lower": lambda text: re.sub("%..", lambda octet: octet[0].lower(), quote(text, safe="")),
    "percent-plus": lambda text: "https://x/?k=" + quote_plus(text),
    "path": lambda text: "/a/" + quote(text),
    "html": lambda text: f"<b>{html.escape(text)}</b>",
    "hex": lambda text: "0x" + text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "hex-colons": lambda text: ":".join(f"{byte:02x}" for byte in text.encode()),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64-1": lambda text: base64.b64encode(b"u" + text.encode() + b"xyz").decode(),
    "base64-2": lambda text: base64.b64encode(b"user:"[:2] + text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(b"user:" + text.encode() + b"!").decode().rstrip("="),
}


@pytest.mark.claim("P-AUDIT-05")
@pytest.mark.parametrize("encoding", list(ENCODINGS))
@pytest.mark.parametrize("secret", ["hunter2hunter2", SECRET, "ghp_0123456789abcdefABCDEF", "ключ-доступа"])
def test_secret_is_taken_out_of_every_place_in_every_encoding(secret: str, encoding: str) -> None:
    """A value that comes back encoded in a common way is replaced wherever it stands in a record (probe J22)."""
    text = f"error: {ENCODINGS[encoding](secret)} (end)"
    control = encode(fields(a=text))  # the same probe without redaction
    found = redactor(secret).clean(fields(a=text, nested={"list": [text], text: 1}))

    assert MARK.encode() in found
    assert b"end" in found
    assert not redactor(secret).holds(found)
    assert redactor(secret).holds(control)
    assert secret not in json.dumps(json.loads(found), ensure_ascii=False)


def test_names_of_drivers_and_tenants_are_cleaned_too() -> None:
    """A secret that somebody gave as a tenant's name is not written there either."""
    found = json.loads(
        redactor("hunter2hunter2").clean(fields() | {"tenant": "hunter2hunter2", "driver": "x-hunter2hunter2"})
    )

    assert (MARK, f"x-{MARK}") == (found["tenant"], found["driver"])


def test_short_secrets_are_replaced_only_as_whole_values() -> None:
    """A value of few characters would be found in other words; as a whole string or number it is replaced."""
    found = json.loads(redactor("1234", "ab").clean(fields(pin="1234", number=1234, word="table", list=["ab"])))[
        "attrs"
    ]

    assert {"pin": MARK, "number": MARK, "word": "table", "list": [MARK]} == found


def test_lines_without_secrets_are_unchanged() -> None:
    """Redaction costs nothing but time where there is nothing to redact."""
    record = fields(tool="read", sizes=[1, 2.5, None, True])

    assert encode(dict(record)) == redactor("hunter2hunter2").clean(dict(record)) == Redactor().clean(dict(record))


def test_secret_that_redaction_itself_puts_together_takes_the_attributes_along() -> None:
    """What only the finished line shows is still not written."""
    found = json.loads(redactor("hunter2hunter2", "redacted]x").clean(fields(a="hunter2hunter2x", tool="read")))

    assert {"redacted": True} == found["attrs"]


def test_members_of_ours_are_never_touched() -> None:
    """A secret that looks like a hash or a name of ours does not break the chain."""
    found = json.loads(redactor("a" * 64, "x.y.z.").clean(fields(a="a" * 64)))

    assert "a" * 64 == found["after"]
    assert MARK == found["attrs"]["a"]


def test_empty_values_are_nothing() -> None:
    """An unset secret does not redact everything."""
    assert b'"a":""' in redactor("", "").clean(fields(a=""))


@given(st.text(min_size=MIN_CHARS, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_secret_in_any_context_is_taken_out(secret: str, before: str, behind: str) -> None:
    """For any value and any text around it the finished line holds none of its forms."""
    assume(secret not in MARK and MARK not in secret)
    cleaner = redactor(secret)
    found = cleaner.clean(fields(a=before + secret + behind, b=[{before + secret: 1}]))

    assert not cleaner.holds(found)
    assert json.loads(found)["seq"] == 0


@given(st.binary(min_size=MIN_CHARS, max_size=30), st.binary(max_size=7), st.binary(max_size=7))
def test_base64_at_any_position_is_found(secret: bytes, before: bytes, behind: bytes) -> None:
    """Whatever stands before and after a value, one of its base64 forms is in the encoded text."""
    text = secret.decode("latin-1")
    encoded = base64.b64encode(before + text.encode() + behind).decode()

    assert any(form in encoded for form in forms(text))
