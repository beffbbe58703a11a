"""The holder: owns one empty network namespace and hands its sockets to the broker.

It starts with CAP_NET_ADMIN and CAP_NET_RAW inside a namespace that has only ``lo``, and gives them up before it
speaks to anybody:

1. ``lo`` is up, every address is local (:mod:`.netlink`); IPv6 the same, or off.
2. The sockets: DNS over UDP and TCP on every address, and the watching sockets (:mod:`.watching`).
3. User and group become 65531; no capability is left, or the holder ends.
4. It connects to the broker and hands the sockets over.
5. It binds what the broker asks for (address and port of each allowed name) and hands that over as well.
6. When the broker is gone, what listened is closed at once (a connection attempt is refused, nothing waits), and the
   holder looks for a new broker for a bounded time.

It never accepts, reads or writes anything of the server's: the server shares the namespace, but not the process ids,
files or user of the holder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Final

from sandbox.launch.egress.inside import netlink, passing, watching
from sandbox.launch.egress.inside.bounds import FDS_PER_MESSAGE, ORPHAN_SECONDS, RECONNECT_SECONDS

DNS_PORT: Final = 53
_IP_PKTINFO: Final = 8
_IPV6_FREEBIND: Final = 78

Roster = list[tuple[list[Any], socket.socket]]
"""Every socket with what it is: ``["dns-udp", 4]``, ``["watch", 6]``, ``["listen", address, port]`` …"""


def main(token: str) -> int:
    """Hold a namespace until the broker says it is no longer needed; return the exit status."""
    # 1
    netlink.loopback_up()
    netlink.any_address(socket.AF_INET)
    netlink.no_multicast()
    families = [socket.AF_INET]
    with contextlib.suppress(OSError):  # a kernel without IPv6: then there is none in the namespace either
        netlink.any_address(socket.AF_INET6)
        families.append(socket.AF_INET6)
    # 2
    roster: Roster = [entry for family in families for entry in _sockets(family)]
    # 3
    drop_privileges(passing.UID)
    # 4 … 6
    return _serve(token, roster)


def drop_privileges(uid: int) -> None:
    """Become an ordinary user for good.

    Raises:
        RuntimeError: a capability is left.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    status = os.open("/proc/self/status", os.O_RDONLY)  # pathlib would cost a megabyte of every holder
    lines = os.read(status, 4096).decode("ascii", "replace").splitlines()
    os.close(status)
    held = [line for line in lines if line.startswith(("CapPrm", "CapEff", "CapInh", "CapAmb"))]
    if not held or any(int(line.split()[1], 16) for line in held):
        raise RuntimeError("capabilities are left after changing the user")


def _sockets(family: socket.AddressFamily) -> Roster:
    version = 4 if family == socket.AF_INET else 6
    everywhere = "0.0.0.0" if version == 4 else "::"  # noqa: PLR2004, S104 - the namespace has nobody else in it
    udp = socket.socket(family, socket.SOCK_DGRAM)
    if version == 4:  # noqa: PLR2004 - IP version
        udp.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    else:
        _only_ipv6(udp)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    udp.bind((everywhere, DNS_PORT))
    return [
        (["dns-udp", version], udp),
        (["dns-tcp", version], _bound(everywhere, DNS_PORT)),
        (["watch", version], watching.watch(family)),
    ]


def _bound(address: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet: until the broker says so, connections to it are refused."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        _only_ipv6(sock)
    # Without it the last moments of earlier connections would keep a new broker from listening again.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    return sock


def _only_ipv6(sock: socket.socket) -> None:
    """Leave IPv4 to its own sockets, and let a socket have addresses that are local by their route alone."""
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)


def _serve(token: str, roster: Roster) -> int:
    patience = time.monotonic() + ORPHAN_SECONDS
    while time.monotonic() < patience:
        broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            broker.connect(passing.SOCKET_PATH)
            _hand_over(broker, {"holder": token}, roster)
            if _obey(broker, roster):
                return 0
            patience = time.monotonic() + ORPHAN_SECONDS
        except OSError:
            time.sleep(RECONNECT_SECONDS)
        finally:
            broker.close()
            _close_ears(roster)
    return 0


def _hand_over(broker: socket.socket, head: dict[str, Any], roster: Roster) -> None:
    """Send sockets in as many messages as they need; the last one says so."""
    parts = [roster[at : at + FDS_PER_MESSAGE] for at in range(0, len(roster), FDS_PER_MESSAGE)] or [[]]
    for number, part in enumerate(parts, 1):
        message = {**head, "sockets": [what for what, _ in part], "last": number == len(parts)}
        passing.send(broker, message, [sock.fileno() for _, sock in part])


def _obey(broker: socket.socket, roster: Roster) -> bool:
    """Do what the broker asks until it ends the holder (true) or is gone (false)."""
    while True:
        message, _ = passing.receive(broker)
        if not message:
            return False
        if message.get("end"):
            return True
        _hand_over(broker, {"listen": True}, _listen(message.get("listen", []), roster))


def _listen(wanted: list[list[Any]], roster: Roster) -> Roster:
    """Bind what is wanted and not bound yet; an address that the server took first is left out, and so stays closed."""
    have = {(what[1], what[2]) for what, _ in roster if what[0] == "listen"}
    added: Roster = []
    for address, port in wanted:
        if (address, port) in have:
            continue
        with contextlib.suppress(OSError):
            added.append((["listen", address, port], _bound(address, port)))
    roster += added
    return added


def _close_ears(roster: Roster) -> None:
    """Make every listening socket refuse; the same socket can listen again when a new broker asks it to."""
    for what, sock in roster:
        if what[0] in {"listen", "dns-tcp"}:
            passing.deafen(sock)
