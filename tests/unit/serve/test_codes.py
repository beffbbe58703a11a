"""Failed calls carry a standard code for programs (AIP-14, Errors), beside the text for models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.errors import CallRefused, PlatformError, SandboxError, ServerFault, ServerTimeout
from sandbox.serve.codes import ERROR_META, code_of, error_meta
from tests.unit.serve.test_calls import Server, carry

pytestmark = pytest.mark.anyio
STANDARD = {
    "input_invalid",
    "input_unsupported",
    "unauthorised",
    "auth_required",
    "not_found",
    "rate_limited",
    "timeout",
    "upstream_error",
    "internal",
}


def said(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a failed result says to programs."""
    return dict(result["_meta"][ERROR_META])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CallRefused("CALL-001", "x"), "input_invalid"),
        (CallRefused("CALL-042", "x"), "input_invalid"),
        (CallRefused("CALL-010", "x"), "input_invalid"),
        (CallRefused("CALL-011", "x"), "auth_required"),
        (CallRefused("POL-020", "x"), "unauthorised"),
        (CallRefused("CALL-050", "x"), "rate_limited"),
        (CallRefused("CALL-072", "x"), "rate_limited"),
        (ServerTimeout("WIRE-043", "x"), "timeout"),
        (ServerFault("CALL-022", "x"), "upstream_error"),
        (PlatformError("LAUNCH-001", "x"), "internal"),
    ],
    ids=lambda one: getattr(one, "id", ""),
)
def test_every_error_has_a_standard_code(error: SandboxError, code: str) -> None:
    """The code is one of AIP-14's."""
    assert code == code_of(error)
    assert code in STANDARD


def test_only_what_time_or_the_contract_mends_is_retryable() -> None:
    """A rate is, a wrong argument is not; a failing server is when the contract says idempotent."""
    asked = [
        (CallRefused("CALL-050", "x"), False),
        (CallRefused("CALL-001", "x"), True),
        (ServerTimeout("WIRE-043", "x"), False),
        (ServerTimeout("WIRE-043", "x"), True),
    ]

    assert [True, False, False, True] == [
        error_meta(error, idempotent=idempotent)[ERROR_META]["retryable"] for error, idempotent in asked
    ]


async def test_the_servers_own_error_is_an_upstream_error() -> None:
    """``isError`` of a server becomes ``upstream_error``; a code that the server sets in ``_meta`` is not believed."""
    answer = {
        "content": [{"type": "text", "text": "no such file"}],
        "isError": True,
        "_meta": {ERROR_META: {"code": "rate_limited"}},
    }
    result, _ = await carry(Server(answer), {"path": "x"})

    assert {"code": "upstream_error", "id": "CALL-080", "retryable": False} == said(result)


async def test_a_refusal_has_the_code_of_its_step() -> None:
    """Arguments that do not fit the contract are the caller's."""
    result, _ = await carry(Server({}), {"paht": "x"})

    assert ("input_invalid", "CALL-001") == (said(result)["code"], said(result)["id"])
