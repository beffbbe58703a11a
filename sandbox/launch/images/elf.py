"""What an ELF file needs and offers, so that a program is refused before it is started rather than by the loader.

Read with pyelftools from files that the operator named or that Debian packaged; damage of any kind is one error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class Elf:
    """The dynamic facts of one file.

    Attributes:
        arch: Go's name of the architecture, or the ELF constant of one that we do not know.
        interpreter: the dynamic loader it asks for, empty for a static program or a library.
        soname: its own name as a library.
        needs: sonames of libraries it asks for.
        versions: soname → symbol versions it asks of it.
        defines: symbol versions that it offers.
    """

    arch: str
    interpreter: str = ""
    soname: str = ""
    needs: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defines: tuple[str, ...] = ()


class NotElf(ValueError):
    """The bytes are no sound 64-bit ELF file."""


def read(data: bytes) -> Elf:
    """Return the facts of an ELF file.

    Raises:
        NotElf: it is none, or damaged.
    """
    if not data.startswith(MAGIC):
        raise NotElf("no ELF file")
    from sandbox.launch.images import elf_file  # noqa: PLC0415 - pyelftools costs a start 40 ms, and few starts need it

    return elf_file.facts(data)


def missing(program: Elf, libraries: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return what a program asks for and a set of libraries does not offer, empty when it can be loaded; pure.

    Args:
        program: facts of a program or library.
        libraries: soname → symbol versions that are there.
    """
    lacking = [name for name in program.needs if name not in libraries]
    for name, versions in program.versions.items():
        offered = set(libraries.get(name, ()))
        if name in libraries and offered:
            lacking += [f"{name} with {version}" for version in versions if version not in offered]
    return tuple(lacking)
