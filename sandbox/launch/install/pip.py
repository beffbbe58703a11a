"""Packages of the Python package index: locked with hashes, wheels only, installed with `uv` and run isolated.

Locking: 1 uv resolves in a build container, reading wheels' metadata only; 2 its output is reduced to names, versions
    and hashes.

Installing: 3 `uv pip install --require-hashes --no-build --target` in a build container checks each wheel; 4 the
    modules are
compiled there, so that a read-only file system costs no start-up time; 5 the tree is read out as hostile; 6 the
console script that the driver names becomes a few lines of Python of our own, started with `python3 -I`: no variable
and no working folder changes what is imported. A driver that names `python3` itself runs the file that its first
argument names, with the packages at hand.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sandbox.errors import InstallRefused, PlatformError, SpecError
from sandbox.launch.images.runner import BuildFailed, Job
from sandbox.launch.images.tree import Tree
from sandbox.launch.images.unpack import unpack_tar
from sandbox.launch.install import askindex, hostca, pipconf
from sandbox.launch.install.ask import Ask
from sandbox.launch.install.network import Reach, origin
from sandbox.launch.install.shop import Built, Pins, Shop
from sandbox.policy.destinations import is_name
from sandbox.policy.hosts import parse_rule
from sandbox.resources import shipped

PYTHON: Final = "/usr/bin/python3"
SITE: Final = "app/site-packages"
STARTER: Final = "app/start.py"

INTERPRETER: Final = "python3"
"""Name of a program that stands for the interpreter itself, not for a console script."""

MAX_PACKAGES: Final = 1000
"""Of one server; real ones have up to a hundred."""

MAX_FILE_HOSTS: Final = 4
"""On which indexes keep the files of one package; real ones have one."""

MAX_ANSWER: Final = 4096
"""Bytes of such an answer."""

_SPEC: Final = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[A-Za-z0-9._, -]+\])?"
    r"(?P<range>\s*(?:[<>=!~]=?|===)[A-Za-z0-9.*+!<>=~, -]+)?"
)
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[A-Za-z0-9.!+_-]+)\s*(?P<rest>.*)"
)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

_RESOLVE: Final = (
    "set -e; tar -xf -; uv pip compile --quiet --generate-hashes --no-build --no-header --no-annotate"
    f" --no-strip-markers --python {PYTHON} --output-file out.txt in.txt >&2; tar -cf - out.txt"
)
_ASK: Final = f'set -e; tar -xf -; exec {PYTHON} -I -c "$@"'
_INSTALL: Final = (
    "set -e; tar -xf -; uv pip install --require-hashes --no-build --no-deps --link-mode copy"
    f" --python {PYTHON} --target /work/tree/{SITE} -r in.txt >&2;"
    f" {PYTHON} -B compile.py /work/tree '' {SITE} > compiled.tar; tar -xf compiled.tar -C tree;"
    f" tar -cf - -C tree --exclude={SITE}/bin --exclude={SITE}/.lock app"
)


class Pip:
    """The method ``pip``."""

    def resolve(self, ask: Ask, shop: Shop, old: Mapping[str, Any] | None) -> Pins:
        """Pin a package and its dependencies; see steps 1 and 2 of the module."""
        if _SPEC.fullmatch(ask.wanted) is None:
            raise InstallRefused(
                "INST-040", f"`{ask.wanted[:200]}` is not a package of the index", "write name==version"
            )
        files = {"in.txt": f"{ask.wanted}\n".encode()}
        if old is not None:
            files["out.txt"] = _requirements(old, hashes=False)
        shop.progress.step(f"resolving {ask.wanted}")
        output = shop.scratch / "pip-lock.tar"
        _run(shop, _RESOLVE, files, f"resolve {ask.wanted}", output, _name(ask.wanted))  # 1
        tree = Tree()
        unpack_tar(output, tree)
        entry = tree.get("out.txt")
        text = entry.blob.read().decode("utf-8", "replace") if entry and entry.blob else ""
        packages = reduce_requirements(text)  # 2
        return Pins("python", {"packages": packages})

    def build(self, ask: Ask, section: Mapping[str, Any], shop: Shop) -> Built:
        """Install the pinned packages; see steps 3 to 6 of the module."""
        compiler = shipped("images", "python", "compile.py").read_bytes()
        files = {"in.txt": _requirements(section, hashes=True), "compile.py": compiler}
        shop.progress.step(f"installing {ask.wanted} ({len(section['packages'])} packages)")
        output = shop.scratch / "pip-tree.tar"
        try:
            _run(shop, _INSTALL, files, f"install {ask.wanted}", output, _name(ask.wanted))  # 3, 4
        except BuildFailed as error:
            if "Hash mismatch" in error.log:
                raise InstallRefused(
                    "INST-041",
                    f"a package of {ask.wanted} is not the one that driver.lock pins",
                    "do not run it; find out whether the index or the lock was changed",
                ) from None
            raise
        tree = Tree()
        shop.tell_stripped(unpack_tar(output, tree))  # 5
        if ask.program == INTERPRETER:
            tree.file(STARTER, file_starter())  # 6
        else:
            module, attribute = entry_point(tree, ask.program, ask.wanted)
            tree.file(STARTER, starter(module, attribute, ask.program))  # 6
        return Built(tree, (PYTHON, "-I", f"/{STARTER}"))


def reduce_requirements(text: str) -> dict[str, dict[str, Any]]:
    """Return what is pinned of uv's output: name → version, hashes and marker.

    Raises:
        InstallRefused: ``INST-042``, a line is not a name with a version and hashes: an address, a folder, an editable.
        PlatformError: ``INST-043``, there is nothing in it.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.partition(" #")[0].strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _REQUIREMENT.fullmatch(stripped)
        hashes = sorted(_HASH.findall(match["rest"])) if match else []
        if match is None or not hashes:
            raise InstallRefused(
                "INST-042", f"`{stripped[:120]}` is not pinned by hash", "use packages of the index only"
            )
        marker = match["rest"].partition("--hash")[0].strip().removeprefix(";").strip()
        found[match["name"].lower()] = {"version": match["version"], "sha256": hashes} | (
            {"marker": marker} if marker else {}
        )
    if not found or len(found) > MAX_PACKAGES:
        raise PlatformError("INST-043", f"uv resolved {len(found)} packages", f"use a package with 1 to {MAX_PACKAGES}")
    return found


def entry_point(tree: Tree, program: str, package: str) -> tuple[str, str]:
    """Return module and attribute of a console script (entry points specification, console_scripts).

    Raises:
        InstallRefused: ``INST-044``, no installed package has it.
    """
    scripts: dict[str, str] = {}
    for entry in tree.ordered():
        if not entry.path.endswith(".dist-info/entry_points.txt") or entry.blob is None:
            continue
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment, method-assign]  # names are case-sensitive
        try:
            parser.read_string(entry.blob.read().decode("utf-8"))
        except (configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_section("console_scripts"):
            scripts |= {name: value.partition("[")[0].strip() for name, value in parser.items("console_scripts")}
    module, colon, attribute = (part.strip() for part in scripts.get(program, "").partition(":"))
    if not colon or _MODULE.fullmatch(module) is None or _MODULE.fullmatch(attribute) is None:
        choices = ", ".join(sorted(scripts)[:20]) or "none"
        raise InstallRefused(
            "INST-044", f"{package} has no program `{program}`; there are: {choices}", "correct `server.path`"
        )
    return module, attribute


def starter(module: str, attribute: str, program: str) -> bytes:
    """Return the Python text that starts a console script from our folder and nothing else."""
    root = attribute.partition(".")[0]
    return (
        "import site\nimport sys\n\n"
        f'site.addsitedir("/{SITE}")\nsys.argv[0] = {program!r}\n\n'
        f"from {module} import {root}  # noqa: E402\n\n"
        f"sys.exit({attribute}())\n"
    ).encode()


def file_starter() -> bytes:
    """Return the Python text that runs the file of the first argument with the installed packages."""
    return (
        "import runpy\nimport site\nimport sys\n\n"
        f'site.addsitedir("/{SITE}")\ndel sys.argv[0]\nrunpy.run_path(sys.argv[0], run_name="__main__")\n'
    ).encode()


def _name(wanted: str) -> str:
    """Return the normalised name of a wished package (simple repository API, names)."""
    match = _SPEC.match(wanted)
    return re.sub(r"[-_.]+", "-", match["name"]).lower() if match else ""


def _requirements(section: Mapping[str, Any], *, hashes: bool) -> bytes:
    lines = []
    for name, entry in sorted(section["packages"].items()):
        line = f"{name}=={entry['version']}" + (f" ; {entry['marker']}" if entry.get("marker") else "")
        if hashes:
            line += "".join(f" \\\n    --hash=sha256:{digest}" for digest in entry["sha256"])
        lines.append(line + "\n")
    return "".join(lines).encode()


def _run(shop: Shop, script: str, files: dict[str, bytes], what: str, output: Path, package: str) -> None:
    """Run a script in the uv build image with the user's index, credentials and certificates."""
    settings = pipconf.load(shop.environ, shop.progress.detail)
    sent = {**files, "ca.pem": hostca.bundle(shop.environ, (settings.cert,) if settings.cert else ())}
    env = {
        **settings.environment(),
        "HOME": "/work",
        "PATH": "/usr/bin",
        "PYTHONHASHSEED": "0",
        "SSL_CERT_FILE": "/work/ca.pem",
        "UV_CACHE_DIR": "/work/cache",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    origins = [origin(address) for address in (*indexes(shop), *settings.links)]
    if shop.networks.confined:
        origins += files_of(shop, package)
    with shop.networks.open(Reach("uv", tuple(dict.fromkeys(origins)))) as network:
        job = Job(shop.image("build-python"), ("/usr/bin/sh", "-c", script), what, files=sent, env=env, network=network)
        shop.runner.run(job, output)


def indexes(shop: Shop) -> tuple[str, ...]:
    """Return the addresses of the indexes that the user's pip asks; they may hold credentials."""
    settings = pipconf.load(shop.environ, shop.progress.detail)
    return (*shop.addresses("uv", [settings.index]), *settings.extra)


def files_of(shop: Shop, package: str) -> tuple[str, ...]:
    """Return the origins on which the indexes keep a package's files, by their own answer.

    Asked by :mod:`.askindex` in a container that reaches the indexes only, because what an index says is not ours. An
    index that does not have the package, or cannot be reached, adds nothing: uv tells that better.
    """
    if package not in shop.files:
        settings, asked = pipconf.load(shop.environ), indexes(shop)
        certificates = hostca.bundle(shop.environ, (settings.cert,) if settings.cert else ())
        program = Path(askindex.__file__).read_text("utf-8")
        job = Job(
            shop.image("build-python"),
            ("/usr/bin/sh", "-c", _ASK, "ask", program, package, *asked),
            f"ask the index where {package} is",
            files={"ca.pem": certificates},
            env={"SSL_CERT_FILE": "/work/ca.pem", "HOME": "/work"},
        )
        answer = shop.scratch / "files-of"
        with shop.networks.open(Reach("uv", tuple(map(origin, asked)))) as network:
            shop.runner.run(replace(job, network=network), answer)
        shop.files[package] = hosts_of(answer.read_bytes())
    return shop.files[package]


def hosts_of(answer: bytes) -> tuple[str, ...]:
    """Return the origins of one answer of :mod:`.askindex`, bounded, canonical; others are left out."""
    found: dict[str, None] = {}
    for line in answer[:MAX_ANSWER].decode("ascii", "replace").splitlines():
        try:
            rule = parse_rule(line)
        except SpecError:
            continue
        if line.startswith("https://") and is_name(rule.host):
            found[line] = None
    return tuple(found)[:MAX_FILE_HOSTS]
