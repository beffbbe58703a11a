"""Where a host path may be mounted inside, and how mounts may stand to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sandbox.plan.paths import below, inside, tidy

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft
    from sandbox.plan.model import Mount

RESERVED: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/boot",
)
"""Nothing is mounted at or below these: they are the kernel's, the engine's, or hold the programs that were
reviewed."""

EXACT: Final = ("/", "/tmp")  # noqa: S108 - a path inside the sandbox
"""Nothing is mounted at these; below them is allowed."""


def check_target(draft: Draft, field: str, target: str) -> bool:
    """Return whether a path inside may be mounted over; note why not.

    Steps: 1 its form; 2 reserved places; 3 the server's own program.
    """
    # 1. form
    if not tidy(target):
        mend = "write an absolute path without `.`, `..`, doubled or trailing slashes"
        draft.refuse("PLAN-028", field, "the path inside is not in its shortest absolute form", found=target, mend=mend)
        return False
    # 2. reserved places
    if target in EXACT or any(inside(target, reserved) for reserved in RESERVED):
        allowed = f"not {', '.join(EXACT)} and nothing in {', '.join(RESERVED)} (baseline)"
        mend = "mount it elsewhere, for example at /data"
        draft.refuse("PLAN-029", field, "the path inside is reserved", found=target, allowed=allowed, mend=mend)
        return False
    # 3. the program: what was reviewed or installed is what runs
    hidden = next((word for word in program(draft) if inside(word, target)), "")
    if hidden:
        message = f"the mount would replace the server's program {hidden}"
        draft.refuse("PLAN-030", field, message, found=target, mend="mount it elsewhere, for example at /data")
    return not hidden


def program(draft: Draft) -> tuple[str, ...]:
    """Return the paths in the image that start the server."""
    image = draft.host.image
    return tuple(word for word in image.argv if word.startswith("/")) if image else ()


def check_nesting(draft: Draft, entries: list[tuple[str, Mount]]) -> None:
    """Refuse mounts that stand in each other's way.

    Two grants may not have one target, or one source with different rights at the same depth; a target in another's
    folder needs a source in the same place of the other's source.
    """
    for number, (field, mount) in enumerate(entries):
        for other_field, other in entries[:number]:
            place = f"{other.target} ({draft.at(other_field)})"
            if mount.target == other.target:
                _refuse(draft, field, "two grants have the same place inside", mount.target, place)
            elif mount.source == other.source:
                _refuse(draft, field, "the same path is granted twice", mount.source, place)
            elif inside(mount.target, other.target) and not _parallel(mount, other):
                _refuse(
                    draft, field, "the mount lies in another one whose source has no such place", mount.target, place
                )
            elif inside(other.target, mount.target) and not _parallel(other, mount):
                _refuse(draft, field, "another mount, whose source lies elsewhere, is in this one", mount.target, place)


def _parallel(inner: Mount, outer: Mount) -> bool:
    return inner.source == outer.source.rstrip("/") + below(outer.target, inner.target)


def _refuse(draft: Draft, field: str, message: str, found: str, other: str) -> None:
    draft.refuse("PLAN-031", field, message, found=found, allowed=f"beside {other}", mend="grant each place once")
