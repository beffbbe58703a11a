"""Synthetic addresses: what a name is inside a namespace; pure.

One name has one address and one address one name, for as long as the namespace lives: that is how the broker knows
which name was looked up for a connection. The addresses lie in 198.18.0.0/15 (RFC 2544), which no real service has.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from sandbox.launch.egress.inside.bounds import MAX_NAMES
from sandbox.policy.destinations import EgressRule, covers, names_of

RESOLVER: Final = "198.18.0.53"
"""What resolv.conf inside names; any other resolver's address is answered as well."""

_EXACT: Final = int(ipaddress.IPv4Address("198.18.1.0"))
_OTHER: Final = int(ipaddress.IPv4Address("198.19.0.0"))
_OTHERS: Final = 1 << 16


class NameTable:
    """Names that one namespace may look up.

    Args:
        rules: of the driver.
        known: names below wildcards → address, from before the broker was replaced.
        generation: how often the broker was replaced.
        everything: give an address to every name, allowed or not (learning; nothing is served on it).
    """

    def __init__(
        self,
        rules: Iterable[EgressRule],
        known: Mapping[str, str] | None = None,
        generation: int = 0,
        *,
        everything: bool = False,
    ) -> None:
        rules = tuple(rules)
        self.exact = {name: _address(_EXACT + at) for at, name in enumerate(names_of(rules))}
        self._patterns = [rule.host for rule in rules if rule.host.startswith("*.")]
        self._everything = everything
        self._other = dict(known or {})
        self._names = {address: name for name, address in (self.exact | self._other).items()}
        # An address must not change its name: a program inside may have kept what it was told before.
        self._next = _OTHER + (generation * MAX_NAMES) % _OTHERS

    def address(self, name: str) -> str | None:
        """Return a canonical name's address, ``None`` when it may not be looked up.

        Raises:
            OverflowError: the name may be looked up, but too many others were before.
        """
        found = self.exact.get(name) or self._other.get(name)
        if found is not None:
            return found
        if not self._everything and not any(covers(pattern, name) for pattern in self._patterns):
            return None
        if len(self._other) >= MAX_NAMES:
            raise OverflowError
        address = _address(self._next)
        while address in self._names:
            self._next = _OTHER + (self._next + 1 - _OTHER) % _OTHERS
            address = _address(self._next)
        self._other[name] = address
        self._names[address] = name
        return address

    def name(self, address: str) -> str | None:
        """Return the name whose address this is."""
        return self._names.get(address)


def _address(number: int) -> str:
    return str(ipaddress.IPv4Address(number))
