"""Finds and reads the operator's Cedar rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.cli import options
from sandbox.errors import UsageError
from sandbox.policy.cedar import PolicySet
from sandbox.policy.request import ELICIT, SAMPLE
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


def capabilities_for(folder: Path | None) -> dict[str, Any]:
    """Return what servers are told that their client can be asked for: what some rule could allow.

    Without rules of one's own nothing can, and nothing is loaded to find that out.
    """
    own = folder or options.CONFIG / "rules"
    if folder is None and not own.is_dir():
        return {}
    permits = [rule for rule in load_rules(folder).rules if rule.effect == "permit"]
    offers: dict[str, dict[str, Any]] = {SAMPLE: {"sampling": {}}, ELICIT: {"elicitation": {"form": {}, "url": {}}}}
    found: dict[str, Any] = {}
    for method, offer in offers.items():
        if any(rule.action.reaches(("Action", method), frozenset()) for rule in permits):
            found |= offer
    return found


def _text(path: Path) -> str:
    data = options.read_file(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("CLI-011", f"{path} is not UTF-8 at byte {error.start + 1}", "save it as UTF-8") from None
