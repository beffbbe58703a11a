"""What a driver asks to be installed: ``server`` and ``install`` of a DriverSpec in one canonical value. Pure.

``install`` lists alternatives (AIP-29 §Install methods); the first one that provides the server is carried out.
Debian packages (``apt``) are different: they are what that server needs beside it, and all of them are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import Problem, SpecError
from sandbox.spec.model import BinaryServer, DockerServer, DriverSpec, InstallStep, NpmServer

PROVIDERS: Final = ("npm", "pip", "download", "vendored")
"""Methods that provide a server's program."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One wish.

    Attributes:
        method: ``npm``, ``pip``, ``download``, ``vendored``, ``apt`` (the program is Debian's), ``host`` or ``docker``.
        wanted: package, url, path or image.
        program: console script, ``bin`` name or path of the program; empty when the package decides.
        packages: Debian packages beside it, in alphabetical order.
        params: further parameters of the step (``extract_bin``, ``verify_sha256``).
    """

    method: str
    wanted: str
    program: str
    packages: tuple[str, ...]
    params: Mapping[str, str]

    def canonical(self) -> dict[str, Any]:
        """Return the JSON value that a lock records and is compared with."""
        value: dict[str, Any] = {"method": self.method, "wanted": self.wanted}
        if self.program:
            value["program"] = self.program
        if self.packages:
            value["packages"] = list(self.packages)
        if self.params:
            value["params"] = dict(self.params)
        return value


def ask(spec: DriverSpec) -> Ask:
    """Return what a driver asks for.

    Raises:
        SpecError: ``INST-001``, ``server`` and ``install`` do not fit together.
    """
    server = spec.server
    packages = tuple(sorted({str(step.params["package"]) for step in spec.install if step.method == "apt"}))
    step = next((step for step in spec.install if step.method in PROVIDERS), None)
    if isinstance(server, DockerServer):
        if packages or step is not None:
            raise _misfit(spec, "server", "a docker image brings everything with it", "remove `install`")
        return Ask("docker", server.image, "", (), {})
    if isinstance(server, NpmServer):
        if step is not None and (step.method != "npm" or step.params["package"] != server.package):
            raise _misfit(spec, "install", f"`server.package` is {server.package}", "write the same package in both")
        return Ask("npm", server.package, "", packages, {})
    if isinstance(server, BinaryServer):
        return _binary(spec, server, step, packages)
    raise _misfit(spec, "server.kind", "a remote server is not installed", "do not ask for its image")


def _binary(spec: DriverSpec, server: BinaryServer, step: InstallStep | None, packages: tuple[str, ...]) -> Ask:
    if step is None:
        bare = "/" not in server.path and not server.path.startswith("~")
        if bare and not packages:
            raise _misfit(spec, "server.path", f"nothing installs `{server.path}`", "write its path, or add `install`")
        return Ask("apt" if bare else "host", server.path, server.path, packages, {})
    params = {
        name: str(value) for name, value in step.params.items() if name in {"extract_bin", "verify_sha256"} and value
    }
    wanted = str(step.params.get("package") or step.params.get("url") or step.params.get("path") or "")
    return Ask(step.method, wanted, server.path, packages, params)


def _misfit(spec: DriverSpec, field: str, why: str, mend: str) -> SpecError:
    place = spec.where(field)
    message = f"`server` and `install` do not fit together: {why}"
    return SpecError((Problem("INST-001", place.file, place.line, field, message, mend=mend),))
