"""How the holder and the broker are created; pure.

What each may do is the whole of their trust:

- a *holder* has CAP_NET_ADMIN and CAP_NET_RAW over one empty namespace, for some milliseconds; the server then
  shares that namespace and nothing else with it;
- the *broker* has no capability, an ordinary network, and no ear there.

Both: read-only root, no new privileges, a seccomp profile of their own, one user that is not the server's, no log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.launch.egress.inside.names import RESOLVER
from sandbox.launch.egress.inside.passing import SOCKET_PATH, UID
from sandbox.limits import MIB

HOLDER_MEMORY: Final = 48 * MIB
"""A holder needs 10 MB; the rest is room for the start of the interpreter."""

BROKER_MEMORY: Final = 512 * MIB
"""25 MB and, for each of at most 3000 connections, up to two chunks of 256 KiB that a slow reader has not taken;
beyond it the broker is killed, egress stops, and a new one takes over."""

HOLDER_PIDS: Final = 32
"""It is one process of one thread, and its system call profile lets it make no other; before that the engine's own
helper counts, whose threads are as many as the moment wants: with 4, one start in thirty failed under load."""

BROKER_PIDS: Final = 32
"""One process with 16 resolver threads."""

NOFILE: Final = 8192
"""Descriptors: 4096 listeners in a holder; 3000 connections of two each in the broker."""

VOLUME_BYTES: Final = 1 * MIB
"""The volume holds one socket."""

CAPABILITIES: Final = ("NET_ADMIN", "NET_RAW", "SETGID", "SETUID")
"""Of a holder while it sets its namespace up: routes; the watching socket; becoming an ordinary user."""

HOLDER: Final = ("/usr/bin/python3", "-I", "-S", "-B", "/opt/egress", "holder")
BROKER: Final = ("/usr/bin/python3", "-I", "-B", "/opt/egress", "broker")
"""Isolated from the environment; no byte code is written; the holder needs nothing but the standard library."""

SYSCTLS: Final = {"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "1 0"}
"""The holder binds low ports as an ordinary user; nobody opens ping sockets."""

IPV6_SYSCTLS: Final = {f"net.ipv6.conf.{name}.disable_ipv6": "0" for name in ("all", "default", "lo")}
"""IPv6 is on, so that attempts over it are seen and refused like those over IPv4, and ``::1`` works."""


def holder(
    image: str, token: str, volume: str, labels: Mapping[str, str], seccomp: str, *, hostname: str, ipv6: bool
) -> dict[str, Any]:
    """Return the create request of a holder.

    Args:
        image: id of ``mcp-sandbox/egress``.
        token: what the broker will know it by.
        volume: name of the volume that it shares with the broker.
        labels: for reaping.
        seccomp: profile, JSON text.
        hostname: the server will see it as its own.
        ipv6: whether the host's kernel has IPv6.
    """
    request = _common(image, HOLDER, volume, labels, seccomp)
    request |= {"User": "0:0", "Hostname": hostname, "Env": [f"EGRESS_HOLDER={token}"]}
    request["HostConfig"] |= {
        "NetworkMode": "none",
        "CapAdd": list(CAPABILITIES),
        "Memory": HOLDER_MEMORY,
        "MemorySwap": HOLDER_MEMORY,
        "PidsLimit": HOLDER_PIDS,
        "Dns": [RESOLVER],
        "DnsSearch": ["."],
        "DnsOptions": [],
        "Sysctls": SYSCTLS | (IPV6_SYSCTLS if ipv6 else {}),
    }
    return request


def broker(
    image: str,
    volume: str,
    labels: Mapping[str, str],
    seccomp: str,
    *,
    network: str,
    resolvers: Sequence[str] = (),
    hosts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the create request of a broker.

    Args:
        image: id of ``mcp-sandbox/egress``.
        volume: name of the volume that it shares with holders.
        labels: for reaping.
        seccomp: profile, JSON text.
        network: the engine's network that it dials from.
        resolvers: name servers; none takes the engine's.
        hosts: names with fixed addresses, as in /etc/hosts.
    """
    request = _common(image, BROKER, volume, labels, seccomp)
    request |= {
        "User": f"{UID}:{UID}",
        "Env": ["MALLOC_ARENA_MAX=2"],  # threads that only wait need no memory arenas of their own
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
    }
    request["HostConfig"] |= {
        "NetworkMode": network,
        "CapAdd": [],
        "Memory": BROKER_MEMORY,
        "MemorySwap": BROKER_MEMORY,
        "PidsLimit": BROKER_PIDS,
        "Dns": list(resolvers),
        "DnsSearch": ["."],
        "DnsOptions": ["timeout:2", "attempts:2"],
        "ExtraHosts": [f"{name}:{address}" for name, address in (hosts or {}).items()],
        "Sysctls": {},
    }
    return request


def volume(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the create request of the volume: memory, for one user, so that it belongs to nobody's disk."""
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"uid={UID},gid={UID},mode=0700,size={VOLUME_BYTES}"}
    return {"Name": name, "Driver": "local", "DriverOpts": options, "Labels": dict(labels)}


def _common(
    image: str, argv: Sequence[str], volume_name: str, labels: Mapping[str, str], seccomp: str
) -> dict[str, Any]:
    return {
        "Image": image,
        "Entrypoint": list(argv),
        "Cmd": [],
        "WorkingDir": "/",
        "Labels": dict(labels),
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", *([f"seccomp={seccomp}"] if seccomp else [])],
            "Privileged": False,
            "ReadonlyRootfs": True,
            "IpcMode": "none",
            "CgroupnsMode": "private",
            "Init": False,
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "LogConfig": {"Type": "none", "Config": {}},
            "Ulimits": [
                {"Name": "nofile", "Soft": NOFILE, "Hard": NOFILE},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Mounts": [
                {
                    "Type": "volume",
                    "Source": volume_name,
                    "Target": SOCKET_PATH.rpartition("/")[0],
                    # Otherwise the engine gives the volume, which others use already, the owner of the image's folder.
                    "VolumeOptions": {"NoCopy": True},
                }
            ],
        },
    }
