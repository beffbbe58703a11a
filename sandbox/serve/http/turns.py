"""Tells whoever works with something lent that it is to be had anew, because what it was made from has changed."""

from __future__ import annotations

import asyncio


class Turn:
    """A count of changes that can be waited for.

    Attributes:
        number: of changes so far. Whoever lent something reads it before, and has to lend anew when it has grown.
    """

    def __init__(self) -> None:
        self.number = 0
        self._event = asyncio.Event()

    def next(self) -> None:
        """Count one change, and wake whoever waits."""
        self.number += 1
        self._event.set()
        self._event = asyncio.Event()

    async def after(self, number: int) -> None:
        """Return when there were more changes than ``number``."""
        while self.number <= number:
            await self._event.wait()
