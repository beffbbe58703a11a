"""The names of the Model Context Standard: of its package where that is installed, else our own, which are the same.

Also the optional contracts that exist in the specification's text only (section 6): cache, status and autostart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sandbox.mcs import own as source
else:
    try:
        import mcs.driver.core as source

        PUBLISHED = hasattr(source, "SupportsCapabilityResolution")
    except ImportError:
        PUBLISHED = False
    if not PUBLISHED:
        from sandbox.mcs import own as source

DriverBinding = source.DriverBinding
DriverMeta = source.DriverMeta
DriverResponse = source.DriverResponse
HealthCheckResult = source.HealthCheckResult
HealthStatus = source.HealthStatus
MCSDriver = source.MCSDriver
MCSToolDriver = source.MCSToolDriver
SupportsHealthcheck = source.SupportsHealthcheck
Tool = source.Tool
ToolCallSignaling = source.ToolCallSignaling
ToolParameter = source.ToolParameter


class SupportsCache(ABC):
    """Can make ready what the first call would wait for."""

    CAPABILITY: ClassVar[str] = "cache"

    @abstractmethod
    def warmup(self) -> None:
        """Make everything ready."""


class SupportsStatus(ABC):
    """Can say what it uses."""

    CAPABILITY: ClassVar[str] = "status"

    @abstractmethod
    def get_status(self) -> dict[str, Any]:
        """Return figures of now."""


class SupportsAutostart(ABC):
    """Can start what it needs."""

    CAPABILITY: ClassVar[str] = "autostart"

    @abstractmethod
    def autostart(self, **kwargs: Any) -> None:
        """Start it, virtualised."""
