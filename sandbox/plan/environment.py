"""The server's environment: complete, explicit, and without anything of the host that the ceiling does not name.

The image's own variables are listed one by one in the plan; those the ceiling forbids are left out (a backend
unsets every variable that the plan does not set). A later source never replaces an earlier one silently, except for
the plan's own values over the image's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sandbox.plan.baseline import CA_TARGET
from sandbox.plan.model import EnvEntry
from sandbox.plan.paths import inside, tidy
from sandbox.policy.ceiling_values import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from sandbox.plan.draft import Draft

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path when the image has none; what the engines themselves use."""

TMP: Final = "/tmp"  # noqa: S108 - a path inside the sandbox
"""The one place a server without write grants can write to; HOME and TMPDIR point there."""

FIXED: Final = {"HOME": TMP, "TMPDIR": TMP}
"""Set by the plan over the image; a driver may set them itself."""

CA_VARIABLES: Final = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
"""How OpenSSL, Node.js and Python's requests find it."""

MORE_CA_VARIABLES: Final = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CERT", "DENO_CERT")
"""How further programs find it, where the egress broker ends TLS to put a secret in."""

MAX_VALUE_BYTES: Final = 32 * 1024
"""One variable; the kernel's own bound of one string is 128 KiB (MAX_ARG_STRLEN)."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SECRET: Final = re.compile(r"\$\{secrets\.([A-Za-z0-9_./\-]{1,128})\}")
_SUBSTITUTION: Final = re.compile(r"\$\{[^}]*\}?")


def environment(draft: Draft) -> tuple[EnvEntry, ...]:
    """Return every variable of the server, by name.

    Steps: 1 image, 2 the plan's own, 3 the driver's, 4 what passes from the host, 5 the CA bundle; each checks its
    names.
    """
    # 1. the image's
    found = {entry.name: entry for entry in _image_entries(draft)}
    # 2. the plan's own
    for name, value in FIXED.items():
        found[name] = EnvEntry(name, value)
        draft.because(f"env.{name}", value, "the writable place", "baseline")
    if "PATH" not in found:
        found["PATH"] = EnvEntry("PATH", PATH)
        draft.because("env.PATH", PATH, "the image has none", "baseline")
    # 3. the driver's
    driver: dict[str, EnvEntry] = {}
    for field, values in (("server.env", _server_env(draft)), ("sandbox.env.set", draft.spec.sandbox.env.fixed)):
        for entry in _driver_entries(draft, field, values):
            _put(draft, driver, entry, f"{field}.{entry.name}")
            draft.because(f"env.{entry.name}", _shown(entry), "set by the driver", draft.at(f"{field}.{entry.name}"))
    found |= driver
    # 4. from the host
    for entry, field in _passed(draft):
        _put(draft, driver, entry, field)
        found[entry.name] = entry
    # 5. the CA bundle
    if _substituted(draft):
        for name in (*CA_VARIABLES, *MORE_CA_VARIABLES):
            found[name] = EnvEntry(name, CA_TARGET)
            draft.because(f"env.{name}", CA_TARGET, "the authority of this sandbox, beside the host's", "SECRETS.md")
    elif draft.spec.sandbox.trust_host_ca and draft.ceiling.host_ca:
        for name in CA_VARIABLES:
            found.setdefault(name, EnvEntry(name, CA_TARGET))
            draft.because(f"env.{name}", CA_TARGET, "the host's CA bundle", draft.at("sandbox.trust_host_ca"))
    _search_path(draft, found["PATH"])
    return tuple(found[name] for name in sorted(found))


def _substituted(draft: Draft) -> bool:
    """Return whether the server sees a placeholder of some secret."""
    return any(
        exposure.get("kind") == "egress-substitute" for secret in draft.spec.secrets for exposure in secret.exposures
    )


def _image_entries(draft: Draft) -> Iterator[EnvEntry]:
    """Yield the image's variables, except what the plan sets anyway and what the ceiling never sets."""
    for name, value in (draft.host.image.env if draft.host.image else {}).items():
        forbidden = listed(draft.ceiling.env_never, name)
        if forbidden or not _well_formed(name, value):
            why = forbidden.reason if forbidden else "its name or value is not well formed"
            draft.because(f"env.{name}", "unset", f"from the image, left out: {why}", _source(forbidden))
        elif name not in FIXED:
            draft.because(f"env.{name}", value, "from the image", f"image {_image_name(draft)}")
            yield EnvEntry(name, value, origin="image")


def _server_env(draft: Draft) -> Mapping[str, str]:
    values: Mapping[str, str] = getattr(draft.spec.server, "env", {})
    return values


def _image_name(draft: Draft) -> str:
    return draft.host.image.named if draft.host.image else ""


def _source(entry: object) -> str:
    return str(getattr(entry, "source", "baseline"))


def _shown(entry: EnvEntry) -> str:
    return f"secret {entry.secret}" if entry.secret else entry.value


def _well_formed(name: str, value: str) -> bool:
    return _NAME.fullmatch(name) is not None and "\0" not in value and len(value.encode()) <= MAX_VALUE_BYTES


def _driver_entries(draft: Draft, field: str, values: Mapping[str, str]) -> Iterator[EnvEntry]:
    """Yield a driver's variables; refuse names and values that may not be."""
    for name, value in values.items():
        path = f"{field}.{name}"
        forbidden = listed(draft.ceiling.env_never, name)
        if not _well_formed(name, value):
            allowed = f"letters, digits and _; no NUL; at most {MAX_VALUE_BYTES} bytes"
            draft.refuse(
                "PLAN-040", path, "not a usable variable", found=ascii(name), allowed=allowed, mend="correct it"
            )
        elif forbidden:
            allowed = f"not {forbidden.value}: {forbidden.reason} ({forbidden.source})"
            draft.refuse("PLAN-041", path, "this variable is never set", found=name, allowed=allowed, mend="remove it")
        else:
            yield _resolved(draft, path, name, value)


def _resolved(draft: Draft, path: str, name: str, value: str) -> EnvEntry:
    """Return the entry of one driver variable; ``${secrets.SLUG}`` stands for a secret and must be the whole value."""
    secret = _SECRET.fullmatch(value)
    if secret:
        _check_secret(draft, path, secret[1])
        return EnvEntry(name, secret=secret[1], origin="driver")
    other = _SUBSTITUTION.search(value)
    if other:
        mend = "give the whole value as ${secrets.SLUG}, or write it out"
        message = "a substitution is not understood"
        draft.refuse("PLAN-044", path, message, found=other[0], allowed="${secrets.SLUG} as the whole value", mend=mend)
    return EnvEntry(name, value, origin="driver")


def _check_secret(draft: Draft, path: str, slug: str) -> None:
    declared = tuple(secret.slug for secret in draft.spec.secrets)
    if slug not in declared:
        allowed = ", ".join(declared) or "none is declared"
        draft.refuse(
            "PLAN-045", path, "the secret is not declared", found=slug, allowed=allowed, mend="add it to SECRETS.md"
        )
    elif slug not in draft.host.secrets:
        mend = "provide it to one of the configured secret resolvers"
        draft.refuse("PLAN-046", path, "no resolver of this host knows the secret", found=slug, mend=mend)


def _put(draft: Draft, found: dict[str, EnvEntry], entry: EnvEntry, field: str) -> None:
    """Add an entry; refuse two values for one name."""
    before = found.setdefault(entry.name, entry)
    if (before.value, before.secret) != (entry.value, entry.secret):
        mend = "set it in one place"
        draft.refuse("PLAN-043", field, "the variable is set twice, differently", found=entry.name, mend=mend)


def _passed(draft: Draft) -> Iterator[tuple[EnvEntry, str]]:
    """Yield the host's variables that the driver asks for and the ceiling lets through."""
    origin: Literal["host"] = "host"
    for index, name in enumerate(draft.spec.sandbox.env.passed):
        field = f"sandbox.env.pass[{index}]"
        allowed = listed(draft.ceiling.env_pass, name)
        if allowed is None or listed(draft.ceiling.env_never, name):
            names = ", ".join(entry.value for entry in draft.ceiling.env_pass) or "none"
            mend = "give credentials as secrets, other values under sandbox.env.set"
            message = "the variable may not be passed from the host"
            limit = f"{names} ({draft.ceiling.where('env.pass')})"
            draft.refuse("PLAN-042", field, message, found=name, allowed=limit, mend=mend)
        elif name not in draft.host.passed_env:
            draft.because(f"env.{name}", "not set", "the host has no such variable", draft.at(field))
        elif not _well_formed(name, draft.host.passed_env[name]):
            draft.refuse("PLAN-040", field, "the host's value is not usable", found=ascii(name), mend="correct it")
        else:
            yield EnvEntry(name, draft.host.passed_env[name], origin=origin), field
            draft.because(f"env.{name}", "the host's value", allowed.reason, draft.at(field))


def _search_path(draft: Draft, path: EnvEntry) -> None:
    """Refuse a PATH that finds programs in a place the server can write to, or relative to where it happens to be."""
    writable = [TMP, *(grant.at for grant in draft.spec.sandbox.fs.write)]
    for entry in path.value.split(":"):
        if not tidy(entry.rstrip("/") or entry) or any(inside(entry, place) for place in writable):
            field = "server.env.PATH" if path.origin == "driver" else "server"
            message = "PATH finds programs in a relative or writable place"
            mend = "take this entry out of PATH" + (" in the image" if path.origin == "image" else "")
            draft.refuse(
                "PLAN-048", field, message, found=ascii(entry), allowed="absolute, read-only folders", mend=mend
            )
