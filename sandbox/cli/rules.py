"""Finds and reads the operator's Cedar rules."""

from __future__ import annotations

from pathlib import Path

from sandbox.cli import options
from sandbox.errors import UsageError
from sandbox.policy.cedar import PolicySet
from sandbox.resources import shipped


def load_rules(folder: Path | None) -> PolicySet:
    """Return the operator's Cedar rules: ``--rules``, else ``rules/`` of this person, else the shipped starter set.

    Raises:
        PolicyError: a rule is not valid.
        UsageError: ``CLI-014``, the named folder has no rules; ``CLI-011``, a file of it cannot be read.
    """
    own = folder or options.CONFIG / "rules"
    files = sorted(own.glob("*.cedar")) if own.is_dir() else []
    if folder is not None and not files:
        raise UsageError("CLI-014", f"{folder} holds no *.cedar file", "name a folder with rules")
    chosen = files or [shipped("policies", "starter.cedar")]
    return PolicySet.load((str(path), _text(path)) for path in chosen)


def _text(path: Path) -> str:
    data = options.read_file(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("CLI-011", f"{path} is not UTF-8 at byte {error.start + 1}", "save it as UTF-8") from None
