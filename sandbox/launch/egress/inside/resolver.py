"""Names to addresses, through the system's resolver of the broker's own container, in a bounded number of threads."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from sandbox.launch.egress.inside.bounds import MAX_RESOLVING, RESOLVE_TIMEOUT, RESOLVERS
from sandbox.launch.egress.inside.reasons import UNRESOLVED, Denied


class Resolver:
    """Resolves for all namespaces, a few questions of each at a time.

    Every connection is resolved anew: nothing is remembered that a rebinding name could use, and the system's resolver
    caches as its operator wants.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
        self._turns: dict[int, asyncio.Semaphore] = {}

    async def addresses(self, asker: object, name: str, port: int) -> list[str]:
        """Return the addresses of a canonical name, in the order of the system's resolver.

        Args:
            asker: whose turn it takes.
            name: canonical; looked up as it stands, no search list applies.
            port: only to ask for addresses of TCP services.

        Raises:
            Denied: ``EGR-114``, there are none or nobody answered in time.
        """
        turn = self._turns.setdefault(id(asker), asyncio.Semaphore(MAX_RESOLVING))
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT), turn:
                found = await asyncio.get_running_loop().run_in_executor(self._threads, _resolve, name, port)
        except TimeoutError:
            raise Denied(UNRESOLVED, "no resolver answered in time") from None
        except (OSError, UnicodeError) as error:
            raise Denied(UNRESOLVED, str(error)[:120]) from None
        return found

    def forget(self, asker: object) -> None:
        """Release what was kept for an asker."""
        self._turns.pop(id(asker), None)


def _resolve(name: str, port: int) -> list[str]:
    answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
