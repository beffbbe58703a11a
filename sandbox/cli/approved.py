"""How commands open a server with regard to its pins, and what they tell whoever started them. Light to import."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox.cli import options
from sandbox.cli.report import line_of, say
from sandbox.cli.verdicts import KeptVerdicts
from sandbox.supervisor.options import Options
from sandbox.vet.model import Fitting

if TYPE_CHECKING:
    from sandbox.supervisor.admission import LiveServer
    from sandbox.vet.model import Exposure


def opening(arguments: argparse.Namespace) -> Options:
    """Return how a command opens a server; the operator's ceiling is asked about pins only when there are none."""
    bounds: dict[str, Any] = {}
    if getattr(arguments, "policy", None) is not None or (options.CONFIG / "policy.toml").exists():
        from sandbox.cli.bounds import call_bounds  # without a file of the operator the defaults are the same

        own = call_bounds(arguments)
        bounds = {"max_message": own.message, "max_depth": own.depth, "max_stderr": own.stderr}
    return Options(
        names=arguments.names,
        fitting=Fitting(verdicts=KeptVerdicts()),
        pins_required=pins_required(arguments),
        **bounds,
    )


def pins_required(arguments: argparse.Namespace) -> Callable[[], bool]:
    """Return what asks the operator's ceiling whether a server that nobody has approved is refused."""

    def required() -> bool:
        from sandbox.cli.wiring import load_policy  # heavy, and needed by few

        return not load_policy(getattr(arguments, "policy", None)).first_use

    return required


def askable(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the server is told that the client can be asked for: nothing, without rules of the operator's own."""
    if arguments.rules is None and not (options.CONFIG / "rules").is_dir():
        return {}
    from sandbox.cli.rules import capabilities_for  # heavy, and needed by few

    return capabilities_for(arguments.rules)


def tell(live: LiveServer) -> None:
    """Say on stderr what is out of service, and that nobody has approved the server, if so; go on with what changes."""
    if live.trust == "first use":
        file = line_of(live.spec.file)
        say(f"mcp-sandbox: nobody has approved what this server offers — `mcp-sandbox pins approve {file}` does")
    known: dict[str, str] = {}

    def hear(exposure: Exposure) -> None:
        for name, why in exposure.held.items():
            if known.get(name) != why:
                say(f"mcp-sandbox: {line_of(f'`{name}` is out of service: {why} — see `mcp-sandbox pins diff`')}")
        for name in known.keys() - exposure.held.keys():
            say(f"mcp-sandbox: {line_of(f'`{name}` is back in service')}")
        known.clear()
        known.update(exposure.held)

    hear(live.exposure)
    live.revetter.subscribe(hear)
