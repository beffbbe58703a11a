"""Keeps out of results what a server was given: its secrets, and the tokens that are got while it is used."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.launch.interface import Instance
from sandbox.launch.remote import RemoteInstance
from sandbox.serve.redact import Redactor


def redactor_of(given: Mapping[str, str], instance: Instance) -> Redactor:
    """Return what takes known values out of one server's results.

    Args:
        given: slug → value of what it was given at its start.
        instance: the server.
    """
    if isinstance(instance, RemoteInstance) and instance.plan.auth is not None:
        return TokenRedactor(given, instance)
    return Redactor(given)


class TokenRedactor(Redactor):
    """A redactor that knows the tokens of a server as they come."""

    def __init__(self, given: Mapping[str, str], instance: RemoteInstance) -> None:
        self._given, self._instance = dict(given), instance
        self._known = instance.tokens
        super().__init__(self._all())

    def __bool__(self) -> bool:
        """Return that there is, or will be, something to search for."""
        return True

    def redact(self, text: str) -> str:
        """Return a text without secrets; the same object when it holds none."""
        if self._known is not self._instance.tokens:
            self._known = self._instance.tokens
            super().__init__(self._all())
        return super().redact(text)

    def _all(self) -> dict[str, str]:
        return {**self._given, **{f"token-{number}": one for number, one in enumerate(self._known)}}
