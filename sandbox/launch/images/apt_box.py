"""Debian packages on a host that has no apt: apt runs in a container of a Debian image, which the operator names.

For hosts of other distributions and for macOS, where an image registry is reachable. Only where packages are fetched
and unpacked differs: what is taken, how it is checked against the lock and which bytes come out is the same, and so
is the image id (ADR 0022). The container is confined like every build; its apt checks the archive's signatures with
its own keyring, and the digests of packages are taken here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandbox.errors import PlatformError
from sandbox.launch.images.apt import Deb, PackageSource, cannot, configuration, described, status
from sandbox.launch.images.apt_sources import named_by
from sandbox.launch.images.runner import BuildFailed, BuildNetwork, Job, Runner
from sandbox.launch.images.tree import Entry, Tree
from sandbox.launch.images.unpack import unpack_tar

_FETCH: Final = (
    "set -e; tar -xf -; mkdir -p lists/partial archives/partial out; cp /etc/os-release out;"
    " apt-get --quiet --error-on=any update >&2;"
    ' apt-get --quiet --yes --download-only install -- "$@" >&2;'
    " for file in archives/*.deb; do name=$(basename $file .deb); mv $file out; dpkg-deb --field out/$name.deb"
    " >out/$name.control; dpkg-deb --fsys-tarfile out/$name.deb >out/$name.data; done; tar -cf - -C out ."
)


@dataclass(slots=True)
class BoxedApt(PackageSource):
    """apt in a container of a Debian or Ubuntu image.

    Attributes:
        runner: runs the container.
        image: what the engine calls the image.
        keep: where the contents of packages are put.
        arch: Debian's name of the architecture.
    """

    runner: Runner
    image: str
    keep: Path
    arch: str
    named: str = field(init=False)
    _runs: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        entry = self._run("set -e; tar -cf - -C /etc os-release -h", (), {}, "ask for its release").get("os-release")
        self.named = named_by(_text(entry))

    def fetch(self, wanted: Iterable[str], present: Mapping[str, str], without: Iterable[str]) -> tuple[Deb, ...]:
        """Fetch packages; see :meth:`PackageSource.fetch`."""
        asked = tuple(wanted)
        files = {
            "apt.conf": configuration({}, "/work", self.arch).encode(),
            "status": status(present, without, self.arch).encode(),
        }
        try:
            tree = self._run(_FETCH, asked, files, f"fetch {len(asked)} packages")
        except BuildFailed as error:
            raise cannot(asked, error.log) from None
        return tuple(sorted(self._debs(tree), key=lambda deb: deb.package.name))

    def _debs(self, tree: Tree) -> Iterable[Deb]:
        for entry in tree.ordered():
            stem, suffix = posixpath.splitext(entry.path)
            if suffix != ".deb" or entry.blob is None:
                continue
            control, data = tree.get(f"{stem}.control"), tree.get(f"{stem}.data")
            if control is None or control.blob is None or data is None or data.blob is None:
                raise PlatformError(
                    "IMG-012", f"{entry.path} came without its contents", "use a Debian or Ubuntu image"
                )
            plain = self.keep / f"{stem}.data"
            with plain.open("wb") as sink:
                sink.writelines(data.blob.chunks())
            yield described(control.blob.read(), entry.blob.sha256(), plain)

    def _run(self, script: str, arguments: tuple[str, ...], files: Mapping[str, bytes], what: str) -> Tree:
        self._runs += 1
        output = self.keep / f"apt-{self._runs}.tar"
        job = Job(
            self.image,
            ("/bin/sh", "-c", script, "apt", *arguments),
            what,
            files=files,
            env={
                "APT_CONFIG": "/work/apt.conf",
                "LC_ALL": "C",
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/work",
            },
            network=BuildNetwork("bridge" if files else "none"),
        )
        self.runner.run(job, output)
        tree = Tree()
        unpack_tar(output, tree)
        return tree


def _text(entry: Entry | None) -> str:
    return entry.blob.read().decode("utf-8", "replace") if entry and entry.blob else ""
