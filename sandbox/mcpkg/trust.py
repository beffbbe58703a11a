"""The operator's trust store: which key is whose, and for which tools.

A TOML file, ``publishers.toml`` among this person's settings::

    signatures = "require"             # optional: what installs demand unless they say otherwise (`warn`)

    [[publisher]]
    id = "stripe"
    key = "<base64 of 32 bytes>"       # several entries with one id: several keys
    tools = ["stripe.*"]               # optional; a trailing `.*` stands for everything below

    [[publisher]]
    id = "acme"
    identity = "release@acme.example"  # instead of a key: who a Sigstore certificate names,
    issuer = "https://login.example"   # and who said so; both have to be right
"""

from __future__ import annotations

import base64
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sandbox.errors import UsageError

Mode = Literal["require", "warn", "off"]
"""What is demanded of signatures: a trusted one, a warning where there is none, nothing."""

MODES: Final[tuple[Mode, ...]] = ("require", "warn", "off")
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Publisher:
    """One key, or one Sigstore identity with its issuer, of one publisher."""

    id: str
    key: str = ""
    tools: tuple[str, ...] = ("*",)
    identity: str = ""
    issuer: str = ""

    def may_publish(self, tool_id: str) -> bool:
        """Return whether the key counts for a tool."""
        return any(
            rule in (tool_id, "*") or (rule.endswith(".*") and tool_id.startswith(rule[:-1])) for rule in self.tools
        )


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Everything that the operator vouches for; empty when there is no file.

    Attributes:
        demand: what is demanded of signatures where a command does not say.
        sigstore_root: path of a ``trusted_root.json``; empty for the one that the ``sigstore`` package carries.
    """

    publishers: tuple[Publisher, ...] = ()
    demand: Mode = "warn"
    sigstore_root: str = ""

    def vouches(self, publisher: str, key: str, tool_id: str) -> bool:
        """Return whether a key is this publisher's, for this tool."""
        return any(
            entry.id == publisher and entry.key != "" and entry.key == key and entry.may_publish(tool_id)
            for entry in self.publishers
        )

    def knows(self, publisher: str) -> bool:
        """Return whether there is any key of this publisher."""
        return any(entry.id == publisher for entry in self.publishers)


def load_trust(path: Path) -> TrustStore:
    """Return the trust store at a path; an absent file is an empty one.

    Raises:
        UsageError: ``PKG-023``, the file is not one.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return TrustStore()
    except (OSError, ValueError) as error:
        raise UsageError("PKG-023", f"{path} cannot be read: {error}", "write it as docs/mcpkg.md shows") from None
    entries, demand = values.get("publisher", []), values.get("signatures", "warn")
    root = values.get("sigstore-root", "")
    if set(values) - {"publisher", "signatures", "sigstore-root"} or not isinstance(entries, list):
        raise _wrong(path, "it holds something other than `signatures`, `sigstore-root` and [[publisher]] entries")
    if not isinstance(root, str):
        raise _wrong(path, "`sigstore-root` is no path")
    if demand not in MODES:
        raise _wrong(path, f"`signatures` is none of {', '.join(MODES)}")
    return TrustStore(tuple(_publisher(path, entry) for entry in entries), demand, root)


def _publisher(path: Path, entry: Any) -> Publisher:
    known = {"id", "key", "tools"}, {"id", "identity", "issuer", "tools"}
    if not isinstance(entry, dict) or not any(all_ - {"tools"} <= set(entry) <= all_ for all_ in known):
        raise _wrong(path, "an entry has `id` and `key`, or `id`, `identity` and `issuer`, and perhaps `tools`")
    tools = entry.get("tools", ["*"])
    texts = [*(value for name, value in entry.items() if name != "tools")]
    texts += tools if isinstance(tools, list) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise _wrong(path, "an entry holds something other than text")
    if "key" in entry and _size(entry["key"]) != _KEY_BYTES:
        raise _wrong(path, f"the key of `{entry['id'][:80]}` is not base64 of {_KEY_BYTES} bytes")
    return Publisher(
        entry["id"], entry.get("key", ""), tuple(tools), entry.get("identity", ""), entry.get("issuer", "")
    )


def _size(key: str) -> int:
    try:
        return len(base64.b64decode(key, validate=True))
    except ValueError:
        return 0


def _wrong(path: Path, why: str) -> UsageError:
    return UsageError("PKG-023", f"{path} is no trust store: {why}", "write it as docs/mcpkg.md shows")
