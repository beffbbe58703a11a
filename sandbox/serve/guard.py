"""Steps 6 and 7 of a call for one tool, and the judge of resource URIs: what connects contexts, marks, paths and URIs.

A guard is made once for each exposed tool. Its answer is a dictionary like the arguments, with the facts that policy
may look at beside it (:attr:`CheckedArguments.facts`): they are found here anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.errors import CallRefused
from sandbox.serve.calls import Caller
from sandbox.serve.context import Forbidden, Signer, inject, sign_context
from sandbox.serve.marks import Mark, compile_marks
from sandbox.serve.paths import Checked, check_path
from sandbox.serve.paths_fs import HostTree
from sandbox.serve.uris import UriRules, check_reference, check_resource, check_uri
from sandbox.spec.model import Binding
from sandbox.tenant import TenantContext

MAX_MARKED: Final = 10_000
"""Paths and URIs in the arguments of one call; each costs some microseconds."""

Facts = Mapping[str, list[str]]
NO_FACTS: Final[Facts] = {"hosts": [], "schemes": [], "paths": []}


class CheckedArguments(dict[str, Any]):
    """Arguments that may be forwarded.

    Attributes:
        facts: ``hosts``, ``schemes`` and ``paths`` of the URI and path arguments, each once.
    """

    facts: Facts = NO_FACTS


def facts_of(arguments: Mapping[str, Any]) -> Facts:
    """Return the facts of checked arguments; none for others."""
    return arguments.facts if isinstance(arguments, CheckedArguments) else NO_FACTS


class ToolGuard:
    """Steps 6 and 7 for one tool.

    Args:
        binding: the driver's entry.
        rules: what paths and URIs are held to.
        host: the directories behind the mounts, where they can be opened.

    Raises:
        VetRefused: ``CALL-047``, the contract has a mark of unknown kind.
    """

    def __init__(self, binding: Binding, rules: UriRules, host: HostTree | None = None) -> None:
        self._forbidden = Forbidden(binding)
        self._marks: Mark | None = compile_marks(binding.contract.inputs, binding.contract.id)
        self._rules = rules
        self._host = host

    def check(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments to use.

        Raises:
            CallRefused: ``CALL-010`` for supplied context, ``CALL-04x`` for a path or URI.
        """
        self._forbidden.refuse_supplied(arguments)  # 6
        if self._marks is None:
            return arguments
        found: list[Checked] = []
        checked = CheckedArguments(self._marks.apply(arguments, self._checker(found)))  # 7
        if found:
            checked.facts = {
                "hosts": _each(item.host for item in found if item.kind == "http"),
                "schemes": _each(item.scheme for item in found),
                "paths": _each(item.path for item in found if item.kind in ("path", "file")),
            }
        return checked

    def _checker(self, found: list[Checked]) -> Callable[[str, str, str], str]:
        def one(kind: str, text: str, place: str) -> str:
            if len(found) == MAX_MARKED:
                raise CallRefused("CALL-048", f"more than {MAX_MARKED} paths and URIs in one call", "send fewer")
            try:
                item = self._judge(kind, text)
                if self._host is not None:
                    self._host.verify(item)
            except CallRefused as refusal:
                raise CallRefused(refusal.id, f"at {place[:200]}: {refusal.message}", refusal.mend) from None
            found.append(item)
            return item.text

        return one

    def _judge(self, kind: str, text: str) -> Checked:
        if kind == "uri":
            return check_uri(text, self._rules)
        if kind == "uri-reference":
            return check_reference(text, self._rules)
        return check_path(
            text, self._rules.roots, self._rules.cwd, "relative" if kind == "relative-path" else "absolute"
        )


class UriGuard:
    """Judges URIs of resources (``sandbox.serve.handler.ResourceGuard``)."""

    def __init__(self, rules: UriRules, host: HostTree | None = None) -> None:
        self._rules = rules
        self._host = host

    def check(self, uri: str) -> str:
        """Return the URI to forward, byte for byte what was judged.

        Raises:
            CallRefused: ``CALL-04x``.
        """
        return self.inspect(uri).text

    def inspect(self, uri: str) -> Checked:
        """Return the judged URI with its parts; its ``facts()`` are ``context.uri`` of policy.

        Raises:
            CallRefused: ``CALL-04x``.
        """
        checked = check_resource(uri, self._rules)
        if self._host is not None:
            self._host.verify(checked)
        return checked


class ContextInjector:
    """Second half of step 11 for one tool.

    Args:
        binding: the driver's entry.
        signer: signs ``user.assertion``, where a driver asks for it.
        clock: Unix time, seconds.
        new_id: makes an id for each signed context.
    """

    def __init__(
        self,
        binding: Binding,
        signer: Signer | None = None,
        clock: Callable[[], float] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._binding = binding
        self._signer = signer
        self._clock = clock
        self._new_id = new_id

    def inject(self, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the arguments with the declared context.

        Raises:
            CallRefused: ``CALL-010``, ``CALL-011``.
        """
        return inject(arguments, self._binding.context, caller.tenant, self._assertion(caller.tenant))

    def _assertion(self, caller: TenantContext) -> Callable[[Mapping[str, Any]], str] | None:
        signer, clock, new_id = self._signer, self._clock, self._new_id
        if signer is None or clock is None or new_id is None:
            return None
        name = self._binding.tool_name
        return lambda sent: sign_context(signer, caller, name, sent, clock(), new_id())


def _each(values: Any) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))
