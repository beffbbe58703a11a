"""Errors as programs read them: the standard codes of AIP-14 (Errors), which AIP-30 drivers report with.

A failed tool call is a result with ``isError`` whose text a model reads. Its ``_meta`` says the same to a program::

    "io.mcp-sandbox/error": {"code": "rate_limited", "id": "CALL-050", "retryable": true}

``upstream_error`` is the server's own failure, whatever words it chose: a server's text is not trusted to be a code.
``retryable`` is our own judgement: a refusal that time mends, or a failure of a tool that its contract calls
idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.errors import CallRefused, Refused, SandboxError, ServerFault, ServerTimeout
from sandbox.serve.context import OUR_META

ERROR_META: Final = OUR_META + "error"
"""Member of a failed result's ``_meta``."""

UPSTREAM: Final = "upstream_error"

_CODES: Final[Mapping[str, str]] = {
    "POL-020": "unauthorised",
    "CALL-011": "auth_required",
    "CALL-030": "not_found",
    "CALL-043": "not_found",
    "CALL-050": "rate_limited",
    "CALL-051": "rate_limited",
    "CALL-052": "rate_limited",
    "CALL-070": "rate_limited",
    "CALL-071": "rate_limited",
    "CALL-072": "rate_limited",
    "CALL-073": UPSTREAM,
    "CALL-075": "unauthorised",
    "CALL-077": "internal",
    "WIRE-051": "input_unsupported",
}
_LATER: Final = frozenset(("rate_limited", "internal"))
"""Codes of refusals that time mends."""


def code_of(error: SandboxError) -> str:
    """Return the standard code of an error."""
    if error.id in _CODES:
        return _CODES[error.id]
    match error:
        case ServerTimeout():
            return "timeout"
        case ServerFault():
            return UPSTREAM
        case CallRefused():
            return "input_invalid"
        case Refused():
            return "unauthorised"
        case _:
            return "internal"


def error_meta(error: SandboxError, *, idempotent: bool = False) -> dict[str, Any]:
    """Return the ``_meta`` of a failed result.

    Args:
        error: why it failed.
        idempotent: the contract says that repeating the call changes nothing.
    """
    code = code_of(error)
    again = code in _LATER or error.id == "CALL-073" or (idempotent and isinstance(error, ServerFault))
    return {ERROR_META: {"code": code, "id": error.id, "retryable": again}}


def upstream_meta(*, idempotent: bool) -> dict[str, Any]:
    """Return the ``_meta`` of a result that the server itself calls an error."""
    return {ERROR_META: {"code": UPSTREAM, "id": "CALL-080", "retryable": idempotent}}
