"""Sandboxed servers as Model Context Standard drivers, and such drivers as sandboxed servers.

The Model Context Standard (MCS) is a Python interface rather than a wire protocol: a *tool driver* lists and executes
tools, a *driver* also writes the prompt for a model and executes what the model answers. Here both stand on the same
flow as ``run``: a program that holds one of these classes is one more client of a vetted server in its container, and
what it sends goes through the same session, contracts, rules and audit trail as any client's bytes (ADR 0115).

What a program needs::

    from sandbox.mcs import SandboxedDriver

    with SandboxedDriver("drivers/text-mcp/DRIVER.md") as driver:
        prompt = driver.get_driver_system_message()
        answer = driver.process_llm_response('{"tool": "text-count", "arguments": {"text": "one two"}}')

With the package ``mcs-driver-core`` (extra ``mcs``) the classes are real subclasses of its abstract classes; without
it they are structurally the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.mcs.driver import SandboxedDriver
    from sandbox.mcs.orchestrator import Orchestrator
    from sandbox.mcs.settings import DriverSettings, OrchestratorSettings
    from sandbox.mcs.tooldriver import SandboxedToolDriver

__all__ = ["DriverSettings", "Orchestrator", "OrchestratorSettings", "SandboxedDriver", "SandboxedToolDriver"]

_PLACES = {
    "DriverSettings": "settings",
    "Orchestrator": "orchestrator",
    "OrchestratorSettings": "settings",
    "SandboxedDriver": "driver",
    "SandboxedToolDriver": "tooldriver",
}


def __getattr__(name: str) -> Any:
    """Import a class when it is first asked for: the command line needs few of them."""
    import importlib  # noqa: PLC0415 - with the rest

    if name not in _PLACES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"sandbox.mcs.{_PLACES[name]}"), name)
