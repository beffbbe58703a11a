"""How a server is opened; light to import, since commands need it before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandbox.events import Scope
from sandbox.limits import HANDSHAKE_TIMEOUT, MAX_JSON_DEPTH, MAX_LINE_BYTES, MAX_STDERR_BYTES, STOP_GRACE
from sandbox.spec.model import DriverSpec
from sandbox.vet.model import Exposure, Fitting, Names, ServerSurface

if TYPE_CHECKING:
    from sandbox.supervisor.approval import Approval
    from sandbox.vet.pinning import Standing

Judged = Callable[["Approval", ServerSurface, "Standing", str], None]
"""Told of each judgement: what is approved, what the server offers, how that stands, and the tenant; in any thread."""

Vet = Callable[[DriverSpec, ServerSurface, Exposure, Scope], Exposure]
"""A further check of a bound server; returns what remains exposed or raises VetRefused."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a server is opened.

    Attributes:
        names: see :func:`sandbox.vet.bind.bind`.
        handshake_timeout: seconds from start to the server's first answer.
        grace: seconds a server has to end after its stdin is closed.
        fitting: what becomes of tools whose fit cannot be decided.
        vets: checks beyond the existence of every bound name, in order.
        pins_required: asked when nobody has approved a server: whether it is refused, or held to what it says first.
        capabilities: what the server is told that its client can do (MCP ``ClientCapabilities``), beside roots; what it
            then asks for is judged question by question.
        judged: told whenever a server was held against what was approved, refused or not.
        on_stderr: called with each line of the server's stderr, bounded but not cleaned.
        max_message: bytes of one message of the server.
        max_depth: nesting of one message of the server.
        max_stderr: bytes of the server's stderr that are kept.
    """

    names: Names = "contract"
    handshake_timeout: float = HANDSHAKE_TIMEOUT
    grace: float = STOP_GRACE
    fitting: Fitting = field(default_factory=Fitting)
    vets: tuple[Vet, ...] = ()
    pins_required: Callable[[], bool] = bool
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    judged: Judged | None = None
    on_stderr: Callable[[bytes], None] | None = None
    max_message: int = MAX_LINE_BYTES
    max_depth: int = MAX_JSON_DEPTH
    max_stderr: int = MAX_STDERR_BYTES
