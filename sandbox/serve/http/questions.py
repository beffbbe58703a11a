"""Questions of several servers to one client: each is judged as at its server's own endpoint, and answered to it alone.

A session that works with several servers has one client to ask. Which server asks is known by the call that it carries,
so each call takes along who judges for it: the rules, the label and the budget of its own server, and where it is
recorded. Nothing is judged without a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sandbox.errors import CallRefused
from sandbox.serve.asking import Asking, Question
from sandbox.serve.calls import Caller
from sandbox.serve.client_asking import AskedBy, Judge
from sandbox.serve.client_model import CallInfo
from sandbox.serve.http.doors import Behind


class AllAsking:
    """Judges what several servers ask the client of one session; stands where a session of one has its ``Asking``.

    It belongs to what the session was lent at one time. When the session moves, calls that go on where they began ask
    by what holds now, and nobody's budget begins anew, not even that of a server which is away for a while.

    Args:
        each: driver → what judges its questions; who is not named may ask nothing.
    """

    def __init__(self, each: Mapping[str, Asking]) -> None:
        self._each = each
        self._before: dict[str, Asking] = {}
        self._next: AllAsking | None = None

    def judge(self, method: str, params: Mapping[str, Any], caller: Caller) -> Question:  # noqa: ARG002 - the form
        """Refuse: it is not known which server asks."""
        raise _not_passed_on(method)

    def go_on_from(self, other: AllAsking | None) -> None:
        """Count what another one has let through before for the same session, and judge for it from now on."""
        if other is None:
            return
        other._next = self  # noqa: SLF001 - its own class
        self._before = {**other._before, **other._each}  # noqa: SLF001
        for driver, asking in self._each.items():
            asking.go_on_from(self._before.get(driver))

    def of(self, driver: str) -> Judge:
        """Return what judges the questions of one server, by what holds when it asks."""
        return _OfOne(self, driver)

    def now(self, driver: str) -> Asking | None:
        """Return what judges the questions of one server now; ``None``: it may ask nothing."""
        newest = self
        while newest._next is not None:
            newest = newest._next
        return newest._each.get(driver)  # noqa: SLF001 - its own class


class _OfOne:
    """See :meth:`AllAsking.of`."""

    def __init__(self, every: AllAsking, driver: str) -> None:
        self._every = every
        self._driver = driver

    def judge(self, method: str, params: Mapping[str, Any], caller: Caller) -> Question:
        """Return the question as it may reach the client; see :meth:`sandbox.serve.asking.Asking.judge`."""
        asking = self._every.now(self._driver)
        if asking is None:
            raise _not_passed_on(method)
        return asking.judge(method, params, caller)


def towards(call: CallInfo, driver: str, one: Behind, asking: AllAsking) -> CallInfo:
    """Return a request of the session on its way to one of several servers, which may ask as at its own endpoint."""
    own, session = call.towards(one.peer, one.scope), call.questions
    if session is None or one.options.asking is None:
        own.questions = None
        return own
    asked, by = session.ask, AskedBy(asking.of(driver), own.scope)

    async def ask(
        wanted: Mapping[str, tuple[str, Mapping[str, Any]]], *, by: AskedBy = by
    ) -> dict[str, dict[str, Any]]:
        try:
            return await asked(wanted, by=by)
        finally:  # a stateless client repeats the request under another id, and with another token for its progress
            own.request_id, own.progress_token = call.request_id, call.progress_token

    own.questions = replace(session, ask=ask)
    return own


def _not_passed_on(method: str) -> CallRefused:
    return CallRefused("GATE-051", f"`{method[:40]}` is not passed on here", "do without")
