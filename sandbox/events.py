"""The facts that stages emit, and the one seam through which they become evidence.

A stage is handed a :class:`Recorder` and emits frozen facts; no stage imports ``audit``. Order of evidence: an
*intent* is recorded before an effect and its *outcome* after it. When the intent cannot be recorded durably the
recorder raises :class:`~sandbox.errors.AuditUnavailable` and the effect does not happen.

A fact is a name, a phase and attributes. Names are ``stage.what`` (``launch.create``, ``call.decide``);
``docs/audit-events.md`` lists each with its attributes. Attribute values are JSON; payload values of calls never
stand in them, only keys, sizes and digests (B0-8).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

Phase = Literal["fact", "intent", "outcome"]
"""``intent`` precedes an effect, ``outcome`` follows it, ``fact`` stands alone."""


@dataclass(frozen=True, slots=True)
class Trace:
    """W3C trace context of one session or one call.

    Attributes:
        trace_id: 32 lower-case hex digits, one for each session.
        span_id: 16 lower-case hex digits, one for each call.
        parent_id: span this one belongs to, empty at the root.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""

    @classmethod
    def new(cls) -> Trace:
        """Return a fresh root."""
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    def child(self) -> Trace:
        """Return a new span below this one."""
        # A span id only has to be unique, and one is made for every call: no system call for it.
        return Trace(self.trace_id, f"{random.getrandbits(64):016x}", self.span_id)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that happened or is about to.

    Attributes:
        name: ``stage.what``, documented in ``docs/audit-events.md``.
        phase: see :data:`Phase`.
        trace: where it belongs.
        driver: driver id, empty before one is known.
        tenant: tenant id, empty where none is concerned.
        instance: instance id, empty where none is concerned.
        attrs: JSON values; never payloads or secrets.
    """

    name: str
    phase: Phase
    trace: Trace
    driver: str = ""
    tenant: str = ""
    instance: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)


class Recorder(Protocol):
    """Takes facts. Implementations: ``audit`` (ledger), ``testing`` (memory)."""

    def record(self, fact: Fact) -> None:
        """Record one fact durably before returning.

        Raises:
            AuditUnavailable: it could not be written; an effect announced by it must not happen.
        """


@dataclass(frozen=True, slots=True)
class Scope:
    """A recorder bound to what its facts have in common, so that stages pass one thing around.

    Example::

        scope = Scope(recorder, Trace.new(), driver="filesystem-mcp")
        scope.intent("launch.create", image="sha256:…")
        scope.outcome("launch.create", container="4f0c…")
    """

    recorder: Recorder
    trace: Trace
    driver: str = ""
    tenant: str = ""
    instance: str = ""

    def fact(self, name: str, **attrs: Any) -> None:
        """Record a standalone fact."""
        self._record(name, "fact", attrs)

    def intent(self, name: str, **attrs: Any) -> None:
        """Record what is about to be done."""
        self._record(name, "intent", attrs)

    def outcome(self, name: str, **attrs: Any) -> None:
        """Record what came of an intent."""
        self._record(name, "outcome", attrs)

    def child(self) -> Scope:
        """Return the scope of a new span below this one."""
        return Scope(self.recorder, self.trace.child(), self.driver, self.tenant, self.instance)

    @property
    def exported(self) -> bool:
        """Whether spans of what is recorded here are exported, so that others may name them as parents."""
        return bool(getattr(self.recorder, "exported", False))

    def kept(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a record says of the argument values that the operator chose to keep; empty when none are kept.

        Raises:
            AuditUnavailable: they cannot be written.
        """
        keep = getattr(self.recorder, "kept", None)
        found = keep(self.tenant, tool, arguments) if keep is not None else {}
        return {"values": found} if found else {}

    def within(self, **parts: str) -> Scope:
        """Return a scope with ``driver``, ``tenant`` or ``instance`` set."""
        return replace(self, **parts)  # type: ignore[arg-type]

    def _record(self, name: str, phase: Phase, attrs: Mapping[str, Any]) -> None:
        self.recorder.record(Fact(name, phase, self.trace, self.driver, self.tenant, self.instance, attrs))
