"""``images/<name>/recipe.toml`` → a :class:`Recipe`: what goes into one layer on top of a parent image.

Strict: an unknown key is refused, so that a misspelt ``leave_out`` cannot keep in what should be out. Everything that
is left out has its reason beside it. A recipe names no host; where packages come from is the host's own
configuration.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.resources import shipped

BUILDER: Final = 1
"""Version of the code that turns a recipe into bytes; raised when the same inputs give other bytes than before."""

SUITE: Final = "bookworm"
"""Debian release that images are made from on Debian hosts, whatever release the host runs (ADR 0020)."""

ROOT_IMAGES: Final = ("base", "node", "python", "python-git")
BUILD_IMAGES: Final = ("build-node", "build-python")
DEFAULT_IMAGES: Final = (*ROOT_IMAGES, *BUILD_IMAGES, "egress")
"""What `mcp-sandbox images build` makes when it is given no name; parents come before children."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of the Python package index that something is taken from.

    Attributes:
        take: path in the wheel → path in the image; a trailing slash means everything below.
        licence: path in the wheel of the licence that travels along, empty for none.
    """

    package: str
    version: str
    take: Mapping[str, str]
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image.

    Attributes:
        parent: name of the image it is made from, empty for none.
        phase: ``run`` or ``build``; nothing of a driver ever runs on a build image.
        packages: Debian packages; their dependencies come with them.
        without: package → why it is not taken although another one depends on it.
        leave_out: pattern of paths → why; own layer only.
        leave_out_everywhere: the same, for every image below as well; ``keep_everywhere`` goes before both.
        compile_python: folders whose modules get byte code; those that do not exist are skipped.
        files: path → contents; ``links`` path → target; ``folders`` are made empty.
        provides_apt: packages that a driver asks for with ``method: apt`` and that this image is for.
        tag: of the name ``mcp-sandbox/<name>``.
        digest: of everything that decides the contents, parents' recipes included.
    """

    name: str
    summary: str
    parent: str
    phase: str
    packages: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    leave_out: Mapping[str, str] = field(default_factory=dict)
    leave_out_everywhere: Mapping[str, str] = field(default_factory=dict)
    keep_everywhere: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[Wheel, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    compile_python: tuple[str, ...] = ()
    ca_bundle: bool = False
    merged_usr: bool = False
    provides_apt: tuple[str, ...] = ()
    tag: str = "latest"
    digest: str = ""

    @property
    def fetches(self) -> str:
        """Digest of what is fetched for the own layer: a change of other parts leaves recorded packages valid."""
        wheels = [[wheel.package, wheel.version] for wheel in self.wheels]
        return jsontext.digest([list(self.packages), sorted(self.without), wheels])

    @property
    def named(self) -> str:
        """``mcp-sandbox/<name>:<tag>``, the name in the engine."""
        return f"mcp-sandbox/{self.name}:{self.tag}"

    def keeps(self, path: str) -> bool:
        """Return whether a path of a package goes into the layer."""
        if any(fnmatchcase(path, pattern) for pattern in self.keep_everywhere):
            return True
        return not any(fnmatchcase(path, pattern) for pattern in (*self.leave_out, *self.leave_out_everywhere))


_TOP: Final = {
    "summary", "from", "phase", "tag", "provides_apt", "debian", "leave_out", "leave_out_everywhere", "keep_everywhere",
    "image", "env", "wheel", "file", "link", "folder",
}  # fmt: skip


@cache
def load(name: str) -> Recipe:
    """Return a shipped recipe, with what it inherits from its parents.

    Raises:
        PlatformError: ``CLI-090`` there is none of that name, ``IMG-005`` it is not valid.
    """
    if not name.replace("-", "").isalnum():
        raise PlatformError("IMG-005", f"{name[:64]!r} is not the name of an image", "see `mcp-sandbox images`")
    folder = shipped("images", name)
    recipe = parse(name, (folder / "recipe.toml").read_bytes(), folder)
    if not recipe.parent:
        return recipe
    parent = load(recipe.parent)
    return inherit(recipe, parent)


def names() -> tuple[str, ...]:
    """Return the names of every shipped recipe, in alphabetical order."""
    return tuple(sorted(file.parent.name for file in shipped("images").glob("*/recipe.toml")))


def inherit(recipe: Recipe, parent: Recipe) -> Recipe:
    """Return a recipe with its parent's rules and environment below its own; the digest covers the parent's."""
    return _replaced(
        recipe,
        leave_out_everywhere={**parent.leave_out_everywhere, **recipe.leave_out_everywhere},
        keep_everywhere={**parent.keep_everywhere, **recipe.keep_everywhere},
        env={**parent.env, **recipe.env},
        merged_usr=recipe.merged_usr or parent.merged_usr,
        digest=jsontext.digest([parent.digest, recipe.digest]),
    )


def parse(name: str, data: bytes, folder: Path) -> Recipe:
    """Return the recipe that a TOML text says, without what it inherits.

    Raises:
        PlatformError: ``IMG-005``.
    """
    try:
        value = tomllib.loads(data.decode("utf-8"))
        _known(value, _TOP, name)
        recipe = _recipe(name, value, folder)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise _wrong(name, f"{type(error).__name__}: {error}") from None
    if recipe.phase not in {"run", "build"}:
        raise _wrong(name, f"phase {recipe.phase!r} is neither run nor build")
    sources = {path: jsontext.digest(body.hex()) for path, body in recipe.files.items()}
    return _replaced(recipe, digest=jsontext.digest([BUILDER, value, sources]))


def _recipe(name: str, value: Mapping[str, Any], folder: Path) -> Recipe:
    debian = _known(value.get("debian", {}), {"packages", "without"}, name)
    image = _known(value.get("image", {}), {"ca_bundle", "merged_usr", "compile_python", "entrypoint"}, name)
    return Recipe(
        name=name,
        summary=value["summary"],
        parent=value["from"],
        phase=value["phase"],
        packages=tuple(debian.get("packages", ())),
        without=_reasons(debian.get("without", {}), name),
        leave_out=_reasons(value.get("leave_out", {}), name),
        leave_out_everywhere=_reasons(value.get("leave_out_everywhere", {}), name),
        keep_everywhere=_reasons(value.get("keep_everywhere", {}), name),
        wheels=tuple(_wheel(item, name) for item in value.get("wheel", ())),
        files={item["path"]: _contents(item, folder, name) for item in value.get("file", ())},
        links={item["path"]: item["target"] for item in value.get("link", ())},
        folders=tuple(item["path"] for item in value.get("folder", ())),
        env=dict(value.get("env", {})),
        entrypoint=tuple(image.get("entrypoint", ())),
        compile_python=tuple(image.get("compile_python", ())),
        ca_bundle=image.get("ca_bundle", False),
        merged_usr=image.get("merged_usr", False),
        provides_apt=tuple(value.get("provides_apt", ())),
        tag=value.get("tag", "latest"),
    )


def _wheel(item: Mapping[str, Any], name: str) -> Wheel:
    _known(item, {"package", "version", "take", "licence"}, name)
    return Wheel(item["package"], item["version"], dict(item["take"]), item.get("licence", ""))


def _contents(item: Mapping[str, Any], folder: Path, name: str) -> bytes:
    _known(item, {"path", "text", "source", "module"}, name)
    if "module" in item:  # a file of this package itself, so that an image and the code that uses it agree
        return (Path(__file__).resolve().parents[2] / str(item["module"])).read_bytes()
    if "source" in item:
        return folder.joinpath(item["source"]).read_bytes()
    text: str = item["text"]
    return text.encode()


def _known(value: Mapping[str, Any], keys: set[str], name: str) -> Mapping[str, Any]:
    unknown = sorted(set(value) - keys)
    if unknown:
        raise _wrong(name, f"unknown key {unknown[0]!r}")
    return value


def _reasons(value: Mapping[str, Any], name: str) -> Mapping[str, str]:
    for key, reason in value.items():
        if not isinstance(reason, str) or not reason.strip():
            raise _wrong(name, f"{key!r} has no reason")
    return dict(value)


def _replaced(recipe: Recipe, **parts: Any) -> Recipe:
    values = {name: getattr(recipe, name) for name in Recipe.__dataclass_fields__}
    return Recipe(**{**values, **parts})


def _wrong(name: str, why: str) -> PlatformError:
    return PlatformError("IMG-005", f"images/{name}/recipe.toml: {why}", "restore images/ from the release")
