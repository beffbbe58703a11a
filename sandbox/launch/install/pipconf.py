"""Reads where the user's pip fetches from, by asking pip, so that a build container's uv asks the same index.

Local folders (``find-links``, ``file:`` indexes) mean nothing inside a container and are left out with a word to the
user. Settings that switch checks off are refused.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sandbox.errors import PlatformError, UsageError
from sandbox.launch.images.wheels import pip_command

PIP_SECONDS: Final = 60.0
"""For pip to print its configuration (seconds)."""

_SECTIONS: Final = ("global", "install", "download", ":env:")
"""Of pip's configuration, later ones over earlier ones."""


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What a build container's uv is told; addresses may hold credentials and are never shown or stored.

    Attributes:
        index: the index, empty when uv's own default holds.
        extra: further indexes, asked first to last, each package from the first that has it.
        links: pages with links to files.
        proxy: for all of them, empty for none.
        cert: file with certificates, empty for none.
    """

    index: str = ""
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    proxy: str = ""
    cert: str = ""

    def environment(self) -> dict[str, str]:
        """Return uv's environment variables."""
        given = {
            "UV_DEFAULT_INDEX": self.index,
            "UV_INDEX": " ".join(self.extra),
            "UV_FIND_LINKS": " ".join(self.links),
            "ALL_PROXY": self.proxy,
        }
        return {name: value for name, value in given.items() if value}


def load(environ: Mapping[str, str] = os.environ, left_out: Callable[[str], None] = lambda _: None) -> PipSettings:
    """Return the user's settings.

    Args:
        environ: passed to pip.
        left_out: told of each setting that has no meaning in a container.

    Raises:
        UsageError: ``INST-012``, pip is told not to check certificates or to use no index, or cannot be asked.
    """
    values = _values(environ)
    for name in ("trusted-host", "no-index"):
        if values.get(name) not in {None, "", "false", "0"}:
            raise UsageError(
                "INST-012", f"pip is configured with {name}", f"remove it (`pip config unset global.{name}`)"
            )
    extra = _remote("extra-index-url", values, left_out)
    links = _remote("find-links", values, left_out)
    index = _remote("index-url", values, left_out)
    return PipSettings(
        index=index[0] if index else "",
        extra=extra,
        links=links,
        proxy=values.get("proxy", ""),
        cert=values.get("cert", ""),
    )


def _values(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's merged configuration by long option name, empty where there is no pip."""
    try:
        command = [*pip_command(), "config", "list"]
    except PlatformError:
        return {}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=dict(environ), timeout=PIP_SECONDS, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError("INST-012", f"pip cannot be asked for its configuration: {error}", "repair pip") from None
    if done.returncode:
        return {}  # no pip: nothing is configured
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in done.stdout.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.partition(".")
        if equals and section in found:
            found[section][key] = str(ast.literal_eval(value))
    return {key: value for section in _SECTIONS for key, value in found[section].items()}


def _remote(name: str, values: Mapping[str, str], left_out: Callable[[str], None]) -> tuple[str, ...]:
    """Return the addresses of a setting that a container can reach."""
    found = []
    for address in values.get(name, "").split():
        if address.startswith("https://"):
            found.append(address)
        elif address.startswith("http://"):
            raise UsageError("INST-012", f"pip's {name} is not https", "use an index with https")
        else:
            left_out(f"pip's {name} names a folder of this host, which build containers do not see")
    return tuple(found)
