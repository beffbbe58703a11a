"""Redaction properties.

*Whatever stands around a secret, and in whichever searched encoding it stands, it is gone afterwards; text that holds
none is the same object; cleaning twice is cleaning once.*
"""

from __future__ import annotations

import base64
import sys

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandbox.serve.redact import _GAP, _GAPS, Redactor, encodings
from sandbox.serve.results import without_controls

secrets = st.text(st.characters(exclude_categories=("Cs",)), min_size=8, max_size=60)
around = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(secrets, around, around, st.data())
@settings(max_examples=400, deadline=None)
def test_no_encoding_survives(secret: str, before: str, after: str, data: st.DataObject) -> None:
    """An encoded secret within other text is replaced."""
    form = data.draw(st.sampled_from(sorted(encodings(secret))))
    assume(len("".join(form.split())) >= 6)
    redacted = Redactor({"k": secret}).redact(before + form + after)

    assert "[redacted" in redacted
    assert form not in redacted or form in "[redacted:k]"


@given(st.binary(min_size=8, max_size=60), st.binary(max_size=9), st.binary(max_size=9))
@settings(max_examples=400, deadline=None)
def test_base64_of_something_longer_is_found(raw: bytes, before: bytes, after: bytes) -> None:
    """A secret encoded together with its neighbours is replaced at every alignment."""
    secret = raw.hex()
    for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes):
        text = encode(before + secret.encode() + after).decode()

        assert "[redacted:k]" in Redactor({"k": secret}).redact(text)


@given(st.text(max_size=200))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    """What is left has nothing more to remove."""
    once = without_controls(text)

    assert without_controls(once) == once


def test_both_forms_of_a_gap_are_the_same() -> None:
    """What is searched for and what is taken out are the same characters, all of Unicode through."""
    differ = [code for code in range(sys.maxunicode + 1) if bool(_GAP.match(chr(code))) != (code in _GAPS)]

    assert [] == differ
