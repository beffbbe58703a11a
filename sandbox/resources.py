"""Finds what ships with the package: ``policies/``, ``images/``, ``drivers/``, ``schemas/``, ``skills/``.

In a checkout they stand at the top level, where reviewers look; in a wheel they lie under ``sandbox/_shipped``. An
editable install has the first only, so both are tried and the checkout wins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError

_PACKAGE: Final = Path(__file__).resolve().parent
_IN_CHECKOUT: Final = {kind: Path("docs") / kind for kind in ("schemas", "skills")}


def shipped(kind: str, *parts: str) -> Path:
    """Return the path of a shipped file or folder.

    Args:
        kind: ``policies``, ``images``, ``drivers``, ``schemas`` or ``skills``.
        *parts: path below it.

    Raises:
        PlatformError: ``CLI-090``, when the installation is incomplete.
    """
    checkout = _PACKAGE.parent / _IN_CHECKOUT.get(kind, Path(kind))
    for base in (checkout, _PACKAGE / "_shipped" / kind):
        path = base.joinpath(*parts)
        if path.exists():
            return path
    raise PlatformError(
        "CLI-090",
        f"the installation lacks {kind}/{'/'.join(parts)}",
        "install mcp-sandbox again; its wheel carries this file",
    )
