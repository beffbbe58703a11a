"""What the operator's page remembers of the trail: the last of everything, and never more than a fixed number.

A recorder in front of the real one. A fact is remembered only after it is on record, without the secrets that the trail
leaves out, and cut to lengths that a page can show. However many facts come, memory stays as it is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sandbox.events import Fact, Recorder
from sandbox.launch.egress import evidence

MAX_TEXT: Final = 400
"""Characters of one text."""

MAX_DENIALS: Final = 100
MAX_REFUSALS: Final = 60
MAX_APPROVALS: Final = 10
MAX_SKIPPED: Final = 50
MAX_DRIVERS: Final = 500
"""Rows that are remembered."""


@dataclass(slots=True)
class Denied:
    """Refusals of one kind.

    Attributes:
        text: as stderr says it.
        line: of DRIVER.md, which would allow it; empty when none would.
    """

    what: str
    reason: str
    text: str
    line: str
    tenant: str
    driver: str
    count: int = 0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Turned:
    """A request that was refused at the door."""

    at: float
    status: int
    reason: str
    method: str
    path: str
    peer: str
    tenant: str


@dataclass(slots=True)
class Verdict:
    """What vetting said last of a driver's server."""

    text: str = ""
    good: bool = True
    trust: str = ""
    findings: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True)
class Approved:
    """An approval that was given."""

    at: float
    driver: str
    digest: str
    by: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What was seen, at one moment; oldest first."""

    denials: list[Denied]
    refusals: list[Turned]
    turned: int
    skipped: dict[str, str]
    approvals: list[Approved]


class Seen:
    """Records with another recorder, and remembers what a page shows.

    Attributes:
        denials: newest last.
        refusals: newest last.
        verdicts: by driver.
        skipped: folder → id of the error.
        approvals: newest last.
    """

    def __init__(self, inner: Recorder, clock: Callable[[], float] = time.time) -> None:
        self._inner = inner
        self._clock = clock
        self._lock = threading.Lock()
        self.denials: OrderedDict[tuple[str, ...], Denied] = OrderedDict()
        self.refusals: deque[Turned] = deque(maxlen=MAX_REFUSALS)
        self.turned: int = 0
        self.verdicts: OrderedDict[str, Verdict] = OrderedDict()
        self.skipped: OrderedDict[str, str] = OrderedDict()
        self.approvals: deque[Approved] = deque(maxlen=MAX_APPROVALS)
        self._who: dict[str, str] = {}
        self.on_denied: Callable[[Fact], None] = lambda _fact: None

    def __getattr__(self, name: str) -> Any:
        """Whatever else the recorder can do: keeping secrets out, keeping values."""
        return getattr(self._inner, name)

    def record(self, fact: Fact) -> None:
        """Record one fact, then remember it.

        Raises:
            AuditUnavailable: it could not be written.
        """
        self._inner.record(fact)
        take = _TAKES.get(fact.name)
        if take is not None:
            with self._lock:
                take(self, fact)

    def now(self) -> Shown:
        """Return what was seen; facts come from other threads too."""
        with self._lock:
            return Shown(
                [replace(one) for one in self.denials.values()],
                list(self.refusals),
                self.turned,
                dict(self.skipped),
                list(self.approvals),
            )

    def text(self, value: object, most: int = MAX_TEXT) -> str:
        """Return a text without known secrets, cut."""
        clean: Callable[[str], str] = getattr(self._inner, "redacted", str)
        found = clean(str(value)[: 4 * most])
        return found if len(found) <= most else found[: most - 1] + "…"

    # --- one for each kind of fact -----------------------------------------------------------------------------------
    def _denied(self, fact: Fact) -> None:
        attrs = fact.attrs
        if attrs.get("decision") != "deny":
            return
        what = next((self.text(attrs[key], 120) for key in ("tool", "host", "uri", "method") if attrs.get(key)), "")
        if attrs.get("host") and attrs.get("port"):
            what = f"{what}:{attrs['port']}"
        reason, line = self.text(attrs.get("reason", ""), 40), self.text(attrs.get("allow_line", ""), 200)
        said = evidence.sentence(fact.name, {"reason": "", "why": "", **attrs}) if fact.name in _EGRESS else ""
        said = said or f"{'resource' if attrs.get('uri') else 'call'} denied: {what}: {reason}{_rules(attrs)}"
        key = (what, reason, fact.tenant, fact.driver)
        entry = self.denials.pop(key, None)
        if entry is None:
            entry = Denied(what, reason, "", line, self.text(fact.tenant, 80), fact.driver)
        entry.text, entry.last = self.text(said), self._clock()
        count = attrs.get("count")
        entry.count += count if isinstance(count, int) else 1
        self.denials[key] = entry
        while len(self.denials) > MAX_DENIALS:
            self.denials.popitem(last=False)
        if fact.name == "call.decide":
            self.on_denied(fact)

    def _turned(self, fact: Fact) -> None:
        attrs = fact.attrs
        unrecorded = attrs.get("unrecorded")
        self.turned += 1 + (unrecorded if isinstance(unrecorded, int) else 0)
        status = attrs.get("status")
        reason, method, path, peer = (
            self.text(attrs.get(key, ""), 160) for key in ("reason", "method", "path", "peer")
        )
        code, tenant = status if isinstance(status, int) else 0, self.text(fact.tenant, 80)
        self.refusals.append(Turned(self._clock(), code, reason, method, path, peer, tenant))

    def _vetted(self, fact: Fact) -> None:
        found = self.verdicts.setdefault(fact.driver, Verdict())
        attrs = fact.attrs
        if fact.name == "vet.pins":
            found.trust = str(attrs.get("trust", ""))
            found.findings = ""
        elif fact.name == "vet.hazards":
            hazards = attrs.get("found")
            found.findings = ", ".join(f"{name} ×{count}" for name, count in sorted(hazards.items())) if hazards else ""
        else:
            found.good = fact.name != "vet.refuse" and not attrs.get("held")
            found.text = self._said(fact)
            server = attrs.get("server")
            if isinstance(server, Mapping):
                found.server = self.text(f"{server.get('name', '')} {server.get('version', '')}", 80)
        while len(self.verdicts) > MAX_DRIVERS:
            self.verdicts.popitem(last=False)

    def _said(self, fact: Fact) -> str:
        attrs = fact.attrs
        held = attrs.get("held") or ()
        if fact.name == "vet.refuse":
            return self.text(f"refused: {attrs.get('reason')} {attrs.get('message')}")
        if fact.name == "vet.drift":
            return f"changed: {len(held)} out of service" if held else "changed, nothing out of service"
        exposed = len(attrs.get("exposed") or ())
        return f"admitted: {exposed} of {attrs.get('offered')} tools" + (f", {len(held)} held" if held else "")

    def _skipped(self, fact: Fact) -> None:
        self.skipped[self.text(fact.attrs.get("folder", ""), 120)] = self.text(fact.attrs.get("reason", ""), 40)
        while len(self.skipped) > MAX_SKIPPED:
            self.skipped.popitem(last=False)

    def _approved(self, fact: Fact) -> None:
        if fact.phase == "intent":
            self._who = {fact.driver: self.text(fact.attrs.get("by", ""), 120)}
        elif "error" not in fact.attrs:
            digest, by = str(fact.attrs.get("digest", "")), self._who.pop(fact.driver, "")
            self.approvals.append(Approved(self._clock(), fact.driver, digest, by))
            found = self.verdicts.setdefault(fact.driver, Verdict())
            found.text, found.trust, found.good = "approved as it is offered", "pinned", True


_EGRESS: Final = ("egress.dns", "egress.connect", "egress.flood")

_TAKES: Final[Mapping[str, Callable[[Seen, Fact], None]]] = {
    **dict.fromkeys(("call.decide", "ask.decide", *_EGRESS), Seen._denied),  # noqa: SLF001 - this module's own
    "gateway.refuse": Seen._turned,  # noqa: SLF001
    **dict.fromkeys(("vet.pins", "vet.hazards", "vet.admit", "vet.drift", "vet.refuse"), Seen._vetted),  # noqa: SLF001
    "gateway.skip": Seen._skipped,  # noqa: SLF001
    "pins.approve": Seen._approved,  # noqa: SLF001
}


def _rules(attrs: Mapping[str, Any]) -> str:
    rules = attrs.get("rules")
    return f" by {', '.join(map(str, rules))}" if isinstance(rules, list | tuple) and rules else ""
