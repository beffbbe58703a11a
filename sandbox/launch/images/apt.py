"""Debian packages through the host's own apt: its mirror, its proxy, its keys, but nothing of its state.

apt checks the signatures of the archive against the host's keyring and the digests of what it fetches. Here it is given
folders of its own, so that the host's package lists, caches and hooks are neither used nor changed, and it needs no
root. Packages are only fetched and unpacked as data: no maintainer script runs, nothing is configured (ADR 0020).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.images.apt_sources import Distribution
from sandbox.launch.images.lock import Package

APT_SECONDS: Final = 600.0
"""Of one run of apt (seconds): an update and a few dozen packages over a slow line."""

_NEVER: Final = "9999:1"
_ACQUIRE: Final = re.compile(r'(Acquire::[^\s"]+) "((?:[^"\\]|\\.)*)";')
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,100}")
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.+:~-]{0,100}")


class Moved(Exception):
    """A finding, not a fault: a version that a lock names is no longer on the mirror. The text is apt's."""


@dataclass(frozen=True, slots=True)
class Deb:
    """A fetched package.

    Attributes:
        package: name, version and digest of the ``.deb`` file.
        control: its control paragraph.
        data: its contents as an uncompressed tar file.
    """

    package: Package
    control: str
    data: Path


class PackageSource(ABC):
    """Where Debian packages come from: apt of this host, or apt in a container.

    Attributes:
        named: the distribution, ``debian/bookworm``; what locks record.
    """

    named: str

    @abstractmethod
    def fetch(self, wanted: Iterable[str], present: Mapping[str, str], without: Iterable[str]) -> tuple[Deb, ...]:
        """Fetch packages and everything they depend on that is not present.

        Args:
            wanted: package names, or ``name=version``.
            present: name → version of what the image has already.
            without: names that dependencies on are ignored.

        Raises:
            Moved: a version that was asked for is not there.
            PlatformError: ``IMG-011`` the mirror does not answer, ``IMG-012`` a package cannot be had.
        """

    def fetch_exactly(
        self, locked: Iterable[Package], present: Mapping[str, str], without: Iterable[str]
    ) -> tuple[Deb, ...]:
        """Fetch the packages of a lock, nothing else, and hold their digests against it.

        Raises:
            Moved: the mirror has other versions, or other contents under the same version.
            PlatformError: as :meth:`fetch`.
        """
        expected = tuple(sorted(locked, key=lambda package: package.name))
        if not expected:
            return ()
        found = self.fetch([f"{package.name}={package.version}" for package in expected], present, without)
        if tuple(deb.package for deb in found) != expected:
            raise Moved("the mirror gives other packages for the same versions")
        return found


@dataclass(slots=True)
class Apt(PackageSource):
    """apt of this host with folders of its own.

    Attributes:
        folder: for apt's state; readable by everybody, because apt gives up root before it fetches.
        keep: where the contents of packages are put.
        distribution: sources.
        arch: Debian's name of the architecture.
    """

    folder: Path
    keep: Path
    distribution: Distribution
    arch: str
    named: str = field(init=False)
    _updated: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self.named = self.distribution.named

    def fetch(self, wanted: Iterable[str], present: Mapping[str, str], without: Iterable[str]) -> tuple[Deb, ...]:
        """Fetch packages; see :meth:`PackageSource.fetch`."""
        asked = tuple(wanted)
        self._update()
        (self.folder / "status").write_text(status(present, without, self.arch))
        archives = self.folder / "archives"
        for old in archives.glob("*.deb"):
            old.unlink()
        done = self._apt("--yes", "--download-only", "install", "--", *asked)
        if done.returncode:
            raise cannot(asked, done.stderr)
        return tuple(sorted((self._deb(file) for file in archives.glob("*.deb")), key=lambda deb: deb.package.name))

    def _deb(self, file: Path) -> Deb:
        shown = subprocess.run(
            [program("dpkg-deb"), "--field", file], capture_output=True, check=True, env=_environment()
        )
        data = self.keep / f"{file.stem}.data"
        with data.open("wb") as sink:
            subprocess.run([program("dpkg-deb"), "--fsys-tarfile", file], stdout=sink, check=True, env=_environment())
        with file.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        return described(shown.stdout, digest, data)

    def _update(self) -> None:
        if self._updated:
            return
        self.folder.chmod(0o755)  # apt gives up root for fetching and must still reach its folders
        for name in ("lists/partial", "archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "sources.list").write_text("".join(source.line() for source in self.distribution.sources))
        (self.folder / "status").touch()
        (self.folder / "apt.conf").write_text(self._configuration())
        done = self._apt("--error-on=any", "update")
        if done.returncode:
            raise PlatformError(
                "IMG-011",
                f"apt could not read the lists of {self.distribution.named}: {_last(done.stderr)}",
                "check the network and the host's package sources with `apt-get update`",
            )
        self._updated = True

    def _configuration(self) -> str:
        """Return an apt.conf(5): folders of our own; of the host only how it fetches (proxy, certificates)."""
        command = [program("apt-config"), "dump"]
        dump = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        found = [pair for pair in _ACQUIRE.findall(dump.stdout) if not pair[0].startswith("Acquire::Languages")]
        sources = {"Dir::Etc::sourcelist": str(self.folder / "sources.list"), "Dir::Etc::sourceparts": "/dev/null"}
        return configuration(dict(found) | sources, str(self.folder), self.arch)

    def _apt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = _environment() | {"APT_CONFIG": str(self.folder / "apt.conf")}
        try:
            return subprocess.run(
                [program("apt-get"), "--quiet", *arguments],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=APT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise PlatformError(
                "IMG-011",
                f"apt took longer than {APT_SECONDS:.0f} s",
                "check the network and the host's package sources",
            ) from None


def program(name: str) -> str:
    """Return the path of a program of the host.

    Raises:
        PlatformError: ``IMG-010``, the host has none.
    """
    found = shutil.which(name)
    if found is None:
        raise PlatformError("IMG-010", f"this host has no {name}", "build images on a Debian or Ubuntu host")
    return found


def checked_name(name: str) -> str:
    """Return a package name that is safe in an argument vector of apt.

    Raises:
        PlatformError: ``IMG-012``, it is no name of a Debian package (Policy §5.6.1).
    """
    if _NAME.fullmatch(name) is None:
        raise PlatformError(
            "IMG-012", f"{name[:80]!r} is not the name of a Debian package", "write the name only, such as git"
        )
    return name


def described(control: bytes, digest: str, data: Path) -> Deb:
    """Return a package from its control paragraph.

    Raises:
        PlatformError: ``IMG-012``, it has no proper name or version.
    """
    text = control.decode("utf-8", "replace")
    fields = dict(line.partition(":")[::2] for line in text.splitlines() if not line.startswith(" "))
    name, version = fields.get("Package", "").strip(), fields.get("Version", "").strip()
    if _NAME.fullmatch(name) is None or _VERSION.fullmatch(version) is None:
        raise PlatformError("IMG-012", f"a package is called {name[:60]!r} {version[:60]!r}", "report it to Debian")
    return Deb(Package(name, version, digest), text, data)


def configuration(settings: Mapping[str, str], folder: str, arch: str) -> str:
    """Return an apt.conf(5) whose state, caches and hooks are not the machine's."""
    own = {
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": f"{folder}/lists",
        "Dir::State::status": f"{folder}/status",
        "Dir::State::extended_states": f"{folder}/extended_states",
        "Dir::Cache::archives": f"{folder}/archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "APT::Install-Recommends": "0",
        "APT::Install-Suggests": "0",
        "Acquire::Languages": "none",
    }
    return "".join(f'{name} "{value}";\n' for name, value in {**settings, **own}.items())


def status(present: Mapping[str, str], without: Iterable[str], arch: str) -> str:
    """Return a dpkg status file: what is there, and what is left out, as if it were there."""
    installed = {**dict.fromkeys(without, _NEVER), **present}
    return "\n".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nArchitecture: {arch}\n"
        "Multi-Arch: allowed\nMaintainer: none <none@invalid>\nDescription: there\n"
        for name, version in sorted(installed.items())
    )


def cannot(asked: tuple[str, ...], log: str) -> Exception:
    """Return what apt's refusal of an install means: moved on, or a failure."""
    if re.search(r"Version '.*' for '.*' was not found|404 +Not Found", log):
        return Moved(_last(log))
    return PlatformError(
        "IMG-012",
        f"apt could not get {', '.join(asked)[:200]}: {_last(log)}",
        "check the name of the package and the host's package sources with `apt-get update`",
    )


def _environment() -> dict[str, str]:
    """Return the host's environment with messages in English, which :class:`Moved` is recognised by."""
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _last(text: str) -> str:
    """Return the last error line of apt, without addresses: they are the user's, and messages are copied around."""
    lines = [line for line in text.splitlines() if line.startswith(("E:", "W:"))] or text.splitlines() or ["no message"]
    return re.sub(r"[a-z+]+://\S+", "(mirror)", lines[-1])[:300]
