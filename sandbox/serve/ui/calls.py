"""Calls as the operator's page shows them: those in flight with their age, and the last that ended."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import SandboxError
from sandbox.events import Fact
from sandbox.serve.around import Around
from sandbox.serve.client_model import CallInfo, Handler
from sandbox.vet.model import ExposedTool

MAX_ENDED: Final = 50
"""Calls that ended and are remembered."""

MAX_LIVE: Final = 200
"""Calls in flight that are shown; the gateway bounds how many there are."""

MAX_TENANTS: Final = 500
"""Tenants whose calls are counted; the ones that called longest ago are forgotten."""

MAX_NAME: Final = 120


@dataclass(slots=True)
class Call:
    """One call.

    Attributes:
        began: monotonic seconds.
        outcome: ``in flight``, ``ok``, ``error`` (the tool says so), ``failed``, ``denied`` or ``cancelled``.
        reason: id of the refusal or fault.
        seconds: how long it took; 0 while it lasts.
        ended: when, seconds since the epoch.
    """

    driver: str
    tenant: str
    tool: str
    client: str
    span: str
    began: float
    outcome: str = "in flight"
    reason: str = ""
    seconds: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Tally:
    """Calls of one tenant."""

    calls: int = 0
    failed: int = 0
    denied: int = 0
    last: float = 0.0


class Calls:
    """Follows the calls of a gateway.

    Attributes:
        live: in flight, oldest first.
        ended: newest last.
        tenants: tally of each, the one that called last at the end.
    """

    def __init__(self) -> None:
        self.live: dict[int, Call] = {}
        self.ended: deque[Call] = deque(maxlen=MAX_ENDED)
        self.tenants: OrderedDict[str, Tally] = OrderedDict()
        self._numbers = itertools.count()

    def begin(self, driver: str, tool: str, call: CallInfo) -> tuple[int, Call]:
        """Take note of a call; its number has to be given to :meth:`end`."""
        scope, client = call.scope, str(call.client_info.get("name", ""))
        entry = Call(driver, scope.tenant, tool[:MAX_NAME], client[:MAX_NAME], scope.trace.span_id, time.monotonic())
        number = next(self._numbers)
        self.live[number] = entry
        return number, entry

    def end(self, number: int, outcome: str, reason: str = "") -> None:
        """Take note of its end."""
        entry = self.live.pop(number)
        if not entry.reason:  # a denial has told already
            entry.outcome, entry.reason = outcome, reason
        self._ended(entry)

    def _ended(self, entry: Call) -> None:
        entry.seconds, entry.ended = time.monotonic() - entry.began, time.time()
        self.ended.append(entry)
        tally = self.tenants.pop(entry.tenant, None) or Tally()
        tally.calls += 1
        tally.denied += entry.outcome == "denied"
        tally.failed += entry.outcome in ("error", "failed")
        tally.last = entry.ended
        self.tenants[entry.tenant] = tally
        while len(self.tenants) > MAX_TENANTS:
            self.tenants.popitem(last=False)

    def denied(self, fact: Fact) -> None:
        """Take note that a call was denied: one in flight ends like that, and any other ended before it was carried."""
        reason, span = str(fact.attrs.get("reason", ""))[:MAX_NAME], fact.trace.span_id
        for entry in reversed(self.live.values()):
            if entry.span == span:
                entry.outcome, entry.reason = "denied", reason
                return
        tool, client = (str(fact.attrs.get(key) or "")[:MAX_NAME] for key in ("tool", "client"))
        if tool:
            self._ended(Call(fact.driver, fact.tenant, tool, client, span, time.monotonic(), "denied", reason))


class Followed(Around):
    """A handler whose tool calls are seen.

    Args:
        inner: carries the requests.
        calls: where they are seen.
        driver: id.
    """

    def __init__(self, inner: Handler, calls: Calls, driver: str) -> None:
        super().__init__(inner)
        self._calls = calls
        self._driver = driver

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry one call."""
        number, _ = self._calls.begin(self._driver, tool.name, call)
        outcome, reason = "cancelled", ""
        try:
            result = await self._inner.call_tool(tool, arguments, call)
            outcome = "error" if result.get("isError") else "ok"
        except SandboxError as error:
            outcome, reason = "failed", error.id
            raise
        finally:
            self._calls.end(number, outcome, reason)
        return result
