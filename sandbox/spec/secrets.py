"""SECRETS.md (AIP-19): which secrets a driver may ask for, never a value.

Rules beyond the shape: a manifest that holds a value is refused without repeating it; a slug stands once in the merged
inventory; a name of an environment variable leads to one slug.
"""

from __future__ import annotations

from typing import Any, Final

from sandbox.spec.environ import convention, declared
from sandbox.spec.fields.secrets import EXPOSURES, VALUE_KEYS, SecretEntry
from sandbox.spec.model import Origin, Secret
from sandbox.spec.report import Source, join
from sandbox.spec.shape import check, unknown_key, wrong_type

MAX_SECRETS: Final = 500
"""Slugs of one inventory."""

_GRANTS: Final = ("role", "userId", "cap", "tool", "workflow")


def secrets(source: Source, values: dict[str, Any]) -> tuple[Secret, ...]:
    """Return the slugs of one SECRETS.md; what is wrong is reported and left out."""
    for key in values:
        if key != "secrets":
            unknown_key(source, key, key, ["secrets"])
    entries = values.get("secrets")
    if not isinstance(entries, list) or not entries or len(entries) > MAX_SECRETS:
        source.error(
            "SPEC-190",
            "secrets",
            "the inventory names no secrets, or too many",
            allowed=f"a list of 1 to {MAX_SECRETS} entries",
            mend="list each slug with `slug`, `name` and `description`",
        )
        return ()
    found = [_secret(source, f"secrets[{index}]", entry) for index, entry in enumerate(entries)]
    return tuple(secret for secret in found if secret is not None)


def merge(inventories: list[tuple[Source, tuple[Secret, ...]]]) -> tuple[Secret, ...]:
    """Return one inventory of several files; a slug or a variable that stands twice is reported."""
    slugs: dict[str, Secret] = {}
    names: dict[str, Secret] = {}
    for source, found in inventories:
        for index, secret in enumerate(found):
            first = slugs.setdefault(secret.slug, secret)
            if first is not secret:
                _twice(source, f"secrets[{index}].slug", f"the slug `{secret.slug}`", first, secret)
            for name in declared(secret):
                taken = names.setdefault(name, secret)
                if taken.slug != secret.slug:
                    _twice(source, f"secrets[{index}]", f"the variable `{name}`", taken, secret)
    return tuple(slugs.values())


def _twice(source: Source, path: str, what: str, first: Secret, second: Secret) -> None:
    source.error(
        "SPEC-191",
        path,
        f"{what} stands here ({second.origin}) and in {first.origin}",
        mend="keep one of them; a name must lead to one secret",
    )


def _secret(source: Source, path: str, entry: Any) -> Secret | None:
    if not isinstance(entry, dict):
        wrong_type(source, path, entry, "a mapping")
        return None
    values = [key for key in VALUE_KEYS if key in entry]
    for key in values:
        source.error(
            "SPEC-192",
            join(path, key),
            f"`{key}` would hold the secret itself; a manifest never does (AIP-19)",
            mend="remove it, and change the secret: whoever reads the folder knows it now",
        )
    block = check(SecretEntry, {key: value for key, value in entry.items() if key not in values}, source, path)
    if block is None or values:
        return None
    _grants(source, path, block)
    return Secret(
        slug=block.slug,
        name=block.name,
        description=block.description,
        kind=block.kind,
        backend=block.backend or "",
        exposures=_exposures(source, join(path, "exposures"), block.exposures),
        env_names=_env_names(source, path, block),
        metadata=block.metadata,
        origin=Origin(file=source.file, line=source.line(path)),
    )


def _grants(source: Source, path: str, block: SecretEntry) -> None:
    for operation in ("reveal", "bind", "rotate"):
        for index, grant in enumerate(getattr(block.access, operation)):
            if sum(getattr(grant, name) is not None for name in _GRANTS) != 1:
                source.error(
                    "SPEC-193",
                    f"{path}.access.{operation}[{index}]",
                    "a grant names exactly one holder",
                    allowed=", ".join(f"`{name}`" for name in _GRANTS),
                    mend="write one grant for each holder",
                )


def _exposures(source: Source, path: str, entries: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the exposures of a known kind; AIP-19 has unknown ones ignored, which is said aloud."""
    found: list[dict[str, Any]] = []
    for index, entry in enumerate(entries):
        place = f"{path}[{index}]"
        model = EXPOSURES.get(entry["kind"]) if isinstance(entry.get("kind"), str) else None
        if model is None:
            source.warn(
                "SPEC-194",
                place,
                "this way of handing a secret over is not known and is ignored",
                allowed=", ".join(EXPOSURES),
                mend="use one of them",
            )
            continue
        block = check(model, entry, source, place)
        if block is not None:
            found.append(block.model_dump(exclude_none=True))
    return tuple(found)


def _env_names(source: Source, path: str, block: SecretEntry) -> tuple[str, ...]:
    """Return the variables of a slug: declared ones, else the convention ``stripe-api-key`` → ``STRIPE_API_KEY``."""
    bindings = block.metadata.get("bindings", {})
    bound = bindings.get("env", []) if isinstance(bindings, dict) else None
    if not isinstance(bound, list) or not all(isinstance(name, str) for name in bound):
        wrong_type(source, f"{path}.metadata.bindings.env", bound, "a list of names of environment variables")
        bound = []
    exposed = [entry["name"] for entry in block.exposures if entry.get("kind") == "env" and "name" in entry]
    return tuple(dict.fromkeys([*(str(name) for name in [*exposed, *bound]), convention(block.slug)]))
