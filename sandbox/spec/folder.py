"""Where the manifests of a driver lie: its own folder, and the workspace around it.

AIP-30 and AIP-14 put drivers under ``.drivers/<id>/`` and contracts under ``.tools/`` of one workspace, and write paths
"workspace-relative"; self-contained folders write the same paths relative to themselves. So a path is looked for in
the driver folder and in the workspace; if two different files answer, nobody can say which was reviewed, and it is
refused (ADR 0011).

A workspace is the parent of the ``.drivers`` folder that holds the driver, or else the nearest directory above, at most
``MAX_LEVELS`` up, with a ``.tools`` folder or a WORKSPACE.md. A directory that anybody may write to, or that belongs to
neither the driver's owner nor root, is none: whoever may write there could plant contracts.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from sandbox.spec.files import Budget, Tree, Unreadable, clean

DRIVER_NAMES: Final = ("DRIVER.md", "MCP.md")
"""What the manifest may be called (AIP-32 §File location)."""

MAX_LEVELS: Final = 4
"""Directories above a driver folder that may be its workspace; a checkout root further up holds other things."""

MAX_TOOL_DEPTH: Final = 4
"""Folders below ``.tools`` in which a contract is looked for by its id (``.tools/finance/pricing-snapshot``)."""

_TOOL_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")

Place = tuple[Tree, str]
"""A file: the tree it lies in and its path there."""


class Folder:
    """An opened driver folder with its workspace; use it as a context.

    Args:
        path: DRIVER.md, MCP.md, or the folder that holds one.

    Attributes:
        file: the manifest as messages name it.
        name: its name in the folder.
        driver: the folder.
        workspace: the workspace, if there is one.
        budget: what may still be read.

    Raises:
        Unreadable: ``SPEC-010`` … ``SPEC-015``.
    """

    def __init__(self, path: Path) -> None:
        self.budget = Budget()
        self._opened = contextlib.ExitStack()
        is_folder = path.is_dir()
        folder = path if is_folder else path.parent
        try:
            self.driver = self._opened.enter_context(Tree(folder, str(folder), "driver", self.budget))
        except OSError as error:
            reason = error.strerror or "it cannot be opened"
            raise Unreadable("SPEC-010", f"{folder}: {reason}", "name a driver folder", missing=True) from None
        try:
            self.name = self._find() if is_folder else _known_name(path)
            self.file = self.driver.label(self.name)
            self.workspace = self._workspace(folder)
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> Folder:  # noqa: PYI034 - final in practice, and mypy then knows it
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _find(self) -> str:
        found = [name for name in DRIVER_NAMES if self.driver.has(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Unreadable("SPEC-015", f"{self.driver.shown} holds both DRIVER.md and MCP.md", "name one of them")
        raise Unreadable("SPEC-010", f"{self.driver.shown} holds no DRIVER.md", "create it", missing=True)

    # --- the workspace ------------------------------------------------------------------------------------------------
    def _workspace(self, folder: Path) -> Tree | None:
        real = folder.resolve()
        if real.parent.name == ".drivers":
            return self._trusted(real.parent.parent, folder)
        for above in list(real.parents)[:MAX_LEVELS]:
            if (above / ".tools").is_dir() or (above / "WORKSPACE.md").is_file():
                return self._trusted(above, folder)
        return None

    def _trusted(self, root: Path, folder: Path) -> Tree | None:
        shown = str(root) if folder.is_absolute() else os.path.relpath(root)
        try:
            tree = Tree(root, shown, "workspace", self.budget)
        except OSError:
            return None
        self._opened.enter_context(tree)
        owner, open_to_all = tree.owner()
        good = not open_to_all and owner in (0, self.driver.owner()[0])
        return tree if good else None

    # --- files that a manifest names ----------------------------------------------------------------------------------
    def find(self, text: str) -> Place:
        """Return the file that a manifest means by a relative path.

        Raises:
            Unreadable: ``SPEC-010`` none answers, ``SPEC-011`` the path is not plain, ``SPEC-014`` two answer.
        """
        relative = "/".join(clean(text))
        obstacles = {tree: tree.obstacle(relative) for tree in self._trees()}
        found = [(tree, relative) for tree, obstacle in obstacles.items() if obstacle is None]
        for obstacle in obstacles.values():
            if obstacle is not None and not obstacle.missing:
                raise obstacle
        if not found:
            places = " nor ".join(tree.label(relative) for tree in self._trees())
            raise Unreadable("SPEC-010", f"{places} does not exist", "create it, or correct the path", missing=True)
        if len(found) > 1 and not found[0][0].same(relative, found[1][0], relative):
            raise Unreadable(
                "SPEC-014",
                f"{found[0][0].label(relative)} and {found[1][0].label(relative)} are different files",
                "remove or rename one, so that it is clear which was reviewed",
            )
        return found[0]

    def find_tool(self, text: str) -> Place:
        """Return the TOOL.md that ``implements[].tool`` means: a path, or the id of a contract below ``.tools``.

        Raises:
            Unreadable: as :meth:`find`.
        """
        if "/" in text or text.endswith(".md"):
            if not text.endswith(".md"):
                raise Unreadable("SPEC-011", f"{text!r:.80} does not name a TOOL.md", "write the path with /TOOL.md")
            return self.find(text)
        if not _TOOL_ID.fullmatch(text):
            raise Unreadable("SPEC-011", f"{text!r:.80} is neither a path nor a contract id", "write the path")
        found = [
            (tree, place)
            for tree in self._trees()
            for root in (".tools", "tools")
            for place in _tools(tree, root, text, MAX_TOOL_DEPTH)
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            raise Unreadable(
                "SPEC-010",
                f"no .tools folder holds a contract `{text}`, and there is no registry to ask",
                "write the path of its TOOL.md",
                missing=True,
            )
        labels = " and ".join(tree.label(place) for tree, place in found[:2])
        raise Unreadable("SPEC-014", f"{labels} are both called `{text}`", "write the path of the one that is meant")

    def inventories(self) -> list[Place]:
        """Return the SECRETS.md files that stand where AIP-32 and AIP-19 put them."""
        usual = [(self.driver, "SECRETS.md")]
        if self.workspace is not None:
            usual.append((self.workspace, ".secrets/SECRETS.md"))
            usual += [(self.workspace, f".secrets/{name}/SECRETS.md") for name in self.workspace.names(".secrets")]
        return [(tree, relative) for tree, relative in usual if tree.has(relative)]

    def _trees(self) -> list[Tree]:
        return [self.driver] if self.workspace is None else [self.driver, self.workspace]


def _known_name(path: Path) -> str:
    if path.name not in DRIVER_NAMES:
        raise Unreadable(
            "SPEC-015", f"{path} is not called DRIVER.md or MCP.md", "rename it, or name the folder that holds it"
        )
    return path.name


def _tools(tree: Tree, root: str, tool_id: str, depth: int) -> list[str]:
    """Return the paths ``<root>/…/<tool_id>/TOOL.md`` that exist."""
    found: list[str] = []
    for name in tree.names(root):
        inner = f"{root}/{name}"
        if name == tool_id and tree.has(f"{inner}/TOOL.md"):
            found.append(f"{inner}/TOOL.md")
        elif depth > 1:
            found += _tools(tree, inner, tool_id, depth - 1)
    return found
