"""How long steps tell what they are doing, without printing anything themselves."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Takes what a person who waits wants to know; the CLI shows it, tests collect it."""

    def step(self, text: str) -> None:
        """Say which step begins, in a few words (``fetching 14 Debian packages``)."""

    def detail(self, text: str) -> None:
        """Say one line of what a step's own program prints; untrusted text, control characters already removed."""

    def warn(self, text: str) -> None:
        """Say something that the reader should know although nothing failed."""


class Silent:
    """Shows nothing."""

    def step(self, text: str) -> None:
        """Ignore it."""

    def detail(self, text: str) -> None:
        """Ignore it."""

    def warn(self, text: str) -> None:
        """Ignore it."""
