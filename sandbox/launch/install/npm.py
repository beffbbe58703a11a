"""Packages of the npm registry: locked as a whole tree, installed with `npm ci` and every script off.

Locking: 1 npm resolves in a build container, without running anything and without fetching packages; 2 each entry of
    its
lock is reduced to what installs need; an entry that does not come from the registry by name, or has no SHA-512, is
refused; 3 packages that have install scripts are named to the user: they stay off.

Installing: 4 npm's lock is made again from ours; 5 `npm ci --ignore-scripts --omit=dev` in a build container checks
    each package
against its integrity; 6 the tree is read out of the container as hostile and must hold a program for `node`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images.runner import BuildFailed, Job
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import unpack_tar
from sandbox.launch.install import hostca, npmrc
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.network import Reach, origin
from sandbox.launch.install.shop import Built, Pins, Shop

NODE: Final = "/usr/bin/node"
ROOT: Final = "app"
"""Folder of the image that the tree lies in."""

MAX_PACKAGES: Final = 5000
"""Of one tree; real servers have up to a few hundred."""

MAX_LOCK_VALUES: Final = 2_000_000
"""JSON values of npm's own lock."""

MAX_LOCK_BYTES: Final = 32 * 1024 * 1024
"""Of npm's own lock as it comes out of the container."""

_SPEC: Final = re.compile(
    r"(?P<name>(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*)"
    r"(?:@(?P<version>[A-Za-z0-9._~^<>=*|+ -]{1,100}))?",
    re.IGNORECASE,
)
_LOCK_VERSION: Final = 3
"""Of package-lock.json(5); what npm 7 and later write."""

_INTEGRITY: Final = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_KEPT: Final = (
    "name", "version", "integrity", "hasInstallScript", "dependencies", "optionalDependencies", "peerDependencies",
    "peerDependenciesMeta", "bundleDependencies", "inBundle", "optional", "peer", "engines", "os", "cpu", "libc",
)  # fmt: skip
"""Members of npm's lock (package-lock.json(5)) that `npm ci` decides by; everything else is dropped."""

_ARGUMENTS: Final = (
    "--ignore-scripts --omit=dev --no-audit --no-fund --no-update-notifier --no-bin-links"
    " --omit-lockfile-registry-resolved"
)
_ELSEWHERE: Final = tuple(f"npm_config_allow_{kind}" for kind in ("directory", "file", "git", "remote"))
"""Settings by which npm itself refuses what is not from the registry, before it connects anywhere."""

_NPM: Final = f"{NODE} /usr/lib/node_modules/npm/bin/npm-cli.js"
_RESOLVE: Final = (
    f"set -e; tar -xf -; cd tree; {_NPM} install --package-lock-only {_ARGUMENTS} >&2; tar -cf - package-lock.json"
)
_INSTALL: Final = (
    f"set -e; tar -xf -; cd tree; {_NPM} ci {_ARGUMENTS} >&2;"
    " tar -cf - --exclude=node_modules/.package-lock.json node_modules"
)
_SHEBANG: Final = re.compile(rb"#!\s*(?:/usr/bin/env(?:\s+-S)?\s+)?(?:\S*/)?node(?P<flags>(?:\s+-\S+)*)\s*\Z")


class Npm:
    """The method ``npm``."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:
        """Pin the tree of a package; see steps 1 to 3 of the module."""
        name, version = split(ask.wanted)
        files = {"tree/package.json": _manifest(name, version)}
        if old is not None:
            files["tree/package-lock.json"] = _npm_lock(old, name, version)
        shop.progress.step(f"resolving {ask.wanted}")
        output = shop.scratch / "npm-lock.tar"
        _run(shop, _RESOLVE, files, f"resolve {ask.wanted}", output)  # 1
        tree = Tree()
        unpack_tar(output, tree)
        entry = tree.get("package-lock.json")
        if entry is None or entry.blob is None or entry.blob.size > MAX_LOCK_BYTES:
            raise PlatformError("INST-030", f"npm gave no lock for {ask.wanted}", "try again; see the lines above")
        packages = reduce_lock(entry.blob.read())  # 2
        for line in scripted(packages):  # 3
            shop.progress.warn(f"{line} has an install script, which is not run")
        return Pins("node", {"name": name, "version": version, "packages": packages})

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Install the pinned tree; see steps 4 to 6 of the module."""
        name, version = split(ask.wanted)
        files = {
            "tree/package.json": _manifest(name, version),
            "tree/package-lock.json": _npm_lock(section, name, version),
        }  # 4
        shop.progress.step(f"installing {ask.wanted} ({len(section['packages'])} packages)")
        output = shop.scratch / "npm-tree.tar"
        try:
            _run(shop, _INSTALL, files, f"install {ask.wanted}", output)  # 5
        except BuildFailed as error:
            if "EINTEGRITY" in error.log:
                raise InstallRefused(
                    "INST-031",
                    f"{_refused(error.log)} of {ask.wanted} is not the package that driver.lock pins",
                    "do not run it; find out whether the registry or the lock was changed",
                ) from None
            raise
        tree = Tree()
        shop.tell_stripped(unpack_tar(output, tree, prefix=ROOT))  # 6
        return Built(tree, program(tree, f"{ROOT}/node_modules/{name}", ask.program, ask.wanted))


def split(wanted: str) -> tuple[str, str]:
    """Return name and version range of ``name@range``; the range is ``latest`` when none is written.

    Raises:
        InstallRefused: ``INST-032``, it is an address, a path, an alias or not a name.
    """
    match = _SPEC.fullmatch(wanted)
    if match is None:
        raise InstallRefused("INST-032", f"`{wanted[:200]}` is not a package of the registry", "write name@version")
    return match["name"], match["version"] or "latest"


def reduce_lock(data: bytes) -> dict[str, dict[str, Any]]:
    """Return what is pinned of npm's lock: path in the tree → entry.

    Raises:
        InstallRefused: ``INST-033``, an entry is not from the registry or has no SHA-512; ``INST-034`` there are too
            many.
        PlatformError: ``INST-030``, it is no lock of version 3.
    """
    try:
        value = jsontext.parse(data, max_values=MAX_LOCK_VALUES)
        found = {path: entry for path, entry in value["packages"].items() if path}
        reduced = {path: _reduced(path, entry) for path, entry in sorted(found.items())}
    except (jsontext.JsonTextError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise PlatformError(
            "INST-030", f"npm's lock cannot be read: {error}", "report it with the version of npm"
        ) from None
    if len(found) > MAX_PACKAGES:
        raise InstallRefused("INST-034", f"{len(found)} packages; {MAX_PACKAGES} are allowed", "use a smaller server")
    if value.get("lockfileVersion") != _LOCK_VERSION:
        raise PlatformError("INST-030", "npm's lock has another version than 3", "report it with the version of npm")
    return reduced


def scripted(packages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return ``name version`` of every package that has an install script."""
    return [
        f"{_name(path, entry)} {entry['version']}" for path, entry in packages.items() if entry.get("hasInstallScript")
    ]


def program(tree: Tree, folder: str, wanted: str, package: str) -> tuple[str, ...]:
    """Return the argument vector that starts a package's program.

    Args:
        tree: the installed tree.
        folder: of the package in it.
        wanted: name of the ``bin``; empty: the only one, or the one named like the package.
        package: for messages.

    Raises:
        InstallRefused: ``INST-035``, there is no such program or it is not for node.
    """
    manifest = tree.get(f"{folder}/package.json")
    try:
        value = jsontext.parse(manifest.blob.read() if manifest and manifest.blob else b"")
        bins = value.get("bin") or {}
        own = str(value["name"]).rpartition("/")[2]
        choices: dict[str, str] = {own: bins} if isinstance(bins, str) else dict(bins)
    except (jsontext.JsonTextError, KeyError, TypeError, ValueError, AttributeError):
        raise _no_program(package, "its package.json cannot be read") from None
    if wanted:
        name = wanted
    elif len(choices) == 1:
        name = next(iter(choices))
    else:
        name = own
    if name not in choices:
        raise _no_program(package, f"it has no program `{name}`; it has: {', '.join(sorted(choices)) or 'none'}")
    path = posixpath.normpath(posixpath.join(folder, str(choices[name])))
    entry = tree.get(path)
    if not path.startswith(folder + "/") or entry is None or entry.blob is None:
        raise _no_program(package, f"its program `{name}` is not in the package")
    first = next(entry.blob.chunks(), b"")[:512].partition(b"\n")[0].rstrip(b"\r")
    if not first.startswith(b"#!"):
        return (NODE, f"/{path}")
    match = _SHEBANG.fullmatch(first)
    if match is None:
        raise _no_program(package, f"its program `{name}` is not for node: {first[:80].decode('utf-8', 'replace')}")
    return (NODE, *match["flags"].decode("ascii").split(), f"/{path}")


def _reduced(path: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of npm's lock without what installs do not need; refuse what the registry does not have."""
    inside = bool(entry.get("inBundle"))
    if entry.get("link") or entry.get("resolved") or not path.startswith("node_modules/"):
        raise InstallRefused(
            "INST-033",
            f"`{_name(path, entry)}` does not come from the registry",
            "use a package whose dependencies all do",
        )
    if not inside and _INTEGRITY.fullmatch(str(entry.get("integrity", ""))) is None:
        raise InstallRefused(
            "INST-033", f"`{_name(path, entry)}` has no SHA-512 in the registry", "use a newer version of it"
        )
    return {name: entry[name] for name in _KEPT if name in entry}


def _npm_lock(section: Mapping[str, Any], name: str, version: str) -> bytes:
    """Return npm's lock, made from ours (step 4)."""
    root = {"name": "driver", "version": "0.0.0", "dependencies": {name: version}}
    packages = {"": root, **section["packages"]}
    return jsontext.canonical(
        {"name": "driver", "version": "0.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}
    )


def _manifest(name: str, version: str) -> bytes:
    return jsontext.canonical({"name": "driver", "version": "0.0.0", "private": True, "dependencies": {name: version}})


def _run(shop: Shop, script: str, files: dict[str, bytes], what: str, output: Any) -> None:
    """Run a script in the npm build image with the user's registry, credentials and certificates."""
    settings = npmrc.load(shop.environ)
    sent = {**files, "npmrc": settings.npmrc(), "ca.pem": hostca.bundle(shop.environ, settings.cafiles), "none": b""}
    env = {
        "HOME": "/work",
        "NODE_EXTRA_CA_CERTS": "/work/ca.pem",
        "npm_config_userconfig": "/work/npmrc",
        "npm_config_globalconfig": "/work/none",
        "npm_config_cache": "/work/cache",
        "npm_config_loglevel": "http",
        "npm_config_fetch_retry_mintimeout": "500",  # a refusal is final, and npm would wait a minute for it
        "npm_config_fetch_retry_maxtimeout": "2000",
        **dict.fromkeys(_ELSEWHERE, "none"),
        "PATH": "/usr/bin",
    }
    reach = Reach("npm", tuple(dict.fromkeys(map(origin, registries(shop)))))
    with shop.networks.open(reach) as network:
        job = Job(shop.image("build-node"), ("/usr/bin/sh", "-c", script), what, files=sent, env=env, network=network)
        shop.runner.run(job, output)


def registries(shop: Shop) -> tuple[str, ...]:
    """Return the addresses of the registries that the user's npm asks: its own and those of scopes."""
    settings = npmrc.load(shop.environ)
    scoped = [value for name, value in settings.values.items() if name.endswith(":registry")]
    return (*shop.addresses("npm", [settings.registry]), *scoped)


def _name(path: str, entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or path.rpartition("node_modules/")[2])


def _refused(log: str) -> str:
    """Return the package that npm names beside EINTEGRITY, else a general word."""
    match = re.search(r"integrity checksum failed.*?\s(\S+/(?:@[^/\s]+/)?([^/\s]+)-[0-9][^/\s]*\.tgz)", log)
    return f"`{match[2]}`" if match else "a dependency"


def _no_program(package: str, why: str) -> InstallRefused:
    return InstallRefused("INST-035", f"{package} cannot be started: {why}", "name a package, or a program, that can")
