"""Reads where the user's npm fetches from, so that a build container asks the same registry with the same rights.

Only what concerns fetching is taken over: the registry, those of scopes, their credentials, proxies and certificates.
Nothing that changes what npm does to packages (scripts, hooks, prefixes) has an effect, because nothing else is
passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import UsageError

GLOBAL_FILES: Final = ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc")
"""Where npm keeps its global configuration, by the prefix that it was installed with."""

_KEYS: Final = frozenset({"registry", "proxy", "https-proxy", "noproxy", "cafile", "strict-ssl"})
_SCOPE: Final = re.compile(r"@[^:\s]+:registry")
_CREDENTIAL: Final = re.compile(r"//\S+:(_authToken|_auth|username|_password)")
_VARIABLE: Final = re.compile(r"\$\{([^}?]+)(\?)?\}")


@dataclass(frozen=True, slots=True)
class NpmSettings:
    """What a build container's npm is told.

    Attributes:
        values: npm keys that concern fetching; credentials among them, never to be shown or stored.
    """

    values: Mapping[str, str]

    @property
    def registry(self) -> str:
        """The configured registry, empty when npm's own default holds."""
        return self.values.get("registry", "")

    @property
    def cafiles(self) -> tuple[str, ...]:
        """Files with further certificates."""
        return (self.values["cafile"],) if self.values.get("cafile") else ()

    def npmrc(self) -> bytes:
        """Return a configuration file for the container."""
        kept = {name: value for name, value in self.values.items() if name not in {"cafile", "strict-ssl"}}
        return "".join(f"{name}={value}\n" for name, value in sorted(kept.items())).encode()


def load(environ: Mapping[str, str]) -> NpmSettings:
    """Return the user's settings: global files, the user's file, the environment; later ones over earlier ones.

    Raises:
        UsageError: ``INST-011``, certificates are not checked, or a variable in a file is not set.
    """
    home = Path(environ.get("HOME") or "/")
    user = Path(environ.get("NPM_CONFIG_USERCONFIG") or environ.get("npm_config_userconfig") or home / ".npmrc")
    values: dict[str, str] = {}
    for file in [*(Path(path) for path in GLOBAL_FILES), user]:
        if file.is_file():
            values |= dict(_parse(file.read_text("utf-8", "replace"), environ, file))
    for name, value in environ.items():
        key = name.lower().removeprefix("npm_config_").replace("_", "-")
        if name.lower().startswith("npm_config_") and key in _KEYS and value:
            values[key] = value
    if values.get("strict-ssl", "true") == "false":
        raise UsageError(
            "INST-011", "npm is configured with strict-ssl=false", "remove it; name your authority in cafile"
        )
    return NpmSettings(values)


def _parse(text: str, environ: Mapping[str, str], file: Path) -> Iterator[tuple[str, str]]:
    """Yield the wanted settings of an npmrc file (npmrc(5): ini, ``${VARIABLE}`` replaced)."""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in ";#[" or "=" not in stripped:
            continue
        name, _, value = (part.strip() for part in stripped.partition("="))
        if name in _KEYS or _SCOPE.fullmatch(name) or _CREDENTIAL.fullmatch(name):
            yield name, _VARIABLE.sub(lambda match: _expand(match, environ, file), value.strip("\"'"))


def _expand(match: re.Match[str], environ: Mapping[str, str], file: Path) -> str:
    name, optional = match[1], match[2]
    if name not in environ and not optional:
        raise UsageError(
            "INST-011", f"{file} uses ${{{name}}}, which is not set", "set the variable or remove the line"
        )
    return environ.get(name, "")
