"""Compares what the engine says it runs with what was asked for; pure, and anything unexpected is a difference.

The theory: a running container is compared with the create request that :mod:`sandbox.launch.translate` made from
the plan, field by field, in both directions. A field that was asked for must come back with its value. A field that
was *not* asked for must come back neutral (absent, empty, zero, false): so an option that a later engine invents, or
that somebody added between create and start, is a difference without this module knowing its name. Options that an
engine swallows silently show in :mod:`sandbox.launch.kernel`, which looks at the running process.

Steps of a read-back, numbered as in :func:`differences`:

1. identity: the image and the argument vector;
2. ``Config``: user, environment, working directory, streams;
3. ``HostConfig``: privileges, namespaces, limits, mounts;
4. what the engine made of it: actual mounts, networks, published ports, state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.launch.interface import Difference

_FROM_IMAGE: Final = frozenset({"ExposedPorts", "OnBuild", "ArgsEscaped", "Shell", "Volumes", "StopTimeout"})
"""``Config`` members that an image may fill and that have no effect here: nothing is published, the argument vector
is a list, and a volume shows in the actual mounts (step 4)."""

_ENGINE_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "Isolation": ("default",),
    "MemorySwappiness": (-1,),
}
"""Values that mean "not set" without looking neutral."""

_ADDRESSES: Final = ("IPAddress", "Gateway", "GlobalIPv6Address", "IPv6Gateway", "MacAddress")
"""Members of a network endpoint that are empty in a sandbox: it has no interface but lo."""

_HIDDEN: Final = "…"
"""Stands for the value of a variable in a difference: it may be a secret."""


def differences(request: Mapping[str, Any], inspected: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return every difference between a create request and the engine's description of the running container.

    Args:
        request: what :func:`sandbox.launch.translate.create_request` made of the plan.
        inspected: answer of ``GET /containers/{id}/json`` (Docker's form).
    """
    found: list[Difference] = []
    # 1. identity
    argv = [*request["Entrypoint"], *request["Cmd"]]
    _same(found, "argv", argv, [inspected.get("Path"), *(inspected.get("Args") or [])])
    _same(found, "image_id", request["Image"], inspected.get("Image"))
    # 2. Config
    _config(found, request, inspected.get("Config") or {})
    # 3. HostConfig
    _host_config(found, request["HostConfig"], inspected.get("HostConfig") or {})
    # 4. what the engine made of it
    _actual(found, request["HostConfig"], inspected)
    return tuple(found)


def is_neutral(value: Any) -> bool:
    """Return whether a value asks for nothing: absent, empty, zero, false, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_neutral(item) for item in value)
    return not value


def _same(found: list[Difference], name: str, planned: Any, running: Any) -> None:
    if planned != running:
        found.append(Difference(name, planned, running))


def _config(found: list[Difference], request: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    wanted = {name: value for name, value in request.items() if name != "HostConfig"}
    _environment(found, wanted.pop("Env"), config.get("Env") or [])
    labels = config.get("Labels") or {}
    _same(found, "Config.Labels", wanted.pop("Labels"), {name: labels.get(name) for name in request["Labels"]})
    ignored = _FROM_IMAGE | {"Env", "Labels"} | ({"Hostname", "Domainname"} - set(wanted))
    for name in sorted(set(wanted) | set(config)):
        if name not in ignored:
            shape = _SHAPES.get(name, _as_is)
            _field(found, f"Config.{name}", shape(wanted.get(name)), shape(config.get(name)))


def _environment(found: list[Difference], wanted: list[str], running: list[str]) -> None:
    """Compare by name, and never show a value."""
    asked, got = _by_name(wanted), _by_name(running)
    for name in sorted(set(asked) | set(got)):
        if asked.get(name) == got.get(name):
            continue
        shown = [None if value is None else f"{name}={_HIDDEN}" for value in (asked.get(name), got.get(name))]
        found.append(Difference(f"env[{name}]", shown[0], shown[1]))


def _by_name(entries: list[str]) -> dict[str, str]:
    """Return the last entry for each name, whole: a name without ``=`` unsets and differs from an empty value."""
    return {entry.partition("=")[0]: entry for entry in entries}


def _host_config(found: list[Difference], wanted: Mapping[str, Any], running: Mapping[str, Any]) -> None:
    for name in sorted(set(wanted) | set(running)):
        shape = _SHAPES.get(name, _as_is)
        _field(found, f"HostConfig.{name}", shape(wanted.get(name)), shape(running.get(name)), name)


def _test_only(value: Any) -> Any:
    """Intervals that an image adds to a health check have no effect when its test is NONE."""
    return (value or {}).get("Test")


def _field(found: list[Difference], path: str, planned: Any, running: Any, name: str = "") -> None:
    if planned == running or (is_neutral(planned) and is_neutral(running)):
        return
    if is_neutral(planned) and running in _ENGINE_DEFAULTS.get(name, ()):
        return
    found.append(Difference(path, planned, running))


def _as_is(value: Any) -> Any:
    return value


def _unordered(value: Any) -> Any:
    return sorted(value) if value else []


def _by(key: str) -> Callable[[Any], Any]:
    """Return a shape that orders a list of objects by one member and drops neutral members."""

    def shape(value: Any) -> Any:
        return sorted((_lean(item) for item in value or ()), key=lambda item: str(item.get(key)))

    return shape


def _lean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _lean(item) for name, item in value.items() if not is_neutral(item)}
    return value


_SHAPES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "CapDrop": _unordered,
    "MaskedPaths": _unordered,
    "ReadonlyPaths": _unordered,
    "SecurityOpt": _unordered,
    "Mounts": _by("Target"),
    "Ulimits": _by("Name"),
    "RestartPolicy": _lean,
    "LogConfig": _lean,
    "Healthcheck": _test_only,
}


def _actual(found: list[Difference], wanted: Mapping[str, Any], inspected: Mapping[str, Any]) -> None:
    planned = {
        mount["Target"]: ["bind", mount["Source"], not mount["ReadOnly"], mount["BindOptions"]["Propagation"]]
        for mount in wanted["Mounts"]
    }
    running = {
        mount.get("Destination"): [mount.get("Type"), mount.get("Source"), mount.get("RW"), mount.get("Propagation")]
        for mount in inspected.get("Mounts") or ()
        if mount.get("Type") != "tmpfs" or mount.get("Destination") not in wanted["Tmpfs"]
    }
    for target in sorted(set(planned) | set(running), key=str):
        _same(found, f"mounts[{target}]", planned.get(target), running.get(target))
    _networks(found, wanted, inspected.get("NetworkSettings") or {})
    if "unconfined" in str(inspected.get("AppArmorProfile")):
        found.append(Difference("AppArmorProfile", "the engine's", inspected.get("AppArmorProfile")))
    _same(found, "ExecIDs", [], inspected.get("ExecIDs") or [])
    _same(found, "RestartCount", 0, inspected.get("RestartCount") or 0)


def _networks(found: list[Difference], wanted: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    mode = wanted["NetworkMode"]
    joined = settings.get("Networks") or {}
    _same(found, "networks", [mode] if mode == "none" else [], sorted(joined))
    published = {port: bound for port, bound in (settings.get("Ports") or {}).items() if bound}
    _same(found, "published ports", {}, published)
    for name, endpoint in joined.items():
        present = [member for member in _ADDRESSES if endpoint.get(member)]
        found += [Difference(f"networks[{name}].{member}", "", endpoint[member]) for member in present]
