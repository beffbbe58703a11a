"""Entries of an existing client's configuration as sources: Claude Desktop, Cursor, VS Code (JSON), Codex (TOML).

A configuration starts servers with the rights of whoever opened the client, through npx, uvx, docker or a path. Each
form that says what would be started becomes a source; what does not (shell lines, interpreters with a script, tags of a
registry, hosts of others) is told with the reason. Values of variables are secrets as far as we can know: only their
names are kept. An argument that looks like a secret refuses the entry: arguments are visible to every process.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.cli import options
from sandbox.cli.drafting.source import Source, untagged
from sandbox.errors import SandboxError, UsageError
from sandbox.spec.fields.text import image_reference, npm_package, pip_package

TABLES: Final = ("mcpServers", "servers", "mcp_servers", "context_servers")
"""Members that hold servers by name: Claude Desktop and Cursor, VS Code, Codex, Zed."""

MAX_ENTRIES: Final = 100
"""Servers of one configuration."""

_RUNNERS: Final = {"npx": "npm", "bunx": "npm", "pnpx": "npm", "uvx": "pip", "pipx": "pip", "docker": "docker"}
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "cmd", "powershell", "pwsh", "env", "sudo", "wsl"})
_SCRIPTS: Final = frozenset({"node", "python", "python3", "deno", "bun", "ruby", "java", "dotnet", "uv", "poetry"})
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FLAG_OF_SECRET: Final = re.compile(
    r"--?[\w-]*(?:token|secret|passw|api[-_]?key|apikey|credential|access[-_]?key|auth|bearer|private[-_]?key)[\w-]*",
    re.IGNORECASE,
)
_SECRET: Final = re.compile(
    r"://[^/\s@]*:[^/\s@]+@"  # credentials in a URL
    r"|[?&](?:\w*(?:token|key|secret|passw\w*|sig))=[^&\s]+"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abposr]-[\w-]{10,}|\bA(?:KIA|SIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bey[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|-----BEGIN|\bBearer\s+\S+"
    r"|^(?=[^/]*[A-Za-z])(?=[^/]*[0-9])[A-Za-z0-9+_=-]{20,}$"  # long and random
    r"|^[A-Z][A-Z0-9_]*=\S"  # a variable that a program is given as an argument
    r"|(?i:\b\w*(?:token|secret|passw\w*|api_?key)\w*)\s*[=:]\s*\S+"
)
_OF_NPX: Final = frozenset({"-p", "--package", "-c", "--call", "-w", "--workspace"})
_OF_DOCKER: Final = frozenset((
    "-e", "--env", "--env-file", "-v", "--volume", "--mount", "-p", "--publish", "--name", "--network", "--net",
    "-w", "--workdir", "-u", "--user", "--platform", "--entrypoint", "-m", "--memory", "--cpus", "--label", "-l",
    "--hostname", "-h", "--add-host", "--cap-add", "--cap-drop", "--security-opt", "--device", "--gpus", "--pull",
    "--restart", "--shm-size", "--tmpfs", "--ulimit", "--runtime", "--pid", "--ipc", "--log-driver",
))  # fmt: skip
"""Options of `docker run` that take a value."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An entry that cannot become a driver, and why; the reason never holds a value of the entry."""

    why: str


def entries(path: Path) -> Iterator[tuple[str, Source | Unusable]]:
    """Yield name and source of each server of a configuration.

    Raises:
        UsageError: ``CLI-144``, the file cannot be read as one.
    """
    servers = _servers(path)
    if not servers:
        known = ", ".join(f"`{name}`" for name in TABLES)
        raise UsageError("CLI-144", f"{path} names no MCP server", f"give a file with one of {known}")
    if len(servers) > MAX_ENTRIES:
        raise UsageError("CLI-144", f"{path} names more than {MAX_ENTRIES} servers", "split it")
    for name, entry in servers.items():
        yield name, _converted(name, entry)


def _servers(path: Path) -> Mapping[str, Any]:
    data = options.read_file(path)
    try:
        text = data.decode("utf-8-sig")
        value = tomllib.loads(text) if path.suffix == ".toml" else jsontext.parse(_without_comments(text).encode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, jsontext.JsonTextError):
        # the parser's own message could quote a secret
        form = "TOML" if path.suffix == ".toml" else "JSON"
        raise UsageError("CLI-144", f"{path} is not {form} in UTF-8", "name a client's configuration") from None
    within = [value, value.get("mcp") if isinstance(value, dict) else None]
    for table in within:
        for name in TABLES:
            if isinstance(table, dict) and isinstance(table.get(name), dict):
                return dict(table[name])
    return {}


def _without_comments(text: str) -> str:
    """Return JSON with comments and trailing commas, as VS Code writes it, without both."""
    kept = re.sub(
        r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda found: found.group(1) or " ", text, flags=re.DOTALL
    )
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])', lambda found: found.group(1) or "", kept)


# --- one entry --------------------------------------------------------------------------------------------------------
def _converted(name: str, entry: Any) -> Source | Unusable:
    if not isinstance(entry, dict):
        return Unusable("it is not a table")
    if entry.get("url") or entry.get("serverUrl") or entry.get("type") in {"http", "sse"}:
        return Unusable("it is a remote server; write its DRIVER.md by hand (docs/driver-md.md)")
    command, args = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not command or not isinstance(args, list):
        return Unusable("it names no `command`")
    words = [str(one) for one in args]
    variables = entry.get("env", {})
    names = [str(one) for one in variables] if isinstance(variables, dict) else []
    program = Path(command).name.removesuffix(".exe").removesuffix(".cmd")
    if program in _SHELLS:
        return Unusable(f"`{program}` may start anything; name the server's own command")
    found = _RUNNERS.get(program)
    try:
        if found == "npm":
            made = _npm(words)
        elif found == "pip":
            made = _pip(program, words)
        elif found == "docker":
            made = _docker(words, names)
        elif program in _SCRIPTS:
            made = Unusable(f"`{program}` runs a script of this host; package it, or give it as a program")
        else:
            made = _program(command, words)
    except (SandboxError, ValueError):
        made = Unusable("it does not name a package, an image or a program of a known form")
    return made if isinstance(made, Unusable) else _finished(name, made, names)


def _finished(name: str, source: Source, names: list[str]) -> Source | Unusable:
    """Return the source with its variables, grants and notes, unless an argument looks like a secret."""
    if any("${" in word for word in source.args):
        return Unusable("an argument waits to be substituted by the client; write what it stands for")
    if _secret_in(source.args):
        return Unusable("an argument looks like a secret, and arguments are visible to every process; use a variable")
    odd = [one for one in (*names, *source.secrets) if not _VARIABLE.fullmatch(one)]
    if odd:
        return Unusable("the name of a variable is not a name")
    places = {word: os.path.realpath(Path(word).expanduser()) for word in source.args if _is_folder(word)}
    read = {path: path for path in places.values()}
    args = tuple(places.get(word, word) for word in source.args)
    notes = [*source.notes]
    if read:
        notes.append("Folders of its arguments are granted for reading; move a grant to `write` where it has to write.")
    secrets = tuple(dict.fromkeys((*source.secrets, *names)))
    return Source(
        source.kind, source.name, source.program, args, secrets, read, source.write, label=name, notes=tuple(notes)
    )


def _is_folder(word: str) -> bool:
    return word.startswith(("/", "~/")) and Path(word).expanduser().is_dir()


def _secret_in(args: tuple[str, ...]) -> bool:
    for before, word in zip(("", *args), args, strict=False):
        named = _FLAG_OF_SECRET.fullmatch(before) and not word.startswith("-")
        joined = "=" in word and _FLAG_OF_SECRET.fullmatch(word.partition("=")[0])
        if named or joined or _SECRET.search(word):
            return True
    return False


def _npm(words: list[str]) -> Source | Unusable:
    package, rest = "", list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in {"-p", "--package"} and rest:
            package = rest.pop(0)
        elif word.startswith("--package="):
            package = word.partition("=")[2]
        elif word in _OF_NPX:
            return Unusable(f"`{word}` of npx is not carried over")
    if rest and not package:
        package = rest.pop(0)
    elif rest:
        rest.pop(0)  # the program of a package that `-p` named: its `bin` is run
    return Source("npm", npm_package(untagged(package)), args=tuple(rest)) if package else Unusable("no package")


def _pip(program: str, words: list[str]) -> Source | Unusable:
    package, rest = "", list(words)
    if program == "pipx" and rest[:1] == ["run"]:
        rest.pop(0)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in {"--from", "--spec"} and rest:
            package = rest.pop(0)
        elif word in {"--python", "-p"} and rest:
            rest.pop(0)
        elif word in {"--with", "--index-url", "--default-index", "--index", "--extra-index-url", "-i"}:
            return Unusable(f"`{word}` is not carried over")
    if not rest:
        return Unusable("no package")
    program_, _, version = rest.pop(0).partition("@")
    wanted = package or (f"{program_}=={version}" if version not in {"", "latest"} else program_)
    return Source("pip", pip_package(wanted), program=program_, args=tuple(rest))


def _docker(words: list[str], names: list[str]) -> Source | Unusable:
    if words[:1] == ["container"]:
        words = words[1:]
    if words[:1] != ["run"]:
        return Unusable("only `docker run` starts a server")
    rest, variables, notes = words[1:], [], []
    while rest and rest[0].startswith("-"):
        word, equals, value = rest.pop(0).partition("=")
        if word in _OF_DOCKER and not equals and rest:
            value = rest.pop(0)
        if word in {"-e", "--env"}:
            variables.append(value.partition("=")[0])
        elif word in {"-v", "--volume", "--mount"}:
            notes.append("A folder that docker mounted is not granted: name it under `sandbox.fs` if it is needed.")
        elif word == "--env-file":
            return Unusable("a file of variables is not read; list them as `env`")
    if not rest:
        return Unusable("no image")
    image = image_reference(rest.pop(0))
    kept = tuple(dict.fromkeys(one for one in variables if one not in names))
    return Source("docker", image, args=tuple(rest), secrets=kept, notes=tuple(dict.fromkeys(notes)))


def _program(command: str, words: list[str]) -> Source | Unusable:
    path = Path(command).expanduser()
    if "/" not in command or not path.is_file():
        return Unusable("its program is not at a path of this host")
    return Source("binary", os.path.realpath(path), args=tuple(words))
