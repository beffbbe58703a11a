"""Reads ELF files with pyelftools; any damage is one error. Apart from :mod:`.elf` because of its import cost."""

from __future__ import annotations

import io
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection, DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.segments import InterpSegment

from sandbox.launch.images.elf import Elf, NotElf

_MACHINES: Final = {"EM_X86_64": "amd64", "EM_AARCH64": "arm64"}
_DAMAGE: Final = (
    ELFError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    OverflowError,
    AssertionError,
)
"""What pyelftools raises about files that are not sound."""


def facts(data: bytes) -> Elf:
    """Return the facts of an ELF file.

    Raises:
        NotElf: it is none, or damaged.
    """
    try:
        return _facts(ELFFile(io.BytesIO(data)))
    except _DAMAGE as error:
        raise NotElf(f"damaged: {error}") from None


def _facts(file: Any) -> Elf:
    machine = str(file["e_machine"])
    if file.elfclass != 64:  # noqa: PLR2004 - ELFCLASS64
        raise NotElf("a 32-bit program; only 64-bit ones are run")
    interpreter, soname = "", ""
    needs: list[str] = []
    for segment in file.iter_segments():
        if isinstance(segment, InterpSegment):
            interpreter = segment.get_interp_name()
        if isinstance(segment, DynamicSegment):
            needs, soname = _dynamic(segment)
    versions: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    for section in file.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            versions = {
                str(need.name): tuple(str(item.name) for item in items) for need, items in section.iter_versions()
            }
        elif isinstance(section, GNUVerDefSection):
            defines = tuple(str(next(items).name) for _, items in section.iter_versions())
    return Elf(_MACHINES.get(machine, machine), interpreter, soname, tuple(needs), versions, defines)


def _dynamic(segment: DynamicSegment | DynamicSection) -> tuple[list[str], str]:
    needs: list[str] = []
    soname = ""
    for tag in segment.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED":
            needs.append(str(tag.needed))  # type: ignore[attr-defined]
        elif tag.entry.d_tag == "DT_SONAME":
            soname = str(tag.soname)  # type: ignore[attr-defined]
    return needs, soname
