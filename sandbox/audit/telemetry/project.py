"""From records to what is exported; pure.

=====================================  ==========================================================================
record                                 becomes, beside one log record each
=====================================  ==========================================================================
first of a trace ... ``teardown``      one internal span for the session
``call.forward``                       a SERVER span towards the caller and a CLIENT span towards the server
``call.decide`` (denied)               a SERVER span that failed
``egress.connect`` intent, outcome     a CLIENT span below the one call in flight, else below the session with links
other intents and outcomes             an internal span
=====================================  ==========================================================================

Ids are those of the ledger, so a span and its records are one question to each. A call whose client named a span
(``traceparent``) lies in the client's trace and links to the session; every other is the session's child.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sandbox.audit.lines import record_line
from sandbox.audit.telemetry import conventions as names
from sandbox.audit.telemetry.calls import Calls
from sandbox.audit.telemetry.values import Item, Log, Measure, Span, plain

MAX_OPEN: Final = 100_000
"""Intents and traces that are remembered; the oldest are forgotten, and their outcomes have no span."""

SPAN: Final = re.compile(r"[0-9a-f]{16}")
"""A span id."""


_MEMBERS: Final = ("driver", "tenant", "instance", "phase", "seq")


class Projector:
    """Projects the records of one stream, in their order."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, Any]] = {}
        self._intents: dict[tuple[str, ...], dict[str, Any]] = {}
        self._usage: dict[str, float] = {}
        self._calls = Calls()

    def take(self, record: Mapping[str, Any]) -> list[Item]:
        """Return what one record becomes, earlier ones considered."""
        moment = nanoseconds(str(record.get("time", "")))
        attrs = record.get("attrs")
        attrs = attrs if isinstance(attrs, dict) else {}
        found: list[Item] = [_log(record, attrs, moment)]
        if record.get("trace"):
            session = self._session(record, moment)
            found += self._spans(record, attrs, moment, session)
            found += self._measures(record, attrs)
        return found

    def end(self) -> list[Item]:
        """Return the sessions that are still open, as spans that end with their last record."""
        found: list[Item] = []
        for trace in list(self._sessions):
            found += self._ended(trace)
        return found

    # --- spans
    def _session(self, record: Mapping[str, Any], moment: int) -> dict[str, Any]:
        trace = str(record["trace"])
        session = self._sessions.get(trace)
        if session is None:
            root = str(record.get("parent") or record.get("span", ""))
            session = self._sessions[trace] = {"root": root, "start": moment, "attributes": {}}
            _forget(self._sessions)
        session["last"] = moment
        for member in ("driver", "tenant", "instance"):
            if record.get(member):
                session["attributes"][names.OWN + member] = str(record[member])
        return session

    def _spans(
        self, record: Mapping[str, Any], attrs: Mapping[str, Any], moment: int, session: dict[str, Any]
    ) -> list[Item]:
        name, phase = str(record.get("name", "")), record.get("phase")
        if name == "transport.negotiate":
            session["attributes"][names.PROTOCOL] = str(attrs.get("version", ""))
            session["ready"] = moment
        if name == "teardown":
            return self._ended(str(record["trace"]))
        if name.startswith("call."):
            return self._calls.take(record, attrs, moment, session)
        key = (name, str(record.get("trace")), str(record.get("span")), str(attrs.get("container_name", "")))
        if phase == "intent":
            self._intents[key] = {"start": moment, "attrs": attrs}
            _forget(self._intents)
            return []
        opened = self._intents.pop(key, None) if phase == "outcome" else None
        return (
            []
            if opened is None
            else [self._pair(record, {**opened["attrs"], **attrs}, opened["start"], moment, session)]
        )

    def _pair(
        self, record: Mapping[str, Any], attrs: Mapping[str, Any], start: int, moment: int, session: dict[str, Any]
    ) -> Span:
        """Return the span between an intent and its outcome."""
        trace, name, parent = str(record["trace"]), str(record["name"]), str(record.get("parent") or "")
        span = str(record["span"]) if parent else derived(trace, str(record["span"]), name, str(record.get("seq")))
        failed = attrs.get("decision") == "deny" or attrs.get("ok") is False or bool(attrs.get("reason"))
        error = str(attrs.get("why") or attrs.get("error") or attrs.get("reason") or "") if failed else None
        attributes = _flat({**attrs, **_place(record)})
        if name != "egress.connect":
            return Span(
                name, "internal", trace, span, parent or session["root"], start, moment, attributes, error=error
            )
        target = f"{attrs.get('host', '')}:{attrs.get('port', '')}"
        attributes |= {names.ADDRESS: str(attrs.get("host", "")), names.NETWORK: names.TCP}
        attributes |= {names.PORT: attrs["port"]} if isinstance(attrs.get("port"), int) else {}
        attributes |= {names.ERROR: str(attrs["reason"])} if attrs.get("reason") else {}
        named = attrs.get("calls")
        spans = (
            [call for call in named if isinstance(call, str) and SPAN.fullmatch(call)]
            if isinstance(named, list)
            else []
        )
        calls = [self._calls.place(call, trace) for call in spans]
        if len(calls) == 1:
            trace, parent = calls[0]
        links = tuple(calls) if len(calls) > 1 or (calls and trace != record["trace"]) else ()
        return Span(
            f"connect {target}", "client", trace, span, parent or session["root"], start, moment, attributes,
            links=links, error=error,
        )  # fmt: skip

    def _ended(self, trace: str) -> list[Item]:
        session = self._sessions.pop(trace, None)
        if session is None:
            return []
        attributes = {**session["attributes"], names.NETWORK: names.PIPE}
        found: list[Item] = [
            Span(
                "mcp_sandbox.session",
                "internal",
                trace,
                session["root"],
                "",
                session["start"],
                session["last"],
                attributes,
            )
        ]
        if "ready" in session:
            seconds = (session["last"] - session["ready"]) / 1e9
            kept = {key: attributes[key] for key in (names.PROTOCOL, names.NETWORK) if attributes.get(key)}
            found += [Measure(instrument, seconds, kept) for instrument in (names.SERVER_SESSION, names.CLIENT_SESSION)]
        return found

    # --- metrics
    def _measures(self, record: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[Item]:
        name, phase = str(record.get("name", "")), record.get("phase")
        driver = {names.OWN + "driver": str(record["driver"])} if record.get("driver") else {}
        if name in {"call.decide", "call.forward"} and phase != "outcome":
            reason = {names.OWN + "reason": str(attrs["reason"])} if attrs.get("reason") else {}
            tool = {names.TOOL: str(attrs["tool"])} if attrs.get("tool") else {}
            decision = {names.OWN + "decision": str(attrs.get("decision", ""))}
            return [Measure(names.DECISIONS, 1, {**driver, **tool, **decision, **reason})]
        if name in {"egress.dns", "egress.connect", "egress.flood"} and phase != "intent":
            return _egress(name, attrs, driver)
        if name in {"teardown", "instance.usage"} and isinstance(attrs.get("usage"), dict):
            return self._used(record, attrs["usage"], driver)
        return []

    def _used(self, record: Mapping[str, Any], usage: Mapping[str, Any], driver: Mapping[str, str]) -> list[Item]:
        """Return the figures of an instance; processor time as what was added since the last ones."""
        instance = str(record.get("instance", ""))
        place = {**driver, "container.id": instance}
        gauges = ((names.MEMORY, "memory_bytes"), (names.MEMORY_PEAK, "memory_peak_bytes"), (names.PIDS, "pids"))
        found: list[Item] = [Measure(what, usage[key], place) for what, key in gauges if _number(usage.get(key))]
        cpu = usage.get("cpu_seconds")
        if isinstance(cpu, int | float):
            found.append(Measure(names.CPU_TIME, max(0.0, cpu - self._usage.get(instance, 0.0)), place))
            self._usage[instance] = cpu
            _forget(self._usage)
        return found


def _egress(name: str, attrs: Mapping[str, Any], driver: Mapping[str, str]) -> list[Item]:
    kind = {
        **driver,
        names.OWN + "decision": str(attrs.get("decision", "")),
        names.OWN + "kind": name.partition(".")[2],
    }
    host = {names.ADDRESS: str(attrs["host"])} if attrs.get("host") and attrs.get("decision") == "allow" else {}
    count = attrs.get("count")
    found: list[Item] = [Measure(names.CONNECTIONS, count if isinstance(count, int) else 1, {**kind, **host})]
    for key, direction in (("bytes_up", "transmit"), ("bytes_down", "receive")):
        if _number(attrs.get(key)):
            found.append(Measure(names.EGRESS_IO, attrs[key], {**driver, **host, "network.io.direction": direction}))
    return found


def _log(record: Mapping[str, Any], attrs: Mapping[str, Any], moment: int) -> Log:
    severity = "INFO"
    if attrs.get("decision") == "deny" or str(record.get("name")).endswith((".refuse", ".drop", ".fault")):
        severity = "WARN"
    elif attrs.get("status") == "error" or attrs.get("error") or attrs.get("ok") is False:
        severity = "ERROR"
    attributes = _flat({**attrs, **_place(record), "phase": record.get("phase"), "seq": record.get("seq")})
    return Log(
        names.OWN + str(record.get("name", "")),
        moment,
        severity,
        record_line(dict(record)),
        attributes,
        str(record.get("trace") or ""),
        str(record.get("span") or ""),
    )


def _place(record: Mapping[str, Any]) -> dict[str, Any]:
    return {member: record[member] for member in ("driver", "tenant", "instance") if record.get(member)}


def _flat(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return members as attributes of ours: lists of texts and plain values as they are, the rest as JSON."""
    return {f"{names.OWN}{key}": plain(value) for key, value in members.items() if value is not None}


def derived(*parts: str) -> str:
    """Return a span id that follows from what it stands for, so that every projection finds the same."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def nanoseconds(text: str) -> int:
    """Return the time of a record in nanoseconds since 1970; 0 when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _forget(known: dict[Any, Any]) -> None:
    if len(known) > MAX_OPEN:
        known.pop(next(iter(known)))
