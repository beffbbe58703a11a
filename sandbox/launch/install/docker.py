"""A docker image as it is: found by id, pinned in the lock, its own wishes noted and not granted.

A name in DRIVER.md may move; the id in ``driver.lock`` does not, and only the id is run. An image is fetched only
when the operator allows it, and only by digest. Images of images/ are named too, and are what their own recorded
locks say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sandbox.errors import InstallRefused, PlatformError
from sandbox.launch.images import recipe
from sandbox.launch.images.engine import ImageEngine
from sandbox.plan.model import ImageFacts

_BY_DIGEST: Final = re.compile(r"(?P<name>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})")
_BY_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")
_OWN: Final = re.compile(r"mcp-sandbox/(?P<name>[a-z0-9-]+)(?::(?P<tag>[\w.-]+))?")

DECLARED: Final = (
    "User", "Volumes", "Healthcheck", "OnBuild", "ExposedPorts", "StopSignal", "StopTimeout", "Shell", "ArgsEscaped",
)  # fmt: skip
"""Of an image's configuration: noted in the plan, never given (OCI image specification, config.md)."""


def own_image(reference: str) -> str:
    """Return the recipe that makes an image of ours, empty for any other image."""
    match = _OWN.fullmatch(reference)
    if match is None or match["name"] not in recipe.names():
        return ""
    return match["name"] if recipe.load(match["name"]).tag == (match["tag"] or "latest") else ""


def names_content(reference: str) -> bool:
    """Return whether a reference cannot come to mean another image: by digest, by id, or one of ours."""
    return bool(_BY_DIGEST.fullmatch(reference) or _BY_ID.fullmatch(reference) or own_image(reference))


def resolve_image(reference: str, engine: ImageEngine, *, pull: bool) -> dict[str, Any]:
    """Return the lock section of an image that is present, or that may be fetched by digest.

    Raises:
        InstallRefused: ``INST-060`` it is not there and may not or cannot be fetched.
    """
    found = engine.inspect(reference) or _pulled(reference, engine, pull=pull)
    section: dict[str, Any] = {"id": str(found["Id"])}
    match = _BY_DIGEST.fullmatch(reference)
    digests = [str(item) for item in found.get("RepoDigests") or ()]
    if match is not None:
        section["digest"] = match["digest"]
    elif digests:
        section["digest"] = min(digests).rpartition("@")[2]
    return section


def docker_facts(reference: str, section: Mapping[str, Any], engine: ImageEngine, *, pull: bool) -> ImageFacts:
    """Return the pinned image, fetching it by digest when it is absent and that is allowed.

    Raises:
        InstallRefused: ``INST-060`` it cannot be had, ``INST-061`` another image came.
    """
    wanted = str(section["id"])
    found = engine.inspect(wanted)
    if found is None and "digest" in section:
        name = reference.partition("@")[0]
        found = _pulled(f"{_without_tag(name)}@{section['digest']}", engine, pull=pull)
    if found is None:
        raise _absent(reference, f"its pinned id {wanted[:19]}… is not in the engine")
    if str(found["Id"]) != wanted:
        raise InstallRefused(
            "INST-061",
            f"`{reference}` is {str(found['Id'])[:19]}…, and driver.lock pins {wanted[:19]}…",
            "run `mcp-sandbox lock DRIVER.md` when the change is wanted",
        )
    return facts_of(found, reference, pinned=True)


def facts_of(found: Mapping[str, Any], named: str, *, pinned: bool) -> ImageFacts:
    """Return the facts of an image from the engine's description: pure.

    ENTRYPOINT and CMD become the argument vector; everything else that the image asks for is only noted.

    Raises:
        InstallRefused: ``INST-062``, the image names no program.
    """
    config: Mapping[str, Any] = found.get("Config") or {}
    entrypoint, command = tuple(config.get("Entrypoint") or ()), tuple(config.get("Cmd") or ())
    if not entrypoint and not command:
        raise InstallRefused(
            "INST-062", f"image `{named}` names no program (ENTRYPOINT or CMD)", "add one to the image"
        )
    pairs = (str(item).partition("=") for item in config.get("Env") or ())
    return ImageFacts(
        id=str(found["Id"]),
        named=named,
        argv=(*entrypoint, *command),
        env={name: value for name, _, value in pairs},
        workdir=str(config.get("WorkingDir") or "/"),
        declared={name: config[name] for name in DECLARED if config.get(name)},
        pinned=pinned,
    )


def _pulled(reference: str, engine: ImageEngine, *, pull: bool) -> dict[str, Any]:
    match = _BY_DIGEST.fullmatch(reference)
    if _BY_ID.fullmatch(reference) or match is None:
        raise _absent(reference, "it is not in the engine, and only images named by digest (name@sha256:…) are fetched")
    if not pull:
        raise _absent(reference, "it is not in the engine, and the operator's policy does not let images be fetched")
    engine.pull(match["name"], match["digest"])
    found = engine.inspect(reference)
    if found is None:
        raise PlatformError(
            "INST-063", f"the engine fetched `{reference}` and does not have it", "try `docker pull` yourself"
        )
    return found


def _without_tag(name: str) -> str:
    """Return an image name without its tag; a port of the registry is no tag."""
    head, colon, tail = name.rpartition(":")
    return name if not colon or "/" in tail else head


def _absent(reference: str, why: str) -> InstallRefused:
    return InstallRefused(
        "INST-060", f"image `{reference}` cannot be had: {why}", "load or build it, then run `mcp-sandbox lock`"
    )
