"""Host folders: which of the driver's grants become mounts, and what is masked in them.

Theory. A grant names a host path and a place inside. Links are resolved before (``HostFacts.paths``), and both the path
as written and the real one are judged. Three relations decide: the real path lies in a mountable root of the
ceiling; it lies in no forbidden place; and no forbidden place lies in it - a folder that contains ``~/.ssh`` is
refused rather than masked, because what is forbidden may appear there after the start. ``fs.deny`` is the driver's
own wish and is masked: an empty read-only file or folder lies over it inside. What does not exist cannot be masked,
and a wish that cannot be kept refuses the plan.

Invariants: mounts are ordered so that a parent precedes its children; a mount nests in another only where the sources
nest the same way (otherwise the engine would create mount points on the host); no mount replaces the server's program.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from sandbox.plan.manifests import manifests
from sandbox.plan.model import Mount
from sandbox.plan.paths import below, expand, inside, relation, root, tidy
from sandbox.plan.targets import check_nesting, check_target

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft
    from sandbox.plan.model import PathFacts

_WILD: Final = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class Grant:
    """One entry of ``fs.read`` or ``fs.write``, after overrides."""

    field: str
    path: str
    at: str
    writable: bool
    flag: str = ""


def mounts(draft: Draft) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mounts, parents first, and the paths inside that are masked.

    Steps: 1 each source is judged by itself, 2 its target, 3 all mounts together; 4 denials are masked.
    """
    accepted: list[tuple[Grant, Mount]] = []
    for grant in _grants(draft):
        facts = draft.host.paths.get(grant.path)
        # 1. the source
        if facts is None:
            draft.refuse("PLAN-020", grant.field, "the host path was not looked at", found=grant.path, flag=grant.flag)
        elif _source(draft, grant, facts) and check_target(draft, grant.field, grant.at):  # 2. the target
            accepted.append((grant, Mount(facts.real, grant.at, grant.writable)))
            draft.because("mounts", f"{grant.at} ({_mode(grant)})", f"{facts.real} is granted", _origin(draft, grant))
    # 3. together
    check_nesting(draft, [(grant.field, mount) for grant, mount in accepted])
    found = tuple(sorted((mount for _, mount in accepted), key=lambda mount: mount.target))
    # 4. denials
    return found, _masks(draft, found)


def deny_path(entry: str) -> str:
    """Return the path that a deny entry names; ``/**`` at its end means the folder itself."""
    return entry.removesuffix("/**") or "/"


def _grants(draft: Draft) -> list[Grant]:
    """Return every grant with its source after ``--root``; refuse an override that no grant has the target of."""
    rules, roots = draft.spec.sandbox.fs, draft.overrides.roots
    grants = []
    for key, entries in (("read", rules.read), ("write", rules.write)):
        for index, entry in enumerate(entries):
            path = roots.get(entry.at, entry.path)
            flag = f"--root {entry.at}={path}" if entry.at in roots else ""
            grants.append(Grant(f"sandbox.fs.{key}[{index}]", path, entry.at, key == "write", flag))
    declared = {grant.at for grant in grants}
    for at in sorted(set(roots) - declared):
        draft.refuse(
            "PLAN-034", "sandbox.fs", "the driver grants nothing there that could be re-pointed", found=at,
            allowed=", ".join(sorted(declared)) or "nothing", mend="name the `at` of a declared grant",
            flag=f"--root {at}={roots[at]}",
        )  # fmt: skip
    return grants


def _mode(grant: Grant) -> str:
    return "read and write" if grant.writable else "read"


def _origin(draft: Draft, grant: Grant) -> str:
    return f"{grant.flag} over {draft.at(grant.field)}" if grant.flag else draft.at(grant.field)


def _source(draft: Draft, grant: Grant, facts: PathFacts) -> bool:
    """Return whether a host path may be mounted; note every reason why not.

    Steps: 1 it exists and is a folder or file; 2 it lies in a mountable root; 3 it neither lies in a forbidden
    place nor contains one; 4 likewise for engines; 5 no keys and logins are read through it, and nothing of our own and
    no manifest can be written.
    """
    before = len(draft.problems)
    # 1. existence and kind: sockets, devices and pipes speak to programs of the host
    if not facts.exists:
        mend = "create it, correct the path, or re-point it with --root AT=PATH"
        _refuse(draft, grant, "PLAN-021", "the granted path does not exist", facts.asked, "", mend)
    elif facts.kind not in {"dir", "file"}:
        _refuse(
            draft, grant, "PLAN-022", "the granted path is a socket, device or pipe", facts.real, "files and folders"
        )
    asked = normpath(facts.asked)  # lexically: it is judged as a name, `real` as a place
    if not tidy(facts.real) or not tidy(asked):
        message = "the granted path is not an absolute path of printable characters"
        _refuse(draft, grant, "PLAN-035", message, ascii(facts.real), "", "rename it or grant another")
        return False
    # 2. mountable roots
    _within_roots(draft, grant, facts)
    # 3. forbidden places, as written and after links
    if facts.real == "/":  # above all of them, which one line says
        mend = "grant the folder below it that is needed"
        _refuse(draft, grant, "PLAN-025", "the whole host is never mounted", facts.asked, "folders below it", mend)
        return False
    for path in dict.fromkeys((facts.real, asked)):
        _never(draft, grant, path)
    # 4. engines
    for engine in draft.host.engine_paths:
        if inside(facts.real, engine) or inside(engine, facts.real):
            allowed = "nothing that gives access to a container engine"
            _refuse(draft, grant, "PLAN-026", f"{engine} belongs to a container engine", facts.real, allowed)
    # 5. our own files and the driver's manifests
    _private(draft, grant, facts)
    if grant.writable:
        _own(draft, grant, facts)
    return len(draft.problems) == before


def _within_roots(draft: Draft, grant: Grant, facts: PathFacts) -> None:
    roots = draft.ceiling.write if grant.writable else draft.ceiling.read
    home, folder = draft.host.home, draft.spec.folder
    places = (root(entry.value, home, folder) for entry in roots)
    if any(place and inside(facts.real, place) for place in places):
        return
    section = "mounts.write" if grant.writable else "mounts.read"
    listed = ", ".join(entry.value for entry in roots) or "nothing"
    found = facts.real if facts.real == facts.asked else f"{facts.asked}, which is {facts.real}"
    message = f"the path lies in no folder that may be mounted for {_mode(grant)}"
    mend = "grant a path in one of them, or have the operator add one"
    _refuse(draft, grant, "PLAN-023", message, found, f"{listed} ({draft.ceiling.where(section)})", mend)


def _never(draft: Draft, grant: Grant, path: str) -> None:
    """Refuse a path in or above an entry of the never list; the root of the host is above all of them."""
    for entry in draft.ceiling.never:
        for pattern in expand(entry.value, draft.host.home, draft.spec.folder):
            stands = relation(path, pattern)
            if stands == "inside":
                allowed = f"nothing in {entry.value}: {entry.reason} ({entry.source})"
                _refuse(draft, grant, "PLAN-024", "the path is never mounted", path, allowed, "grant another folder")
                return
            if stands == "above":
                allowed = f"nothing that contains {entry.value}: {entry.reason} ({entry.source})"
                message = "a path that is never mounted lies below the granted one"
                _refuse(draft, grant, "PLAN-025", message, path, allowed, "grant the folder below it that is needed")
                return


def _private(draft: Draft, grant: Grant, facts: PathFacts) -> None:
    for private in draft.host.private_paths:
        if inside(facts.real, private) or inside(private, facts.real):
            message = f"keys and logins of this person lie in {private}"
            _refuse(draft, grant, "PLAN-070", message, facts.real, "nothing that contains them", "grant another folder")


def _own(draft: Draft, grant: Grant, facts: PathFacts) -> None:
    reviewed = next((file for file in manifests(draft.spec) if inside(file, facts.real)), "")
    if reviewed:
        message = f"the server could rewrite {reviewed}, which decides what it may do"
        mend = "grant a folder that holds no manifest and no program of the driver"
        _refuse(draft, grant, "PLAN-027", message, facts.real, "", mend)
    for own in draft.host.own_paths:
        if inside(facts.real, own) or inside(own, facts.real):
            message = f"the server could rewrite mcp-sandbox's own files in {own}"
            _refuse(draft, grant, "PLAN-027", message, facts.real, "", "grant another folder")


def _refuse(draft: Draft, grant: Grant, id_: str, message: str, found: str, allowed: str = "", mend: str = "") -> None:
    draft.refuse(id_, grant.field, message, found=found, allowed=allowed, mend=mend, flag=grant.flag)


# --- denials ----------------------------------------------------------------------------------------------------
def _masks(draft: Draft, found: tuple[Mount, ...]) -> tuple[str, ...]:
    """Return the paths inside that must be covered so that every ``fs.deny`` entry holds."""
    masks: dict[str, None] = {}
    for index, entry in enumerate(draft.spec.sandbox.fs.deny):
        path, name = f"sandbox.fs.deny[{index}]", deny_path(entry)
        facts = draft.host.paths.get(name)
        if _WILD & set(name):
            mend = "name each path; `/**` at the end of one is understood"
            draft.refuse("PLAN-032", path, "a pattern cannot be masked", found=entry, mend=mend)
        elif facts is None:
            draft.refuse("PLAN-020", path, "the host path was not looked at", found=name)
        else:
            masks |= dict.fromkeys(_mask(draft, path, facts, found))
    return tuple(masks)


def _mask(draft: Draft, path: str, facts: PathFacts, found: tuple[Mount, ...]) -> list[str]:
    """Return where one denied path shows inside; nowhere when no grant reaches it."""
    targets = []
    for mount in found:
        if inside(mount.source, facts.real):
            mend = "drop the grant or the denial"
            draft.refuse("PLAN-031", path, "the path is granted and denied", found=mount.source, mend=mend)
        elif inside(facts.real, mount.source):
            targets.append(mount.target.rstrip("/") + below(mount.source, facts.real))
    if targets and not facts.exists:
        mend = "create an empty folder of that name, or drop the denial"
        draft.refuse("PLAN-033", path, "what does not exist cannot be masked", found=facts.asked, mend=mend)
    why = "masked: an empty read-only entry lies over it" if targets else "no grant reaches it"
    draft.because("masked_paths", ", ".join(targets) or facts.asked, why, draft.at(path))
    return targets
