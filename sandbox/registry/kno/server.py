"""The server that an entity names, in the words of DRIVER.md; and whether DRIVER.md names the same.

It is the first of:

1. ``_meta."local.mcp-sandbox/packages"``: one package in the form of server.json (``npm``, ``pypi`` or ``oci``);
2. a remote whose address does not begin with ``{baseUrl}``, which stands for the gateway itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.errors import Problem, SpecError
from sandbox.spec.model import DockerServer, DriverSpec, NpmServer, RemoteServer

OWN: Final = "local.mcp-sandbox/"
"""Keys of ``_meta`` that are for us; they are not told."""

PACKAGES: Final = f"{OWN}packages"
"""Key of ``_meta``: a list with one package, as server.json has it."""

_BASE: Final = "{baseUrl}"
_PORTS: Final = {"https": 443, "http": 80}
_TRANSPORTS: Final = {"streamable-http": "http", "sse": "sse"}
_MAX_ARGUMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class Named:
    """What an entity names.

    Attributes:
        server: block of DRIVER.md.
        transport: of DRIVER.md.
        egress: destinations.
        install: steps of DRIVER.md.
    """

    server: Mapping[str, Any]
    transport: str = "stdio"
    egress: tuple[str, ...] = ()
    install: tuple[Mapping[str, Any], ...] = ()


def named(values: Mapping[str, Any], file: str) -> Named | None:
    """Return the server that an entity names, ``None`` when it names none beside the gateway.

    Raises:
        SpecError: ``KNO-021`` … ``KNO-023``, it names one in a way that cannot be run.
    """
    packages = values.get("_meta", {}).get(PACKAGES)
    if packages is not None:
        return _package(packages, file)
    elsewhere = [one for one in values.get("remotes", ()) if not str(one["url"]).startswith(_BASE)]
    if not elsewhere:
        return None
    return _remote(next((one for one in elsewhere if one["type"] == "streamable-http"), elsewhere[0]), file)


def _remote(remote: Mapping[str, Any], file: str) -> Named:
    url = str(remote["url"])
    for name, about in remote.get("variables", {}).items():
        default = about.get("default") if isinstance(about, Mapping) else None
        if isinstance(default, str):
            url = url.replace(f"{{{name}}}", default)
    if "{" in url or "}" in url:
        message = f"`{url[:80]}` has a variable without a default"
        raise refused("KNO-021", file, "remotes", message, "give it a default, or write the address out")
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if not parts.hostname or not port:
        raise refused("KNO-021", file, "remotes", f"`{url[:80]}` is no address of a server", "write https://…")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host = f"http://{host}" if parts.scheme == "http" else host
    server: dict[str, Any] = {"kind": "remote", "url": url}
    headers = remote.get("headers", {})
    if headers:
        server["headers"] = {str(name): str(value) for name, value in headers.items()}
    return Named(server, _TRANSPORTS[remote["type"]], (f"{host}:{port}",))


def _package(packages: Any, file: str) -> Named:
    place = f"_meta.{PACKAGES}"
    if not isinstance(packages, list) or len(packages) != 1 or not isinstance(packages[0], Mapping):
        raise refused("KNO-022", file, place, "it is no list with one package", "name one package")
    package = packages[0]
    kind, name = package.get("registryType"), package.get("identifier")
    version = package.get("version", "")
    unknown = sorted(set(package) - {"registryType", "identifier", "version", "transport", "packageArguments"})
    if unknown or package.get("transport", {"type": "stdio"}) != {"type": "stdio"}:
        what = unknown[0] if unknown else "transport"
        raise refused("KNO-023", file, place, f"`{what}` cannot be said by an entity alone", "write DRIVER.md")
    if not isinstance(name, str) or not isinstance(version, str) or (not version and kind != "oci"):
        raise refused("KNO-022", file, place, "it lacks `identifier` or an exact `version`", "name both")
    arguments = _arguments(package.get("packageArguments", []), file, place)
    given = {"args": arguments} if arguments else {}
    if kind == "npm":
        whole = f"{name}@{version}"
        return Named({"kind": "npm", "package": whole, **given}, install=({"method": "npm", "package": whole},))
    if kind == "pypi":
        step = {"method": "pip", "package": f"{name}=={version}"}
        return Named({"kind": "binary", "path": name.partition("[")[0], **given}, install=(step,))
    if kind == "oci":
        return Named({"kind": "docker", "image": f"{name}:{version}" if version else name, **given})
    raise refused("KNO-022", file, place, "its `registryType` is none of npm, pypi, oci", "name one of them")


def _arguments(written: Any, file: str, place: str) -> list[str]:
    """Return the arguments that have their whole value here; what a person would fill in is no part of a driver."""
    message = "an argument has no `value` of its own"
    found: list[str] = []
    if not isinstance(written, list) or len(written) > _MAX_ARGUMENTS:
        raise refused("KNO-023", file, place, "`packageArguments` is no short list", "write DRIVER.md")
    for one in written:
        value = one.get("value") if isinstance(one, Mapping) else None
        if not isinstance(value, str) or "{" in value or set(one) - {"type", "name", "value"}:
            raise refused("KNO-023", file, place, message, "give its value, or write DRIVER.md")
        found += [str(one["name"]), value] if one.get("type") == "named" and "name" in one else [value]
    return found


def disagreements(values: Mapping[str, Any], file: str, spec: DriverSpec) -> list[Problem]:
    """Return where an entity and DRIVER.md, which describe one server together, say different things.

    Raises:
        SpecError: as :func:`named`.
    """
    found = []
    if values["version"] != spec.version:
        message = f"the entity says version {values['version']}, and DRIVER.md {spec.version}"
        found.append(Problem("KNO-018", file, 0, "version", message, mend="write the same version in both"))
    other = named(values, file)
    if other is not None and not _same(other, spec):
        message = "the entity names another server than DRIVER.md runs"
        mend = "name the same, or leave it to DRIVER.md: `{baseUrl}` stands for the gateway"
        found.append(Problem("KNO-019", file, 0, "remotes", message, _shown(other), _of(spec), mend))
    return found


def _same(other: Named, spec: DriverSpec) -> bool:
    server = spec.server
    if other.server["kind"] == "binary":  # a Python package is named by its install
        wanted = other.install[0]["package"]
        return any(step.params.get("package") == wanted for step in spec.install)
    return bool(server.kind == other.server["kind"] and _of(spec).rstrip("/") == _shown(other).rstrip("/"))


def _shown(other: Named) -> str:
    server = other.server
    return str(server.get("url") or server.get("package") or server.get("image") or other.install[0]["package"])[:200]


def _of(spec: DriverSpec) -> str:
    server = spec.server
    if isinstance(server, RemoteServer):
        return server.url
    if isinstance(server, NpmServer):
        return server.package
    return server.image if isinstance(server, DockerServer) else server.kind


def refused(number: str, file: str, field: str, message: str, mend: str) -> SpecError:
    """Return the refusal of an entity."""
    return SpecError((Problem(number, file, 0, field, message, mend=mend),))
