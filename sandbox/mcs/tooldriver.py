"""Any DRIVER.md as a tool driver of the Model Context Standard: meta, list_tools, execute_tool.

A tool is executed by the session that serves a client of ``run``: its contract, the operator's rules, sanitising,
deadlines and the trail hold here as there. What the driver returns is the contract's value, raw (section 4.2).
"""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any, Final

from sandbox.errors import SandboxError, UsageError
from sandbox.mcs import autostart as starting
from sandbox.mcs.contract import (
    DriverBinding,
    DriverMeta,
    HealthCheckResult,
    HealthStatus,
    MCSToolDriver,
    SupportsAutostart,
    SupportsCache,
    SupportsHealthcheck,
    SupportsStatus,
    Tool,
)
from sandbox.mcs.opening import Opened, Opener, opened
from sandbox.mcs.session import Session
from sandbox.mcs.settings import DriverSettings
from sandbox.mcs.tools import error_in, plain, tool_of
from sandbox.spec.load import load_driver

CAPABILITIES: Final = ("orchestratable", "healthcheck", "cache", "status", "autostart")

_UNBOUND: Final = DriverMeta(
    id="mcp-sandbox",
    name="A server that autostart names",
    version="0.0.0",
    bindings=(DriverBinding("mcp", "stdio", "JSON-Schema"),),
    supported_llms=None,
    capabilities=CAPABILITIES,
)


class SandboxedToolDriver(MCSToolDriver, SupportsHealthcheck, SupportsCache, SupportsStatus, SupportsAutostart):
    """One sandboxed server as an MCS tool driver; use it as a context manager, or ``close`` it.

    Nothing runs until a method needs it. Threads may share one. Beside each method stands an asynchronous one, with
    an ``a`` in front.

    Args:
        driver: DRIVER.md, its folder, or whole settings; none for ``autostart(image=…)``.
        settings: members of :class:`~sandbox.mcs.settings.DriverSettings`, instead of them.

    Raises:
        SpecError: the folder is not valid.
        UsageError: ``MCS-014``, the settings are not.

    Attributes:
        meta: id, name and version of DRIVER.md; ``capabilities`` are the flags of the optional contracts.
    """

    def __init__(self, driver: str | Path | DriverSettings = "", **settings: Any) -> None:
        if isinstance(driver, DriverSettings):
            self.settings = driver.of({**driver.model_dump(), **settings})
        else:
            self.settings = DriverSettings.of({"driver": str(driver), **settings})
        self.meta = self._meta(self.settings.driver)
        self._session: Session | None = self._bound(self.settings) if self.settings.driver else None
        self._closed = False

    # --- MCSToolDriver --------------------------------------------------------------------------------------------
    def list_tools(self) -> list[Tool]:
        """Return the exposed tools: reviewed contracts, in the words of their authors.

        Raises:
            SandboxError: the server cannot be planned, started or vetted, or has ended.
        """
        return [tool_of(one) for one in self.list_definitions()]

    def execute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool gives: the value that fits its contract's outputs.

        Raises:
            CallRefused: contract, rules or limits refuse it, or the tool is not exposed.
            ServerFault: the tool failed, or answered with what does not fit; ServerTimeout past its deadline.
            SandboxError: as :meth:`list_tools`.
        """
        return self._held().call(functools.partial(_execute, tool_name, arguments))

    async def alist_tools(self) -> list[Tool]:
        """Do what :meth:`list_tools` does."""
        return [tool_of(one) for one in await self._held().acall(_list)]

    async def aexecute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Do what :meth:`execute_tool` does; a cancelled caller cancels the call."""
        return await self._held().acall(functools.partial(_execute, tool_name, arguments))

    async def awarmup(self) -> None:
        """Do what :meth:`warmup` does."""
        await asyncio.to_thread(self.warmup)

    async def aautostart(self, **kwargs: Any) -> None:
        """Do what :meth:`autostart` does."""
        await asyncio.to_thread(functools.partial(self.autostart, **kwargs))

    async def aclose(self) -> None:
        """Do what :meth:`close` does."""
        await asyncio.to_thread(self.close)

    def list_definitions(self) -> list[dict[str, Any]]:
        """Return the MCP definitions of the exposed tools."""
        return self._held().call(_list)

    # --- optional contracts ---------------------------------------------------------------------------------------
    def healthcheck(self) -> HealthCheckResult:
        """Return ``OK`` when the server answers a ping, ``UNKNOWN`` when nothing was started, else ``ERROR``."""
        if self._closed or self._session is None or self._session.state == "new":
            return {"status": HealthStatus.ERROR if self._closed else HealthStatus.UNKNOWN}
        try:
            self._session.call(_ping)
        except SandboxError:
            return {"status": HealthStatus.ERROR}
        return {"status": HealthStatus.OK}

    def warmup(self) -> None:
        """Start the server now, vetted, so that no call waits for it; one that ended is started anew.

        Raises:
            SandboxError: it cannot be planned, started or vetted.
        """
        self._held().open()

    def get_status(self) -> dict[str, Any]:
        """Return how the sandbox is: ``state``, and while it is open ``instance``, ``plan``, ``trust`` and ``usage``.

        ``usage`` has the figures of the container's cgroup: ``memory_bytes``, ``cpu_seconds``, ``pids`` and others.
        """
        state = "closed" if self._closed else self._session.state if self._session else "new"
        status: dict[str, Any] = {"driver": self.meta.id, "state": state}
        if self._session is not None and self._session.fault is not None:
            status["fault"] = str(self._session.fault)
        return {**status, **self._session.call(_status)} if self._session and state == "open" else status

    def autostart(self, **kwargs: Any) -> None:
        """Start the server, always in a sandbox; ``image`` names one, and needs nothing else (section 7).

        Args:
            **kwargs: ``image``, a container image whose command speaks MCP on stdio, for a driver made without
                DRIVER.md; ``args``, its arguments; ``secrets``, names of variables that it needs a secret in; nothing,
                for a driver made with one.

        Raises:
            UsageError: ``MCS-013``, the arguments name no image, or this driver has its server already.
            PlatformError: there is no container engine; a bare process is never started.
            SandboxError: the server cannot be planned, started or vetted.
        """
        if kwargs:
            if self._session is not None or self._closed:
                raise UsageError("MCS-013", "this driver has its server already", "make one without a DRIVER.md")
            folder = starting.drafted(self.settings, kwargs)
            self.settings = self.settings.of({**self.settings.model_dump(), "driver": folder})
            self.meta = self._meta(folder)
            self._session = self._bound(self.settings)
        self.warmup()

    # --- life -----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Remove the container and everything of it; idempotent."""
        self._closed = True
        if self._session is not None:
            self._session.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _held(self) -> Session:
        if self._session is None:
            raise UsageError("MCS-013", "this driver has no server", "name a DRIVER.md, or call autostart(image=…)")
        return self._session

    def _bound(self, settings: DriverSettings) -> Session:
        return Session(self._opener(settings))

    def _opener(self, settings: DriverSettings) -> Opener:
        return functools.partial(opened, settings)

    def _meta(self, driver: str) -> DriverMeta:
        if not driver:
            return _UNBOUND
        spec = load_driver(Path(driver))
        binding = DriverBinding("mcp", spec.transport, "JSON-Schema")
        return DriverMeta(spec.id, spec.name, spec.version, (binding,), None, CAPABILITIES)


async def _list(found: Opened) -> list[dict[str, Any]]:
    return await found.client.list_tools()


async def _ping(found: Opened) -> dict[str, Any]:
    return await found.client.request("ping", {})


async def _execute(name: str, arguments: dict[str, Any], found: Opened) -> Any:
    result = await found.client.request("tools/call", {"name": name, "arguments": arguments})
    error = error_in(result)
    if error is not None:
        raise error
    structured = result.get("structuredContent")
    return plain(result) if structured is None else found.value_of(name, structured)


async def _status(found: Opened) -> dict[str, Any]:
    live = found.live
    plan = {"digest": live.plan.digest(), "network": live.plan.network.mode, "runtime": live.plan.runtime}
    held = dict(live.exposure.held)
    return {"instance": live.instance.id, "plan": plan, "trust": live.trust, "held": held, "usage": await found.usage()}
