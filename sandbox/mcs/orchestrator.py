"""Several tool drivers as one driver (section 4): names unified, calls sent to the one driver that they name.

What tools are called is the matter of :mod:`sandbox.mcs.names`. Calls go by an index of what was listed, never by
trying drivers in turn.

The drivers may be anybody's. One of ours is sandboxed by itself; one that is not runs in this process, as in any
orchestrator, and ``mcp-sandbox mcs bridge`` puts it behind one of ours.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from sandbox.errors import CallRefused, UsageError
from sandbox.mcs.contract import (
    DriverBinding,
    DriverMeta,
    HealthCheckResult,
    HealthStatus,
    MCSToolDriver,
    SupportsCache,
    SupportsHealthcheck,
    SupportsStatus,
    Tool,
)
from sandbox.mcs.names import SEPARATOR, Names, Place
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.settings import Description, OrchestratorSettings, Semantics, Style
from sandbox.mcs.speaking import Speaking
from sandbox.mcs.tooldriver import SandboxedToolDriver

_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_WORST: Final = (HealthStatus.OK, HealthStatus.UNKNOWN, HealthStatus.WARNING, HealthStatus.ERROR)
_META: Final = DriverMeta(
    id="mcp-sandbox-orchestrator",
    name="mcp-sandbox orchestrator",
    version="1.0.0",
    bindings=(DriverBinding("orchestrator", "*", "JSON-Schema"),),
    supported_llms=("*",),
    capabilities=("standalone", "orchestratable", "tcs", "healthcheck", "cache", "status"),
)


class Orchestrator(Speaking, SupportsHealthcheck, SupportsCache, SupportsStatus):
    """Several tool drivers as one; itself a driver and a tool driver, so that orchestrators nest.

    Args:
        drivers: label → tool driver.
        texts: prompts; ours by default.
        style: see :mod:`sandbox.mcs.prompts`.
        semantics: of ``process_llm_response``.
        description: format of ``get_function_description``.
        custom_system_message: stands for the whole system prompt.
        custom_tool_description: stands for the whole description.

    Raises:
        UsageError: ``MCS-011``, a label is not a name.
    """

    retries_unknown = True

    def __init__(
        self,
        drivers: Mapping[str, MCSToolDriver] | None = None,
        *,
        texts: Prompts | None = None,
        style: Style = "auto",
        semantics: Semantics = "0.6",
        description: Description = "json-schema",
        custom_system_message: str | None = None,
        custom_tool_description: str | None = None,
    ) -> None:
        self.meta = _META
        self.speak(
            texts or Prompts.load(), style=style, semantics=semantics, description=description,
            custom_system_message=custom_system_message, custom_tool_description=custom_tool_description,
        )  # fmt: skip
        self._drivers: dict[str, MCSToolDriver] = {}
        self._names_given = Names()
        self._index: dict[str, Place] = {}
        self._lock = threading.RLock()
        for label, driver in (drivers or {}).items():
            self.add_driver(driver, label=label)

    @classmethod
    def of(cls, settings: OrchestratorSettings) -> Orchestrator:
        """Return an orchestrator of sandboxed drivers; :meth:`close` closes them too."""
        drivers = {label: SandboxedToolDriver(one) for label, one in settings.drivers.items()}
        chosen = {"style": settings.style, "semantics": settings.semantics, "description": settings.description}
        return cls(drivers, texts=Prompts.load(settings.prompts), **chosen)  # type: ignore[arg-type]

    # --- drivers --------------------------------------------------------------------------------------------------
    def add_driver(self, driver: MCSToolDriver, *, label: str) -> None:
        """Add a driver.

        Raises:
            UsageError: ``MCS-011``, the label is taken or no name.
        """
        with self._lock:
            if _LABEL.fullmatch(label) is None or SEPARATOR in label or label in self._drivers:
                why = "is taken" if label in self._drivers else "is not a name without `__`"
                raise UsageError("MCS-011", f"the label {label[:40]!r} {why}", "use another one")
            self._drivers[label] = driver

    def remove_driver(self, label: str) -> MCSToolDriver | None:
        """Take a driver out and return it, still open; its names stay reserved."""
        with self._lock:
            return self._drivers.pop(label, None)

    @property
    def labels(self) -> list[str]:
        """Labels of the drivers."""
        with self._lock:
            return list(self._drivers)

    # --- MCSToolDriver --------------------------------------------------------------------------------------------
    def list_tools(self) -> list[Tool]:
        """Return the tools of every driver under the names that they are called by.

        Raises:
            SandboxError: a driver cannot list its tools.
            UsageError: ``MCS-012``, two tools cannot be told apart.
        """
        with self._lock:
            listed = [(label, tool) for label, driver in self._drivers.items() for tool in driver.list_tools()]
            self._index = self._names_given.given([(label, tool.name) for label, tool in listed])
            by_place = {place: name for name, place in self._index.items()}
            return [_renamed(tool, by_place[label, tool.name]) for label, tool in listed]

    def execute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool gives.

        Raises:
            CallRefused: ``MCS-003``, no tool is listed under this name.
            Exception: whatever its driver raises.
        """
        with self._lock:
            if tool_name not in self._index:
                self.list_tools()
            place = self._index.get(tool_name)
            driver = self._drivers.get(place[0]) if place is not None else None
        if place is None or driver is None:
            raise CallRefused("MCS-003", f"there is no tool {tool_name[:80]!r}", "use one that is listed")
        return driver.execute_tool(place[1], arguments)

    # --- optional contracts ---------------------------------------------------------------------------------------
    def healthcheck(self) -> HealthCheckResult:
        """Return the worst that a driver says which can say it."""
        worst = HealthStatus.OK
        for driver in self._all():
            checked = _able(driver, SupportsHealthcheck)
            if checked is not None:
                worst = max(worst, _status(checked.healthcheck()), key=_WORST.index)
        return {"status": worst}

    def warmup(self) -> None:
        """Start every driver that can be warmed up."""
        for driver in self._all():
            warm = _able(driver, SupportsCache)
            if warm is not None:
                warm.warmup()

    def get_status(self) -> dict[str, Any]:
        """Return label → status of every driver that has one."""
        with self._lock:
            drivers = dict(self._drivers)
        able = {label: _able(one, SupportsStatus) for label, one in drivers.items()}
        return {label: one.get_status() for label, one in able.items() if one is not None}

    def close(self) -> None:
        """Close every driver that can be closed."""
        for driver in self._all():
            end = getattr(driver, "close", None)
            if callable(end):
                end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _all(self) -> Iterable[MCSToolDriver]:
        with self._lock:
            return list(self._drivers.values())


def _able(driver: MCSToolDriver, contract: type) -> Any:
    """Return what keeps an optional contract, or ``None``; its flag is looked at first (section 6)."""
    if not driver.meta.has_capability(contract):
        return None
    return DriverMeta.resolve_capability(driver, contract)


def _status(said: Any) -> HealthStatus:
    """Return a status as the contract names it; what it does not name is unknown, never well."""
    try:
        return HealthStatus(said["status"])
    except (KeyError, TypeError, ValueError):
        return HealthStatus.UNKNOWN


def _renamed(tool: Tool, name: str) -> Tool:
    return tool if tool.name == name else Tool(name, tool.title, tool.description, list(tool.parameters))
