"""Turns the files of a folder into values with their :class:`~sandbox.spec.report.Source`, for every manifest alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox import jsontext
from sandbox.spec import frontmatter
from sandbox.spec.files import Unreadable
from sandbox.spec.folder import Place
from sandbox.spec.frontmatter import FrontMatterError
from sandbox.spec.report import Report, Source


@dataclass(frozen=True, slots=True)
class Manifest:
    """One file: where it is, what it says, its bytes."""

    source: Source
    values: dict[str, Any]
    data: bytes


def read(report: Report, place: Place, asker: Source, field: str) -> Manifest | None:
    """Return a manifest; report why it cannot be read and return ``None``.

    Args:
        report: where problems go.
        place: the file.
        asker: the file that names it, and the field that does.
        field: as above.
    """
    tree, relative = place
    try:
        data = tree.read(relative)
    except Unreadable as error:
        unreadable(asker, field, error)
        return None
    return parse(report, tree.label(relative), data)


def parse(report: Report, file: str, data: bytes) -> Manifest | None:
    """Return the manifest in some bytes; report what is wrong with its front matter."""
    source = Source(report, file)
    try:
        document = frontmatter.parse(data)
    except FrontMatterError as error:
        for fault in error.faults:
            _fault(source, fault)
        return None
    source.lines = document.lines
    source.written = document.written
    for fault in document.faults:
        _fault(source, fault)
        source.tainted.add(fault.path)
    if document.mark:
        source.warn("SPEC-023", "", "the file begins with a byte order mark", mend="save it as UTF-8 without one")
    return Manifest(source, document.values, data)


def read_json(report: Report, place: Place, asker: Source, field: str) -> Manifest | None:
    """Return a JSON manifest (server.json), strictly parsed; lines are not known."""
    tree, relative = place
    label = tree.label(relative)
    try:
        data = tree.read(relative)
        values = jsontext.parse(data)
    except Unreadable as error:
        unreadable(asker, field, error)
        return None
    except jsontext.JsonTextError as error:
        asker.error("SPEC-034", field, f"{label} is not strict JSON: {error!s:.200}", mend="correct it")
        return None
    if not isinstance(values, dict):
        asker.error("SPEC-034", field, f"{label} does not hold a JSON object", mend="write the `server` block in it")
        return None
    return Manifest(Source(report, label), values, data)


def unreadable(source: Source, field: str, error: Unreadable) -> None:
    """Report a file that cannot be read at the field that names it."""
    source.error(error.id, field, error.message, mend=error.mend)


def _fault(source: Source, fault: frontmatter.Fault) -> None:
    line = dict(source.lines)
    source.lines = {**line, fault.path: fault.line} if fault.line else line
    source.error(fault.id, fault.path, fault.message, found=fault.found, mend=fault.mend)
    source.lines = line
