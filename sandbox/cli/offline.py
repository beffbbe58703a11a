"""Reviews a driver for a run that is only to be asked what the server offers: no network, made-up secrets.

A server is run like that before anybody approved it, so nothing that it could send or leak is within its reach.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from typing import TYPE_CHECKING

from sandbox.errors import UsageError
from sandbox.launch.docker import DockerBackend
from sandbox.launch.images.progress import Progress
from sandbox.spec.model import RemoteServer

if TYPE_CHECKING:
    from sandbox.cli.wiring import Review
    from sandbox.spec.model import DriverSpec, Secret

PLACEHOLDER = "mcp-sandbox-placeholder"
"""What the server gets in place of every secret."""


async def offline(
    arguments: argparse.Namespace, backend: DockerBackend, progress: Progress
) -> tuple[Review, dict[str, str]]:
    """Return the review of a driver as if it declared no network, and slug → placeholder of its secrets.

    Raises:
        SandboxError: the folder, the ceiling or the image is not usable.
        UsageError: ``CLI-140``, the server runs elsewhere.
    """
    loop = asyncio.get_running_loop()
    wiring = await loop.run_in_executor(None, importlib.import_module, "sandbox.cli.wiring")
    review: Review = await loop.run_in_executor(None, wiring.review, arguments, backend.engine.socket_path, progress)
    if isinstance(review.spec.server, RemoteServer):
        mend = "vet what was approved of it with --pinned"
        raise UsageError("CLI-140", f"{review.spec.file}: a remote server cannot be run without a network", mend)
    review.spec = without_network(review.spec)
    review.planned(await backend.facts())
    return review, dict.fromkeys(review.plan.secrets(), PLACEHOLDER)


def without_network(spec: DriverSpec) -> DriverSpec:
    """Return a driver that names no destination, trusts nobody's CA for reaching it, and has nothing put in for it."""
    rules = spec.sandbox.model_copy(update={"trust_host_ca": False})
    secrets = tuple(_without_substitution(secret) for secret in spec.secrets)
    return spec.model_copy(update={"egress": (), "sandbox": rules, "secrets": secrets})


def _without_substitution(secret: Secret) -> Secret:
    kept = tuple(exposure for exposure in secret.exposures if exposure.get("kind") != "egress-substitute")
    return secret.model_copy(update={"exposures": kept})
