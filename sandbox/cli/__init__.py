"""The command line; the only place that wires implementations together. One file for each command.

A command is a module of this package with ``add_arguments(parser)`` and ``execute(arguments) -> int``. The modules are
imported only when their command is asked for, so that ``--help`` and ``run`` feel instant.

Exit status: 0 success; 1 the driver folder is not valid; 2 usage; 3 refused by policy, host or contract; 4 the server's
fault; 5 the platform's fault; 6 the audit trail cannot be written; 130 interrupted. ``sandbox.errors`` assigns them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from sandbox import __version__
from sandbox.cli.report import line_of, report, say
from sandbox.errors import PlatformError, SandboxError, UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command: the word, the module below ``sandbox.cli``, and one line of help."""

    name: str
    module: str
    summary: str


GROUPS: Final[tuple[tuple[str, tuple[Command, ...]], ...]] = (
    (
        "run a server",
        (
            Command("run", "run", "serve one driver on stdio: what an MCP client's configuration names as `command`"),
            Command("serve", "serve", "serve many drivers to many tenants over HTTP, with one registry and one trail"),
            Command("prove", "prove", "sign in with a key where `run` asks for one on stdio, and pass on the rest"),
            Command("tools", "tools", "list what a driver exposes"),
            Command("call", "call", "call one tool of a driver"),
            Command("client", "client", "put a driver or gateway into an MCP client's configuration, or take it out"),
            Command("login", "login", "log in to a remote server that wants OAuth, or show whether somebody has"),
            Command("logout", "logout", "forget a login to a remote server, and have its tokens revoked"),
            Command("demo", "demo", "show the main job on a driver, step by step"),
        ),
    ),
    (
        "make and review a driver",
        (
            Command("init", "init", "make a driver folder for a package, image, program or client configuration"),
            Command("check", "check", "report every problem of a driver folder at once"),
            Command("plan", "plan", "show what the server will be able to do, and why"),
            Command("policy", "policy", "test and explain the rules that decide calls; print their schema"),
            Command(
                "vet", "vet", "prove that a server keeps its contracts, or show how it does not; for CI and review"
            ),
            Command("learn", "learn", "run a server with everything denied and propose what it needs, as a diff"),
            Command("pkg", "pkg", "create, check, install, test and export .mcpkg packages, which run like drivers"),
            Command("mcs", "mcs", "describe drivers for models, and run Python tool drivers (MCS) in a sandbox"),
            Command("kno", "kno", "lint `.kno` entities, and show what the register makes of them"),
            Command("export-tools", "export_tools", "write what drivers expose as descriptor files (2025-11 dialect)"),
            Command("validate", "validate", "ask a server whether it speaks the 2025-11 dialect"),
            Command("resolve", "resolve", "say which driver carries a tool that several implement, and why"),
            Command("lock", "lock", "pin what a driver installs, with hashes of the whole dependency tree"),
            Command("pins", "pins", "show what was approved of a server, what has changed since, and approve it"),
        ),
    ),
    (
        "read the evidence",
        (Command("audit", "audit", "verify, query, follow and report the audit trail; export its heads"),),
    ),
    (
        "look after this host",
        (
            Command("doctor", "doctor", "report what this host can enforce and what not, with the fix"),
            Command("registries", "registries", "show which package registries installs use, and let them be reached"),
            Command("images", "images", "build and list the images that servers run on"),
            Command("stats", "stats", "show live what every running server uses"),
            Command("reap", "reap", "remove what a killed supervisor left behind"),
        ),
    ),
)

INTERRUPTED: Final = 130
"""Exit status after SIGINT: 128 + 2."""

INTERNAL: Final = 70
"""Exit status after an error of our own: EX_SOFTWARE of sysexits.h."""

CLOSED_PIPE: Final = 141
"""Exit status when the reader of our output has gone: 128 + 13."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``mcp-sandbox`` command and return its exit status.

    Args:
        argv: arguments without the program's name; the process's own by default.
    """
    _fill_standard_descriptors()
    arguments = list(sys.argv[1:] if argv is None else argv)
    return _guarded(arguments)


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(overview())
        return 0 if arguments else 2
    if arguments[0] in {"-V", "--version"}:
        print(f"mcp-sandbox {__version__}")
        return 0
    command = find(arguments[0])
    if command is None:
        say(line_of(unknown(arguments[0])))
        return 2
    return _executed(command, arguments[1:])


def find(name: str) -> Command | None:
    """Return the command of that name, or ``None``."""
    return next((command for _, commands in GROUPS for command in commands if command.name == name), None)


def overview() -> str:
    """Return the text of ``--help``."""
    lines = [
        "usage: mcp-sandbox COMMAND [ARGUMENTS]",
        "",
        "Runs any MCP server in a hardened container under one reviewed file, DRIVER.md,",
        "and keeps evidence of what it did.",
    ]
    for title, commands in GROUPS:
        lines += ["", f"{title}:", *(f"  {command.name:<9} {command.summary}" for command in commands)]
    lines += ["", "`mcp-sandbox COMMAND --help` explains a command; docs/errors/ explains every message id."]
    return "\n".join(lines)


def unknown(name: str) -> str:
    """Return the message for a command that does not exist, with the closest one that does."""
    import difflib  # only on the way out

    names = [command.name for _, commands in GROUPS for command in commands]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`mcp-sandbox --help` lists the commands"
    return f"CLI-001: there is no command `{name}` — {hint}"


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are errors like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError("CLI-002", f"{self.prog}: {message}", f"`{self.prog} --help` explains them")


def _guarded(arguments: Sequence[str]) -> int:
    """Run one command line; errors become one clear line and an exit status, never a traceback."""
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
    except SandboxError as error:
        report(error, as_json="--json" in arguments)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence()
        return CLOSED_PIPE
    except OSError as error:
        if os.environ.get("MCP_SANDBOX_DEBUG"):
            raise
        _silence()
        return _os_failure(error)
    except Exception as error:
        if os.environ.get("MCP_SANDBOX_DEBUG"):
            raise
        text = f"internal error, {type(error).__name__}: {error}"
        say(line_of(f"CLI-099: {text} — run again with MCP_SANDBOX_DEBUG=1 and report it"))
        return INTERNAL
    return status


def _executed(command: Command, arguments: Sequence[str]) -> int:
    for number, argument in enumerate(arguments, 1):
        if any("\ud800" <= one <= "\udfff" for one in argument):
            raise UsageError(
                "CLI-003", f"argument {number} is not UTF-8: {argument!r}", "write it, and name files, in UTF-8"
            )
    module = importlib.import_module(f"sandbox.cli.{command.module}")
    parser = _Parser(prog=f"mcp-sandbox {command.name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    return int(module.execute(parser.parse_args(arguments)))


def _os_failure(error: OSError) -> int:
    """Say what the operating system refused, and return the exit status of a platform's fault."""
    named = f"{error.filename}: " if error.filename else ""
    why = error.strerror or str(error) or type(error).__name__
    mend = "see that it exists, that this user may use it and that there is room; MCP_SANDBOX_DEBUG=1 shows where"
    failure = PlatformError("CLI-018", f"the operating system refused: {named}{why}", mend)
    report(failure, as_json=False)
    return failure.exit_code


def _silence() -> None:
    """Let what is still buffered for stdout go nowhere, so that its failure is not told a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fill_standard_descriptors() -> None:
    """Open what the parent closed of 0, 1 and 2, so that no file of ours, such as a trail, becomes stdin or stdout."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
