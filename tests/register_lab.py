"""The gateway in memory with its pages: the register, discovery and health as ``serve`` wires them, and a history."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from sandbox.cli.gateway.building import Parts, pages_of
from sandbox.cli.gateway.config import DriverConfig, GatewayConfig
from sandbox.cli.gateway.figures import Figures
from sandbox.cli.gateway.mounts import Mounted
from sandbox.registry.entity import ServerEntity
from sandbox.registry.history.notes import remember
from sandbox.registry.pages import PUBLIC
from sandbox.serve.identity.model import METADATA
from tests.gateway_lab import Lab, lab

NAMESPACE = "com.example"
OPEN = ServerEntity(
    slug="open", name=f"{NAMESPACE}/open", title="Open", description="For everybody.", endpoint_path="/mcp/open",
    version="1.2.0+build.7", auth="none", visibility="public", tools=("tool",),
    published="2026-01-03T00:00:00Z", updated="2026-01-04T00:00:00Z",
)  # fmt: skip
CLOSED = dataclasses.replace(
    OPEN, slug="closed", name=f"{NAMESPACE}/closed", title="Closed", description="For who signs in.",
    endpoint_path="/mcp/closed", version="2.0.0", auth="bearer", visibility="authenticated",
)  # fmt: skip
GONE = dataclasses.replace(OPEN, slug="gone", name=f"{NAMESPACE}/gone", title="Gone", endpoint_path="/mcp/gone")


def history(place: Path) -> None:
    """Note what an earlier gateway served: older versions of a server that is here, and one that is not."""
    start = datetime.now(UTC) - timedelta(days=30)
    for day, version in enumerate(("1.0.0", "1.1.0-rc.1", "1.1.0", "1.2.0+build.3")):
        served = [dataclasses.replace(OPEN, version=version), GONE]
        remember(place, served, {}, start + timedelta(days=day))


@contextlib.asynccontextmanager
async def register_lab(folder: Path, **more: Any) -> AsyncIterator[Lab]:
    """Open a gateway whose pages tell of its two endpoints.

    Args:
        folder: for notes.
        **more: as for :func:`tests.gateway_lab.lab`.
    """
    notes = folder / "register.json"
    history(notes)
    async with lab(**more) as stage:
        gateway = stage.app.gateway
        mounted = [Mounted(folder, cast("Any", None), one, DriverConfig()) for one in (OPEN, CLOSED)]
        nothing = cast("Any", None)
        parts = Parts(
            GatewayConfig(namespace=NAMESPACE), mounted, nothing, gateway.scope, nothing, Figures(), stage.url,
            ("127.0.0.1", 0), nothing,
        )  # fmt: skip
        parts.notes = notes
        gateway.pages = pages_of(parts, stage.app)
        gateway.public = (METADATA, *PUBLIC)
        yield stage
