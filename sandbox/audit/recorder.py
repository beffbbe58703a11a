"""The recorder that stages are handed: facts become records of this process's stream.

``record`` returns when the fact is acknowledged (see :mod:`sandbox.audit.ledger`), some ten microseconds later in
the default durability, and raises when it is not. Beside it one thread keeps the promises that are in time rather
than in order: everything is on the disk a tenth of a second after it was recorded, and signed a second after.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sandbox.audit.files import Files, private_folder, unavailable
from sandbox.audit.keys import Store, fresh_key, install_key, open_signer
from sandbox.audit.ledger import Durability, Ledger
from sandbox.audit.payloads import Payloads, erase
from sandbox.audit.seal import seal_abandoned
from sandbox.audit.tail import read_tail, segments
from sandbox.errors import AuditUnavailable
from sandbox.events import Fact

if TYPE_CHECKING:
    from sandbox.audit.telemetry.settings import Settings
    from sandbox.audit.telemetry.sink import TelemetrySink

SYNC_SECONDS: Final = 0.1
"""Longest time in which a record of durability ``kernel`` is not on the disk."""

SIGN_SECONDS: Final = 1.0
"""Longest time in which a record has no signature over it."""

FIRST_SIGN_SECONDS: Final = 5.0
"""The same for the first signature of a process: loading the cryptography takes 40 ms of the processor, and a server is
starting just then."""

SEEN_STREAMS: Final = 16
"""Earlier streams whose last heads a new stream bears witness to."""

_RUN: Final = re.compile(r"[^A-Za-z0-9]+")


def default_folder() -> Path:
    """Return where this person's audit trail lies: ``$XDG_STATE_HOME/mcp-sandbox/audit`` (XDG Base Directory)."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "mcp-sandbox" / "audit"


def stream_name(run_id: str) -> str:
    """Return a name for the stream of one run: its time first, so that names sort by it."""
    label = _RUN.sub("", run_id)[:16] or "run"
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{label}-{secrets.token_hex(8)}"


class LedgerRecorder:
    """Records facts in one ledger; implements :class:`sandbox.events.Recorder`.

    Attributes:
        ledger: the stream that is written.
        exported: spans of it go out, so that servers may be told of them.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.exported = False
        self._telemetry: TelemetrySink | None = None
        self._payloads: Payloads | None = None
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="audit-keeper", daemon=True)
        self._keeper.start()

    def record(self, fact: Fact) -> None:
        """Record one fact durably before returning.

        Raises:
            AuditUnavailable: it could not be written; an effect announced by it must not happen.
        """
        trace = fact.trace
        fields: dict[str, Any] = {
            "name": fact.name,
            "phase": fact.phase,
            "trace": trace.trace_id,
            "span": trace.span_id,
            "attrs": fact.attrs,
        }
        if trace.parent_id:
            fields["parent"] = trace.parent_id
        if fact.driver:
            fields["driver"] = fact.driver
        if fact.tenant:
            fields["tenant"] = fact.tenant
        if fact.instance:
            fields["instance"] = fact.instance
        self.ledger.append(fields)

    def add_secrets(self, *values: str) -> None:
        """Keep further secret values out of every record from now on."""
        self.ledger.redactor.add(*values)

    def keep(self, fields: Iterable[str]) -> None:
        """Keep the values of these arguments (``tool.argument``) from now on, beside the trail (see ``payloads``)."""
        ledger, named = self.ledger, tuple(fields)
        self._payloads = Payloads(ledger.folder, ledger.stream, named, ledger.redactor) if named else None

    def kept(self, tenant: str, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what policy names of one call's arguments; return argument → reference for its record.

        Raises:
            AuditUnavailable: ``AUD-012``, they cannot be written.
        """
        return {} if self._payloads is None else self._payloads.keep(tenant, tool, arguments)

    def redacted(self, text: str) -> str:
        """Return a text without the secret values that are kept out of records, for other places that show it."""
        return str(self.ledger.redactor.text(text))

    def export(self, chosen: Settings) -> None:
        """Export what is recorded as telemetry too; what becomes of that is on record (``telemetry.state``).

        Never raises for want of telemetry: the ledger is the evidence.
        """
        from sandbox.audit.telemetry.sink import TelemetrySink  # noqa: PLC0415 - only those who export pay for it

        for problem in chosen.problems:
            self._said({"state": "refused", "why": problem})
        if not chosen.signals:
            return
        try:
            self._telemetry = TelemetrySink(self.ledger.folder, self.ledger.stream, chosen, self._said)
        except OSError as error:
            self._said({"state": "failing", "why": f"the exporter cannot be started: {error.strerror}"})
            return
        self.exported = chosen.propagate

    def _said(self, said: Mapping[str, Any]) -> None:
        with contextlib.suppress(AuditUnavailable):  # it announces no effect, and the trail says itself that it ended
            self.ledger.append({"name": "telemetry.state", "phase": "fact", "attrs": dict(said)})

    def change_key(self, key_store: Store = "file") -> str:
        """Make a new signing key, introduce it with the old one, put it in place, and return its public half.

        In this order: a process that dies in between leaves the old key in use and a new one that nobody has.

        Raises:
            AuditUnavailable: the record or the key cannot be written.
        """
        signer, private = fresh_key()
        self.ledger.introduce(signer)
        return install_key(self.ledger.folder / "keys", private, key_store).public

    def erase(self, tenant: str) -> int:
        """Erase every kept value of a tenant (:mod:`sandbox.audit.payloads`), on record first; return their number.

        Raises:
            AuditUnavailable: the erasure cannot be recorded, and nothing is erased.
            OSError: a file cannot be rewritten.
        """

        def recorded(count: int) -> None:
            attrs = {"tenant": tenant, "payloads": count}
            self.ledger.append({"name": "audit.erase", "phase": "fact", "attrs": attrs})

        return erase(self.ledger.folder, tenant, recorded)

    def close(self) -> None:
        """End the stream; idempotent.

        Raises:
            AuditUnavailable: the end could not be written; what was recorded before is intact.
        """
        if self._telemetry is not None and not self._telemetry.close():
            self._said({"state": "left", "why": "what was left is still being sent; its end is not recorded"})
        self._telemetry = None
        self._stop.set()
        self.ledger.dirty.set()
        if self._keeper.is_alive():
            self._keeper.join()
        self.ledger.close()

    # --- the keeper
    # -----------------------------------------------------------------------------------------------------
    def _keep(self) -> None:
        """Sync and sign what was recorded, until the end; sleeps while nothing is."""
        ledger, due = self.ledger, time.monotonic() + FIRST_SIGN_SECONDS
        while not self._stop.is_set():
            ledger.dirty.wait()
            if self._stop.wait(SYNC_SECONDS):
                return
            # A failure here has closed the ledger, and the next record says so to whoever needs it.
            with contextlib.suppress(AuditUnavailable):
                ledger.sync()
                due = due or time.monotonic() + SIGN_SECONDS
                if time.monotonic() >= due:
                    ledger.checkpoint()
                    due = 0.0
            if ledger.unsigned:
                ledger.dirty.set()


def open_recorder(
    folder: Path | None = None,
    run_id: str = "",
    *,
    durability: Durability = "kernel",
    key_store: Store = "file",
    files: Files | None = None,
) -> LedgerRecorder:
    """Begin the stream of one run and return its recorder.

    Steps: 1 the folder is private; 2 the key is there; 3 streams that died are sealed; 4 the stream begins and says
    what it found.

    Args:
        folder: audit folder; by default :func:`default_folder`.
        run_id: id of the run, as on its containers.
        durability: see :data:`~sandbox.audit.ledger.Durability`.
        key_store: where the private key lies.
        files: system calls.

    Raises:
        AuditUnavailable: the trail cannot be begun, so nothing may be started.
    """
    place = private_folder(folder or default_folder())  # 1
    signer = open_signer(private_folder(place / "keys"), key_store)  # 2
    try:
        sealed = seal_abandoned(place, signer, files)  # 3
        seen = witnessed(place)
    except OSError as error:
        raise unavailable("AUD-005", f"earlier evidence in {place} cannot be read: {error.strerror or error}") from None
    ledger = Ledger(place, stream_name(run_id), signer, durability=durability, files=files)  # 4
    attrs = {"key": signer.public, "run": run_id, "durability": durability, "sealed": list(sealed), "seen": seen}
    ledger.append({"name": "audit.open", "phase": "fact", "attrs": attrs})
    return LedgerRecorder(ledger)


def witnessed(folder: Path) -> list[dict[str, Any]]:
    """Return the last heads of the newest other streams, as far as their ends show them.

    A stream that is removed or rewritten later is missed by every stream that saw it.
    """
    found = []
    known = segments(folder)
    for stream in sorted(known, reverse=True)[:SEEN_STREAMS]:
        tail = read_tail(stream, known[stream])
        if tail is not None and tail.last is not None:
            found.append({"stream": stream, "seq": tail.seq - 1, "hash": tail.after})
    return found
