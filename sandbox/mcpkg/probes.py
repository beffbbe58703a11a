"""What the images of this installation really offer: programs started in them, without a network."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final

from sandbox import jsontext
from sandbox.launch.images.build import Images
from sandbox.launch.images.places import write_private
from sandbox.launch.images.runner import Job, Runner
from sandbox.mcpkg.model import HttpEndpoint, Manifest
from sandbox.mcpkg.select import RUNTIMES, Runtime, Surroundings

PLATFORMS: Final = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
_SECONDS: Final = 60.0
_BYTES: Final = 1 << 20
_PYTHON: Final = (
    "import importlib.metadata as m,json,platform;"
    "print(json.dumps({'version':platform.python_version(),"
    "'packages':{d.metadata['Name'].lower().replace('_','-').replace('.','-'):d.version for d in m.distributions()}}))"
)
_NODE: Final = "console.log(JSON.stringify({version: process.versions.node, packages: {}}))"
_PROBES: Final[dict[str, tuple[str, ...]]] = {
    "python": ("/usr/bin/python3", "-I", "-c", _PYTHON),
    "node": ("/usr/bin/node", "-e", _NODE),
}
"""Runtime, which is also the name of its image → what it is asked."""


def surroundings(manifest: Manifest, images: Images) -> Surroundings:
    """Return what is known about the runtimes that a package could use; each is asked once for each image.

    Raises:
        PlatformError: the engine failed, or an image cannot be made.
    """
    machine = platform.machine()
    found = {name: _runtime(name, images) for name in _asked(manifest)}
    return Surroundings(PLATFORMS.get(machine, f"linux-{machine}"), found)


def _asked(manifest: Manifest) -> Iterable[str]:
    """Return the runtimes worth asking: those whose name a package mentions anywhere, or both for its own programs."""
    words: set[str] = set()
    for implementation in manifest.implementations:
        endpoint = implementation.endpoint
        if isinstance(endpoint, HttpEndpoint):
            continue
        first = endpoint.argv[0]
        words |= {implementation.runtime.lower().rstrip("0123456789.- "), "python" if first.startswith("./") else first}
    return sorted({RUNTIMES[word] for word in words if word in RUNTIMES})


def _runtime(name: str, images: Images) -> Runtime:
    made, engine_id = images.obtain(name)
    place = images.places.installed(jsontext.digest(["mcpkg probe", engine_id, _PROBES[name]]))
    try:
        answer = jsontext.parse(place.read_bytes())
    except (OSError, jsontext.JsonTextError):
        answer = _ask(name, engine_id, images)
        write_private(place, jsontext.dump(answer))
    return Runtime(name, str(answer["version"]), name, made.programs(), dict(answer["packages"]))


def _ask(name: str, engine_id: str, images: Images) -> dict[str, object]:
    with images.places.building() as scratch:
        output = scratch / "probe"
        job = Job(engine_id, _PROBES[name], f"ask {name} for its version", max_output=_BYTES, seconds=_SECONDS)
        Runner(images.store.engine, images.store.progress).run(job, output)
        answer: dict[str, object] = jsontext.parse(output.read_bytes())
    return answer
