"""Resolves the slugs of SECRETS.md (AIP-19) to values at launch, and nowhere else.

Where a value comes from is the operator's to say, never the driver's: a driver folder is untrusted, and a ``backend``
of its own choosing (``file:///…``, a command) would be a way to read this host. Without an entry in the operator's
``secrets.toml`` the only source are the environment variables that SECRETS.md names, which the reviewer sees there.
Sources::

    ["github-token"]
    env = "GH_TOKEN"                       # another variable
    file = "~/.config/tokens/github"       # a regular file, not readable by others
    keyring = "github/alice"               # service/user in the operating system's keyring (extra `keyring`)
    command = ["pass", "show", "github"]   # stdout without its last newline; an argv list, no shell

Values live in memory only. They are never in argv, labels, plans, records or messages.
"""

from __future__ import annotations

import os
import stat
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.errors import PlanRefused, UsageError
from sandbox.limits import KIB
from sandbox.spec.model import Secret

MAX_SECRET_BYTES: Final = 64 * KIB
"""One value; environment entries of the kernel end at 128 KiB."""

COMMAND_TIMEOUT: Final = 30.0
"""Seconds that a command may take; a password manager may have to ask a person."""

KINDS: Final = ("env", "file", "keyring", "command")

Sources = Mapping[str, Mapping[str, Any]]


def load_sources(path: Path) -> Sources:
    """Return the operator's sources; an absent file has none.

    Raises:
        UsageError: ``SEC-001``, the file is not valid or can be changed by others.
    """
    if not path.exists():
        return {}
    mode = path.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError("SEC-001", f"{path} can be changed by others", f"run `chmod go-w {path}`")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("SEC-001", f"{path} is not valid TOML: {error}", "correct it") from None
    for slug, source in table.items():
        if not isinstance(source, dict) or len(source) != 1 or next(iter(source)) not in KINDS:
            raise UsageError("SEC-001", f"{path}: `{slug}` needs exactly one of {', '.join(KINDS)}", "correct it")
    return table


def resolve(
    slugs: Iterable[str], secrets: Iterable[Secret], sources: Sources, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return slug → value for every slug that a plan needs.

    Args:
        slugs: from the plan's environment.
        secrets: the driver's SECRETS.md.
        sources: the operator's, from :func:`load_sources`.
        environ: the environment of whoever runs this.

    Raises:
        PlanRefused: ``SEC-002``, no source has a value; ``SEC-003``, a source failed or gave something unusable.
    """
    named = {secret.slug: secret for secret in secrets}
    return {slug: _checked(slug, _fetch(slug, named.get(slug), sources, environ)) for slug in slugs}


def _fetch(slug: str, secret: Secret | None, sources: Sources, environ: Mapping[str, str]) -> str:
    if slug in sources:
        kind, argument = next(iter(sources[slug].items()))
        return _FETCHERS[kind](slug, argument, environ)
    variables = secret.env_names if secret is not None else ()
    found = next((environ[variable] for variable in variables if variable in environ), None)
    if found is not None:
        return found
    shown = ", ".join(f"`{variable}`" for variable in variables) or "none that SECRETS.md names"
    raise PlanRefused(
        "SEC-002",
        f"secret `{slug}` has no value: of the environment variables {shown} none is set",
        f"set {shown}, or name a source for `{slug}` in secrets.toml",
    )


def _from_env(slug: str, argument: Any, environ: Mapping[str, str]) -> str:
    if argument not in environ:
        raise PlanRefused("SEC-002", f"secret `{slug}`: the environment variable `{argument}` is not set", "set it")
    return environ[argument]


def _from_file(slug: str, argument: Any, environ: Mapping[str, str]) -> str:  # noqa: ARG001 - one signature for all
    path = Path(str(argument)).expanduser()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_mode & (stat.S_IRGRP | stat.S_IROTH):
                raise _failed(slug, f"{path} is not a regular file that only its owner reads")
            return file.read(MAX_SECRET_BYTES + 1).decode("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _failed(slug, str(error)) from None


def _from_keyring(slug: str, argument: Any, environ: Mapping[str, str]) -> str:  # noqa: ARG001
    try:
        import keyring  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise _failed(slug, "the package `keyring` is not installed (extra `keyring`)") from None
    service, _, user = str(argument).rpartition("/")
    value = keyring.get_password(service, user)
    if value is None:
        raise PlanRefused("SEC-002", f"secret `{slug}`: the keyring has nothing for `{argument}`", "store it there")
    return str(value)


def _from_command(slug: str, argument: Any, environ: Mapping[str, str]) -> str:
    if not isinstance(argument, list) or not all(isinstance(part, str) for part in argument) or not argument:
        raise _failed(slug, "`command` must be a list of words")
    try:
        done = subprocess.run(
            argument,
            check=True,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=dict(environ),
            timeout=COMMAND_TIMEOUT,
        )
        return done.stdout.decode("utf-8").removesuffix("\n")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise _failed(slug, f"`{argument[0]}` failed ({type(error).__name__})") from None


_FETCHERS: Final = {"env": _from_env, "file": _from_file, "keyring": _from_keyring, "command": _from_command}


def _failed(slug: str, why: str) -> PlanRefused:
    return PlanRefused("SEC-003", f"secret `{slug}`: {why}", "correct its source in secrets.toml")


def _checked(slug: str, value: str) -> str:
    if not value or "\0" in value or len(value.encode()) > MAX_SECRET_BYTES:
        raise _failed(slug, f"the value is empty, holds NUL or is longer than {MAX_SECRET_BYTES} bytes")
    return value
