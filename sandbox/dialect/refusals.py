"""What a refusal looks like in the dialect: the shape of a response with ``status: error``, and an HTTP status.

::

    {"request_id": "…" | null, "status": "error",
     "error": {"id": "DIA-013", "code": "not_found", "message": "…", "mend": "…", "retryable": false},
     "metadata": {"duration_ms": 0, "tokens_used": 0}}

``error`` is our member: the document has a status and no place for the reason. ``id`` is the one of ``docs/errors/``,
``code`` a word of AIP-14 as in MCP results, ``retryable`` says whether time mends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.errors import CallRefused, SandboxError
from sandbox.serve.codes import code_of
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.model import Unauthorized

STATUS: Final[Mapping[str, int]] = {
    "DIA-005": 404, "DIA-008": 403, "DIA-009": 409, "DIA-010": 404, "DIA-011": 405, "DIA-012": 404, "DIA-013": 404,
    "DIA-015": 429, "DIA-019": 503, "DIA-021": 429, "DIA-022": 404, "DIA-026": 415,
    "DIA-060": 404, "DIA-062": 429,
    "DIA-070": 403, "DIA-072": 429, "DIA-073": 409, "DIA-074": 404,
    "DIA-080": 503, "DIA-081": 503,
}  # fmt: skip
"""HTTP status of our own refusals; others are 400."""

_CODES: Final[Mapping[str, str]] = {
    "DIA-005": "not_found", "DIA-010": "not_found", "DIA-012": "not_found", "DIA-013": "not_found",
    "DIA-014": "internal", "DIA-015": "rate_limited", "DIA-016": "cancelled", "DIA-017": "input_invalid",
    "DIA-018": "upstream_error", "DIA-019": "internal", "DIA-020": "rate_limited", "DIA-021": "rate_limited",
    "DIA-022": "not_found", "DIA-027": "unauthorised",
    "DIA-060": "not_found", "DIA-062": "rate_limited",
    "DIA-070": "unauthorised", "DIA-072": "rate_limited", "DIA-074": "not_found",
    "DIA-080": "rate_limited", "DIA-081": "rate_limited", "DIA-082": "cancelled",
}  # fmt: skip
_LATER: Final = frozenset(("rate_limited",))


class DialectRefused(CallRefused):
    """A request of the dialect is refused.

    Attributes:
        data: further members of the error.
        request_id: of the request, where it could be read.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the public word for it
        message: str,
        mend: str = "",
        *,
        data: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(id, message, mend)
        self.data = dict(data or {})
        self.request_id = request_id

    @property
    def status(self) -> int:
        """HTTP status."""
        return STATUS.get(self.id, 400)


def said(error: SandboxError) -> dict[str, Any]:
    """Return the ``error`` member of a response."""
    code = _word(error)
    more = {"mend": error.mend} if error.mend else {}
    data = getattr(error, "data", {}) if isinstance(error, DialectRefused | HttpRefused) else {}
    return {"id": error.id, "code": code, "message": error.message, **more, "retryable": code in _LATER, **data}


def response(error: SandboxError, request_id: str | None = None) -> dict[str, Any]:
    """Return a whole response that says why there is no result."""
    named = getattr(error, "request_id", None)
    own = named if isinstance(named, str) else request_id
    metadata = {"duration_ms": 0, "tokens_used": 0}
    return {"request_id": own, "status": "error", "error": said(error), "metadata": metadata}


def _word(error: SandboxError) -> str:
    match error:
        case DialectRefused():
            return _CODES.get(error.id, "input_invalid")
        case Unauthorized():
            return "auth_required" if error.status == 401 else "unauthorised"  # noqa: PLR2004 - sign in
        case HttpRefused() if error.status in (429, 503):
            return "rate_limited"
        case HttpRefused() if error.status in (401, 403):
            return "unauthorised"
        case HttpRefused():
            return "not_found" if error.status == 404 else "input_invalid"  # noqa: PLR2004 - nothing there
        case _:
            return code_of(error)
