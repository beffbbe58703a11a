"""``WWW-Authenticate`` is read strictly: what two readers could take differently says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.transport.remote.oauth.challenge import bearer

URL = "https://a.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([f'Bearer resource_metadata="{URL}"'], {"resource_metadata": URL}),
        ([f'bearer realm="x, y", scope="a b" , resource_metadata="{URL}"'], {
            "realm": "x, y", "scope": "a b", "resource_metadata": URL}),
        (["Bearer"], {}),
        (['Basic realm="x", Bearer error=invalid_token'], {"error": "invalid_token"}),
        (["Negotiate abc==, Bearer scope=a"], {"scope": "a"}),
        (['Basic realm="x"', "Bearer scope=a"], {"scope": "a"}),
        ([r'Bearer scope="a\"b"'], {"scope": 'a"b'}),
    ],
)  # fmt: skip
def test_what_is_clear_is_read(fields: list[str], expected: dict[str, str]) -> None:
    """One Bearer challenge, beside others and over several fields."""
    assert expected == bearer(fields)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ['Basic realm="Bearer scope=a"'],
        ["Bearer scope=a, scope=b"],
        ["Bearer scope=a", "Bearer scope=b"],
        ["Bearer scope=a, Bearer scope=b"],
        ['Bearer scope="a'],
        ["scope=a"],
        ["Bearer scope=a; b"],
        ["Bearer " + "x" * 9000 + "=a"],
        ['Bearer scope="a\x7f"'],
    ],
)
def test_what_is_not_clear_says_nothing(fields: list[str]) -> None:
    """A parameter or challenge twice, an open quotation, no scheme, control characters, no end."""
    assert {} == bearer(fields)


@given(st.lists(st.text(st.characters(max_codepoint=255), max_size=200), max_size=4))
def test_any_text_is_read_or_not(fields: list[str]) -> None:
    """No field raises; what is read are texts by lower-case names."""
    found = bearer(fields)

    assert all(name == name.lower() and isinstance(value, str) for name, value in found.items())
