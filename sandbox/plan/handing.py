"""How secrets reach the server, by the exposures of SECRETS.md (AIP-19): variable, file, placeholder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sandbox.errors import SpecError
from sandbox.plan.model import SecretFile, Substitute
from sandbox.policy.destinations import match
from sandbox.policy.hosts import parse_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.plan.draft import Draft
    from sandbox.plan.model import NetworkPlan
    from sandbox.spec.model import Secret

SECRETS_FOLDER: Final = "/run/secrets"
"""Where secret files stand inside, and nothing else."""

_PLACE: Final = re.compile(SECRETS_FOLDER + r"/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_HOSTS: Final = 16
"""Hosts that one secret is put into requests to; each gets a certificate at every start."""

HTTPS_PORT: Final = 443


def secret_files(draft: Draft) -> tuple[SecretFile, ...]:
    """Return the secrets that are handed over as files, by place."""
    found: dict[str, SecretFile] = {}
    for secret in draft.spec.secrets:
        for exposure in _exposures(secret, "file"):
            target = str(exposure.get("path", ""))
            entry = SecretFile(secret.slug, target)
            if not _PLACE.fullmatch(target):
                _refuse(draft, "PLAN-063", secret, "a secret file has no place there", target, f"{SECRETS_FOLDER}/NAME")
            elif found.setdefault(target, entry) != entry:
                _refuse(draft, "PLAN-063", secret, "two secrets have one place", target, "one for each")
            draft.because("secret_files", f"{secret.slug} at {target}", "a read-only file on tmpfs", str(secret.origin))
    return tuple(found[target] for target in sorted(found))


def substitutes(draft: Draft, destinations: NetworkPlan) -> tuple[Substitute, ...]:
    """Return the secrets of which the server sees placeholders.

    Each names the hosts that it is for (``intendedProviders``), which must be exact names that ``network.egress``
    reaches over TLS on the usual port: the broker ends TLS for these and for no other.
    """
    found = []
    for secret in draft.spec.secrets:
        for exposure in _exposures(secret, "egress-substitute"):
            hosts = tuple(str(host) for host in exposure.get("intendedProviders", ()))
            if not exposure.get("allowedByDefault"):
                _refuse(draft, "PLAN-064", secret, "substitution is not allowed by default", "false", "true")
            if not 0 < len(hosts) <= MAX_HOSTS:
                _refuse(
                    draft, "PLAN-065", secret, "no host is intended, or too many", "", f"1 to {MAX_HOSTS} host names"
                )
            for host in hosts:
                if not _reached(host, destinations):
                    allowed = "an exact host name that network.egress reaches over TLS on port 443"
                    _refuse(
                        draft, "PLAN-065", secret, "the host cannot be one that a secret is put in for", host, allowed
                    )
            found.append(Substitute(secret.slug, tuple(sorted(set(hosts)))))
            shown = f"{secret.slug} for {', '.join(hosts)}"
            draft.because("substitutes", shown, "the server sees a placeholder", str(secret.origin))
    return tuple(found)


def _reached(host: str, destinations: NetworkPlan) -> bool:
    try:
        rule = parse_rule(host)
    except SpecError:
        return False
    found = match(destinations.rules, host, HTTPS_PORT)
    return rule.host == host and "*" not in host and found is not None and found.mode == "tls"


def _exposures(secret: Secret, kind: str) -> Iterator[dict[str, Any]]:
    return (dict(exposure) for exposure in secret.exposures if exposure.get("kind") == kind)


def _refuse(draft: Draft, number: str, secret: Secret, message: str, found: str, allowed: str) -> None:
    mend = f"correct the exposure of `{secret.slug}` in {secret.origin}"
    draft.refuse(number, "secrets", message, found=found, allowed=allowed, mend=mend)
