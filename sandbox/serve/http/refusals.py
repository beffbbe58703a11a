"""A request that is refused before any session sees it: a status, a JSON-RPC error, and a record.

The body is a JSON-RPC error in every case, so that a client library shows the reason; it names the place, what is
wrong and the mend, and nothing of any server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from sandbox.errors import SandboxError
from sandbox.events import Scope
from sandbox.serve.http.bounds import REFUSALS_AT_ONCE, REFUSALS_PER_SECOND
from sandbox.transport.limiter import TokenBucket
from sandbox.wire.codes import INVALID_REQUEST
from sandbox.wire.jsonrpc import Failure, RequestId, to_json

OWN_CODE: Final = -31005
"""JSON-RPC code of a refusal at the door; outside of what the protocol reserves."""


class HttpRefused(SandboxError):
    """A request is answered with an HTTP error.

    Attributes:
        status: HTTP status.
        headers: further header fields.
        code: JSON-RPC code.
        data: further members of the error's data.
        request_id: of the message, where it could be read.
        cause: what went wrong behind it, for the trail only.
    """

    rpc_code = OWN_CODE

    def __init__(
        self,
        status: int,
        id: str,  # noqa: A002 - the public word for it
        message: str,
        mend: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        code: int = OWN_CODE,
        data: Mapping[str, Any] | None = None,
        request_id: RequestId | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(id, message, mend)
        self.status = status
        self.headers = dict(headers or {})
        self.code = code
        self.data = dict(data or {})
        self.request_id = request_id
        self.cause = cause

    def body(self) -> bytes:
        """Return the JSON-RPC error."""
        data = {"id": self.id, **({"mend": self.mend} if self.mend else {}), **self.data}
        return orjson.dumps(to_json(Failure(self.request_id, self.code, self.message, data)))


def malformed(number: str, message: str, mend: str = "", *, status: int = 400, **more: Any) -> HttpRefused:
    """Return a refusal of what is not HTTP or JSON-RPC as MCP uses them."""
    return HttpRefused(status, number, message, mend, code=more.pop("code", INVALID_REQUEST), **more)


class RefusalLog:
    """Records refusals, one by one within a rate, and counted beyond it.

    Args:
        scope: of the gateway.
        now: seconds that never go back.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._bucket = TokenBucket(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE)
        self._unrecorded = 0
        self.total = 0

    def note(self, error: HttpRefused, now: float, *, path: str, method: str, peer: str, tenant: str = "") -> None:
        """Record one refusal.

        Args:
            error: the refusal.
            now: seconds that never go back.
            path: of the request.
            method: of HTTP.
            peer: address of the client.
            tenant: verified, empty before that.
        """
        self.total += 1
        if not self._bucket.take(now):
            self._unrecorded += 1
            return
        more: dict[str, Any] = {"unrecorded": self._unrecorded} if self._unrecorded else {}
        if error.cause:
            more["cause"] = error.cause
        self._unrecorded = 0
        self._scope.within(tenant=tenant).fact(
            "gateway.refuse",
            reason=error.id,
            status=error.status,
            path=path[:256],
            method=method[:16],
            peer=peer,
            **more,
        )
