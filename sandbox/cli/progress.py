"""Shows long steps to a person on stderr, with rich when stderr is a terminal and as plain lines when it is not."""

from __future__ import annotations

import sys
import time
from typing import Final

from sandbox.launch.images.progress import Progress

QUIET_SECONDS: Final = 1.0
"""A step shorter than this is not worth a line in a client's log."""


class Lines:
    """Plain lines on stderr."""

    def step(self, text: str) -> None:
        """Print which step begins."""
        print(f"mcp-sandbox: {text} …", file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """Say nothing: details are for a person who watches."""

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"mcp-sandbox: warning: {text}", file=sys.stderr, flush=True)


class Rich:
    """A spinner with the current step and the last detail, and a line with its time for each finished step."""

    def __init__(self) -> None:
        from rich.console import Console  # only for a person at a terminal
        from rich.status import Status

        self._console = Console(stderr=True, highlight=False)
        self._status = Status("", console=self._console)
        self._step = ""
        self._since = 0.0

    def step(self, text: str) -> None:
        """Begin a step, finishing the one before."""
        self.finish()
        self._step, self._since = text, time.monotonic()
        self._status.update(f"{text} …")
        self._status.start()

    def detail(self, text: str) -> None:
        """Show a line beside the current step."""
        from rich.markup import escape  # untrusted text is not markup

        self._status.update(f"{self._step} … [dim]{escape(text[:80])}[/dim]")

    def warn(self, text: str) -> None:
        """Print a warning above the spinner."""
        from rich.markup import escape

        self._console.print(f"[yellow]warning:[/yellow] {escape(text)}")

    def finish(self) -> None:
        """Note the current step as done."""
        if self._step:
            self._status.stop()
            self._console.print(f"[green]✓[/green] {self._step} [dim]{time.monotonic() - self._since:.1f} s[/dim]")
            self._step = ""


def person() -> Progress:
    """Return progress for whoever started a command by hand."""
    return Rich() if sys.stderr.isatty() else Lines()


def quiet_progress() -> Progress:
    """Return progress for `run`, whose stderr is usually a client's log."""
    return Lines()


def finished(progress: Progress) -> None:
    """End the last step's display."""
    if isinstance(progress, Rich):
        progress.finish()
