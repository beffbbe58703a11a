"""One stream of evidence: append-only segments of lines, each bound to the one before, with signed heads among them.

Theory. Every process writes a stream of its own (ADR 0055), so no two writers share a file and a lock. A line is
acknowledged when ``append`` returns: by then ``write(2)`` has returned (durability ``kernel``: it survives the
death of this process) or ``fdatasync`` as well (``disk``: it survives the death of the machine). A line that could
not be written whole is cut off again, so that what follows stays readable; if even that fails, or a sync fails, the
stream takes no further record and every effect that would need one is refused. There is no queue in between, and
nothing is ever dropped.

Invariants: ``seq`` counts from 0 without gaps and owes nothing to the clock; ``after`` is the hash of the line
before; each line is a leaf of the stream's tree; a checkpoint says size and head of the tree of all lines before
it, signed; a segment is never written again after the next one began.

Names: ``segments/<stream>-<number>.jsonl``; ``live/<stream>`` is locked while the process lives and gone when it
ended well.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from pathlib import Path
from typing import Any, Final, Literal

from sandbox.audit.files import CREATE, FILE_MODE, Files, private_folder, sync_folder, try_lock, unavailable, write_all
from sandbox.audit.keys import Signer, change_text, head_text
from sandbox.audit.merkle import Frontier
from sandbox.audit.record import VERSION, Clock, first_after, leaf
from sandbox.audit.redact import Redactor
from sandbox.limits import MIB

SEGMENT_BYTES: Final = 64 * MIB
"""Of one segment before the next one begins: some 150 000 records, half a second of verification."""

CHECKPOINT_RECORDS: Final = 4096
"""Records that may stand without a signature however fast they come; the keeper signs every second anyway."""

Durability = Literal["kernel", "disk"]
"""What ``append`` waits for: ``write(2)``, or ``fdatasync`` as well."""

_STREAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")


def segment_name(stream: str, number: int) -> str:
    """Return the file name of one segment; names sort in the order of writing."""
    return f"{stream}-{number:06d}.jsonl"


class Ledger:
    """A stream that this process writes; safe to use from several threads.

    Args:
        folder: the audit folder.
        stream: name, unique in the folder.
        signer: the folder's key.
        durability: see :data:`Durability`.
        redactor: cleans every record before it is written.
        files: system calls.
        segment_bytes: size after which a new segment begins.

    Raises:
        AuditUnavailable: ``AUD-001`` … ``AUD-004``, the stream cannot be begun.
    """

    def __init__(
        self,
        folder: Path,
        stream: str,
        signer: Signer,
        *,
        durability: Durability = "kernel",
        redactor: Redactor | None = None,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        if _STREAM.fullmatch(stream) is None:
            raise unavailable("AUD-004", f"{stream[:40]!a} is no name of a stream")
        self.folder, self.stream, self.signer, self.durability = folder, stream, signer, durability
        self.redactor = redactor or Redactor()
        self._files = files or Files()
        self._segments = private_folder(folder / "segments")
        self._segment_bytes = segment_bytes
        self._tree, self._after, self._clock = Frontier(), first_after(stream), Clock()
        self._lock, self._sync_lock = threading.RLock(), threading.Lock()
        self._broken, self._closed = "", False
        self._segment, self._size, self._descriptor = 0, 0, -1
        self._signed, self._durable = 0, 0
        self.dirty = threading.Event()
        self._marker = self._mark()
        self._begin_segment()

    # --- state
    # ----------------------------------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Number of records."""
        return self._tree.size

    @property
    def unsigned(self) -> int:
        """Number of records after the last checkpoint."""
        return self._tree.size - self._signed

    # --- writing
    # --------------------------------------------------------------------------------------------------------
    def append(self, fields: dict[str, Any]) -> int:
        """Record one line and return its number; when this returns it is acknowledged.

        Args:
            fields: ``name``, ``phase``, ``attrs`` and the other members of a record; owned by this call.

        Raises:
            AuditUnavailable: ``AUD-010``, it could not be written, and nothing of it remains; or the signature or
            the new
                segment that were due after it could not, and it remains without its effect.
        """
        with self._lock:
            number = self._append(fields)
            if self._size >= self._segment_bytes:
                self._rotate()
            elif self._tree.size - self._signed >= CHECKPOINT_RECORDS:
                self._checkpoint()
        if self.durability == "disk":
            self.sync(number + 1)
        elif not self.dirty.is_set():
            self.dirty.set()
        return number

    def checkpoint(self) -> None:
        """Sign everything recorded so far, unless it is.

        Raises:
            AuditUnavailable: ``AUD-010`` or ``AUD-020``, it cannot be written or signed.
        """
        with self._lock:
            if self.unsigned > 0 and not self._closed:
                self._checkpoint()

    def sync(self, size: int | None = None) -> None:
        """Wait until the first ``size`` records, or all so far, are on the disk.

        Threads that wait at once share one call: whoever gets the lock writes out everything that was recorded by
        then, and the others find theirs done (group commit).

        Raises:
            AuditUnavailable: ``AUD-011``, the disk failed; nobody can say what it kept, so nothing more is recorded.
        """
        wanted = self._tree.size if size is None else size
        with self._sync_lock:
            if self._durable >= wanted or self._descriptor < 0:
                return
            self.dirty.clear()
            covered = self._tree.size
            try:
                self._files.fdatasync(self._descriptor)
            except OSError as error:
                self._broken = f"the disk failed: {error.strerror or error}"
                raise unavailable("AUD-011", f"the audit trail is not durable: {error.strerror or error}") from None
            self._durable = covered

    def close(self) -> None:
        """End the stream: a last record, a last signature, everything on the disk; idempotent.

        Raises:
            AuditUnavailable: the end could not be written; what was recorded before is intact, and is sealed by the
            next process.
        """
        with self._lock:
            if self._closed:
                return
            try:
                self._append({"name": "audit.close", "phase": "fact", "attrs": {"records": self._tree.size}})
                self._checkpoint()
                self.sync()
                self._files.unlink(str(self.folder / "live" / self.stream))
            finally:
                self._closed = True
                self._release()

    def introduce(self, signer: Signer) -> None:
        """Go over to another key with a record that both sign, so that who trusts the old one can trust the new one.

        The old key signs once more after the record; the new one is used from then on.

        Raises:
            AuditUnavailable: ``AUD-010`` or ``AUD-020``; the old key stays in use.
        """
        with self._lock:
            text = change_text(self.stream, self.signer.public, signer.public)
            attrs = {
                "old": self.signer.public,
                "new": signer.public,
                "sig_old": self.signer.sign(text),
                "sig_new": signer.sign(text),
            }
            self._append({"name": "audit.key", "phase": "fact", "attrs": attrs})
            self._checkpoint()
            self.signer = signer
        self.sync()

    # --- with the lock held
    # -----------------------------------------------------------------------------------------------
    def _append(self, fields: dict[str, Any]) -> int:
        if self._broken or self._closed:
            raise unavailable("AUD-010", f"the audit trail is closed: {self._broken or 'it ended'}")
        number = self._tree.size
        fields |= {"after": self._after, "seq": number, "time": self._clock(), "v": VERSION}
        line = self.redactor.clean(fields)
        self._write(line + b"\n")
        digest = leaf(line)
        self._tree.add(digest)
        self._after = digest.hex()
        return number

    def _write(self, data: bytes) -> None:
        """Write a line whole, or leave no trace of it."""
        try:
            write_all(self._files, self._descriptor, data)
        except OSError as error:
            reason = error.strerror or str(error)
            try:
                self._files.ftruncate(self._descriptor, self._size)
            except OSError:
                self._broken = reason
            raise unavailable("AUD-010", f"the audit trail cannot be written: {reason}") from None
        self._size += len(data)

    def _checkpoint(self) -> None:
        size, root = self._tree.size, base64.b64encode(self._tree.root()).decode()
        attrs = {
            "stream": self.stream,
            "size": size,
            "root": root,
            "key": self.signer.public,
            "sig": self.signer.sign(head_text(self.stream, size, root)),
        }
        self._append({"name": "audit.checkpoint", "phase": "fact", "attrs": attrs})
        self._signed = self._tree.size

    def _rotate(self) -> None:
        """Go over to the next segment: the old one ends signed and durable, the new one goes on with the chain."""
        self._checkpoint()
        self.sync()
        self._begin_segment()
        self._append({"name": "audit.segment", "phase": "fact", "attrs": {"segment": self._segment}})

    def _begin_segment(self) -> None:
        path = self._segments / segment_name(self.stream, self._segment + 1)
        try:
            descriptor = self._files.open(str(path), CREATE, FILE_MODE)
        except OSError as error:
            raise unavailable("AUD-002", f"{path} cannot be begun: {error.strerror or error}") from None
        with self._sync_lock:
            old, self._descriptor = self._descriptor, descriptor
            if old >= 0:
                os.close(old)
        self._segment, self._size = self._segment + 1, 0
        if self.durability == "disk":
            sync_folder(self._segments)

    def _mark(self) -> int:
        """Make the file that says this stream is being written; it has its name only once it is locked."""
        path = private_folder(self.folder / "live") / self.stream
        temporary = path.with_name(f".{self.stream}.{os.getpid()}")
        try:
            descriptor = self._files.open(str(temporary), CREATE, FILE_MODE)
            locked = try_lock(descriptor)
            self._files.rename(str(temporary), str(path))
        except OSError as error:
            raise unavailable("AUD-003", f"{path} cannot be made: {error.strerror or error}") from None
        if not locked:
            raise unavailable("AUD-003", f"{path} cannot be locked")
        return descriptor

    def _release(self) -> None:
        with self._sync_lock:
            self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self._descriptor, self._marker):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._marker = -1
