"""Environment variables that a driver may give its server: names, values, references to secrets.

Steps for each variable:

1. the name is a portable one (POSIX XBD 8.1) and none that decides which code runs (``CODE_NAMES``, probe D03);
2. the value is one line without NUL;
3. ``${secrets.NAME}`` stands alone and names a slug of SECRETS.md (AIP-19); it becomes ``${secrets.<slug>}``;
4. anything else in ``${…}`` is refused: facts about a tenant or a user belong into the arguments of a call and never
   into a process (S0-71, AIP-32 §Security considerations).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sandbox.limits import KIB
from sandbox.spec.model import Secret
from sandbox.spec.report import Source, join
from sandbox.spec.shape import closest

MAX_VALUE_CHARS: Final = 32 * KIB
"""One value; Linux refuses one string above 128 KiB."""

MAX_VARIABLES: Final = 256
"""Variables of one server."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_REFERENCE: Final = re.compile(r"\$\{secrets\.([A-Za-z0-9_/-]+)\}")
_CALLER: Final = re.compile(r"\$\{\s*(?:tenant|user|caller|context|session|request|input|claims?)\b", re.IGNORECASE)
_CALLER_NAME: Final = re.compile(r"(?:^|_)(?:TENANT|ORG|ORGANI[SZ]ATION|CUSTOMER|USER)_ID$", re.IGNORECASE)
_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|PRIVATE_KEY)$", re.IGNORECASE
)

CODE_PREFIXES: Final[dict[str, str]] = {
    "LD_": "it steers the dynamic loader",
    "DYLD_": "it steers the dynamic loader",
    "BASH_FUNC_": "it defines shell functions",
    "NPM_CONFIG_": "it configures npm, which is not in the run phase",
    "PIP_": "it configures pip, which is not in the run phase",
    "GIT_CONFIG": "it makes git run programs",
    "DOCKER_": "it points at a container engine",
}
"""Beginnings of names that decide which code runs, compared without regard to case, with the reason."""

CODE_NAMES: Final[dict[str, str]] = {
    "PATH": "it decides which programs run; the image sets it",
    "IFS": "it changes how shells read",
    "ENV": "shells run the file it names",
    "BASH_ENV": "shells run the file it names",
    "SHELLOPTS": "it changes how shells read",
    "BASHOPTS": "it changes how shells read",
    "PS4": "shells expand it as code",
    "PROMPT_COMMAND": "shells run it",
    "NODE_OPTIONS": "Node.js loads code by it",
    "NODE_PATH": "Node.js loads code from it",
    "NODE_REPL_EXTERNAL_MODULE": "Node.js loads code by it",
    "NODE_TLS_REJECT_UNAUTHORIZED": "it switches certificate checks off",
    "PYTHONSTARTUP": "Python runs the file it names",
    "PYTHONPATH": "Python loads code from it",
    "PYTHONHOME": "Python loads code from it",
    "PYTHONINSPECT": "it opens an interpreter",
    "PYTHONBREAKPOINT": "Python loads code by it",
    "PYTHONUSERBASE": "Python loads code from it",
    "PYTHONHTTPSVERIFY": "it switches certificate checks off",
    "PERL5OPT": "Perl loads code by it",
    "PERL5LIB": "Perl loads code from it",
    "PERL5DB": "Perl runs it",
    "RUBYOPT": "Ruby loads code by it",
    "RUBYLIB": "Ruby loads code from it",
    "JAVA_TOOL_OPTIONS": "Java loads code by it",
    "_JAVA_OPTIONS": "Java loads code by it",
    "JDK_JAVA_OPTIONS": "Java loads code by it",
    "CLASSPATH": "Java loads code from it",
    "GCONV_PATH": "the C library loads code from it",
    "GLIBC_TUNABLES": "it changes the C library's defences",
    "MALLOC_CONF": "it changes the allocator",
    "GIT_SSH": "git runs it",
    "GIT_SSH_COMMAND": "git runs it",
    "GIT_EXTERNAL_DIFF": "git runs it",
    "GIT_PROXY_COMMAND": "git runs it",
    "GIT_ASKPASS": "git runs it",
    "GIT_EXEC_PATH": "git runs programs from it",
    "GIT_TEMPLATE_DIR": "git runs hooks from it",
    "SSLKEYLOGFILE": "it writes the keys of encrypted connections to a file",
    "OPENSSL_CONF": "OpenSSL loads code by it",
    "OPENSSL_ENGINES": "OpenSSL loads code from it",
    "CONTAINER_HOST": "it points at a container engine",
}
"""Names that decide which code runs or switch a defence off, with the reason."""


def convention(slug: str) -> str:
    """Return the variable that AIP-19 derives from a slug: ``STRIPE_API_KEY`` for ``billing/stripe-api-key``."""
    return slug.rpartition("/")[2].upper().replace("-", "_")


def declared(secret: Secret) -> list[str]:
    """Return the variables that SECRETS.md binds to a slug itself."""
    return [name for name in secret.env_names if name != convention(secret.slug)]


class Inventory:
    """The slugs of SECRETS.md, and the names under which ``${secrets.NAME}`` finds them.

    Args:
        secrets: from :mod:`sandbox.spec.secrets`; a name belongs to one slug only.
    """

    def __init__(self, secrets: tuple[Secret, ...] = ()) -> None:
        self.secrets = secrets
        by_letters: dict[str, list[str]] = {}
        for secret in secrets:
            by_letters.setdefault(convention(secret.slug), []).append(secret.slug)
        self._slugs = {name: slugs[0] for name, slugs in by_letters.items() if len(slugs) == 1}
        self._slugs.update({name: secret.slug for secret in secrets for name in declared(secret)})
        self._slugs.update({secret.slug: secret.slug for secret in secrets})

    def slug(self, name: str) -> str | None:
        """Return the slug of a name: a slug, a name it is bound to, or its own letters, unless two slugs share them."""
        return self._slugs.get(name)

    def names(self) -> list[str]:
        """Return every name that is known, for messages."""
        return sorted(self._slugs)


def variables(source: Source, path: str, block: Mapping[str, str], inventory: Inventory) -> dict[str, str]:
    """Return checked variables with references resolved to slugs (steps 1–4); wrong ones are reported and left out."""
    if len(block) > MAX_VARIABLES:
        source.error(
            "SPEC-045", path, "there are too many variables", allowed=f"at most {MAX_VARIABLES}", mend="remove some"
        )
    found: dict[str, str] = {}
    for name, value in block.items():
        place = join(path, name)
        checked = value_of(source, place, value, inventory)
        if name_of(source, place, name) and checked is not None:
            _lint(source, place, name, value)
            found[name] = checked
    return found


def name_of(source: Source, path: str, name: str) -> bool:
    """Report a name that may not be given to a server (step 1), and return whether it may."""
    if not _NAME.fullmatch(name):
        source.error(
            "SPEC-076",
            path,
            "this is not the name of an environment variable",
            found=name,
            allowed="letters, digits and `_`, not beginning with a digit",
            mend="correct the name",
        )
        return False
    upper = name.upper()
    reason = CODE_NAMES.get(upper) or next((why for start, why in CODE_PREFIXES.items() if upper.startswith(start)), "")
    if reason:
        source.error(
            "SPEC-077",
            path,
            f"`{name}` may not be set: {reason}",
            mend="remove it, or give the server an argument instead",
        )
    return not reason


def value_of(source: Source, path: str, value: str, inventory: Inventory) -> str | None:
    """Return a checked value, its reference resolved (steps 2–4); report a wrong one and return ``None``."""
    if "\n" in value or "\t" in value or len(value) > MAX_VALUE_CHARS:
        source.error(
            "SPEC-078",
            path,
            "the value has a line break or tab, or is too long",
            allowed=f"one line of at most {MAX_VALUE_CHARS} characters",
            mend="shorten it; hand long values over as a secret file",
        )
        return None
    if "${" not in value:
        return value
    if _CALLER.search(value):
        source.error(
            "SPEC-079",
            path,
            "facts about a tenant or user may not be bound to the process: callers would share them (AIP-32, S0-71)",
            mend="inject them into each call with `implements[].metadata.mcp.context`",
        )
        return None
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        source.error(
            "SPEC-080",
            path,
            "only `${secrets.NAME}` is substituted, and only as the whole value",
            mend="make the whole value one secret, or write it without `${`",
        )
        return None
    return _resolve(source, path, reference.group(1), inventory)


def _resolve(source: Source, path: str, name: str, inventory: Inventory) -> str | None:
    slug = inventory.slug(name)
    if slug is None:
        near = closest(name, inventory.names())
        source.error(
            "SPEC-081",
            path,
            f"no slug of SECRETS.md is called `{name}`",
            allowed=", ".join(inventory.names()[:20]),
            mend=f"write `${{secrets.{near}}}`, or add the slug" if near else "add the slug to SECRETS.md",
        )
        return None
    return f"${{secrets.{slug}}}"


def _lint(source: Source, path: str, name: str, value: str) -> None:
    if "${" not in value and value and _SECRET_NAME.search(name):
        source.warn(
            "SPEC-082",
            path,
            f"`{name}` looks like a secret and has a literal value; everybody who reads the folder knows it",
            mend="put a slug into SECRETS.md and write `${secrets.NAME}`",
        )
    if _CALLER_NAME.search(name):
        source.warn(
            "SPEC-083",
            path,
            f"`{name}` looks like a fact about one tenant or user, which every caller of this process would share",
            mend="inject it into each call with `implements[].metadata.mcp.context`",
        )
