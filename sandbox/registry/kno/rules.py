"""What an entity may say together: the rules between fields (seed 004, release 0.5.0; conflict X-7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sandbox.errors import Problem
from sandbox.registry.kno.fields import META_KEY

OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
"""Written by a registry, about its own records."""

Place = Callable[[str], tuple[str, int]]
"""Field → file and line."""


def invariants(visibility: str, auth: str, file: str, line: int) -> list[Problem]:
    """Return what is wrong between visibility and auth (S4-15 … S4-18, S4-46).

    What is advertised to everybody must work for everybody: an open door in the register that asks for a token is a
    trap (S4-47).
    """
    if visibility == "public" and auth != "none":
        message = "`visibility: public` needs `auth: none`; a server that asks for a token is not public"
        mend = "write `auth: none`, or `visibility: authenticated`"
        return [Problem("KNO-005", file, line, "visibility", message, found=f"auth: {auth}", mend=mend)]
    if visibility != "public" and auth != "bearer":
        message = f"`visibility: {visibility}` needs `auth: bearer`"
        mend = "write `auth: bearer`, or `visibility: public`"
        return [Problem("KNO-006", file, line, "visibility", message, found=f"auth: {auth}", mend=mend)]
    return []


def between(
    values: Mapping[str, Any], release: str, owned: Sequence[str], at: Place, wrong: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield what is wrong between the fields of one entity.

    Args:
        values: fields of the right form.
        release: of the schema that the entity names.
        owned: namespaces that names may be under.
        at: gives the place of a field.
        wrong: fields that are there and have another form; no rule guesses what they meant.
    """
    if not {"visibility", "auth"} & set(wrong):
        yield from _visibility(values, release, at)
    auth = values.get("auth", "bearer")
    if values.get("required_scopes") == [] and auth == "bearer":
        message = "no scopes, though a token is needed"
        yield _problem("KNO-007", at("required_scopes"), "required_scopes", message, "name the scopes, or `auth: none`")
    yield from _remotes(values, at)
    yield from _meta(values, at)
    name = values.get("name")
    if name is not None and owned and name.partition("/")[0] not in owned:
        message = "the namespace is not one of yours"
        yield _problem("KNO-013", at("name"), "name", message, f"use {', '.join(owned)}")


def _visibility(values: Mapping[str, Any], release: str, at: Place) -> Iterator[Problem]:
    """Rule 4 and the invariants; what is left out counts as the schema says: public, and bearer."""
    file, line = at("visibility")
    if "visibility" not in values:
        severity = "error" if release >= "0.5.0" else "warning"
        message = "the entity does not say its visibility (rule 4); left out it would be public"
        yield Problem("KNO-004", file, line, "visibility", message, mend="write `visibility:`", severity=severity)
    for problem in invariants(values.get("visibility", "public"), values.get("auth", "bearer"), file, line):
        # Before 0.3.0 nobody could say it: such a file is valid, and is served as what it needs.
        yield _softened(problem) if release < "0.3.0" and "auth" not in values else problem


def _softened(problem: Problem) -> Problem:
    return Problem(
        problem.id, problem.file, problem.line, problem.field, problem.message, problem.found, problem.allowed,
        problem.mend, "warning",
    )  # fmt: skip


def _remotes(values: Mapping[str, Any], at: Place) -> Iterator[Problem]:
    for place, remote in enumerate(values.get("remotes", ())):
        where = f"remotes[{place}]"
        if "{baseUrl}" not in remote["url"]:
            message = "the address does not begin with `{baseUrl}`, so it is of one environment only"
            yield _problem("KNO-009", at(where), f"{where}.url", message, "write `{baseUrl}/…`", "warning")
        variables = remote.get("variables", {})
        if isinstance(variables.get("baseUrl"), dict) and "default" in variables["baseUrl"]:
            message = "`baseUrl` has a default of its own; the projection sets it"
            yield _problem("KNO-010", at(where), f"{where}.variables", message, "leave it out", "warning")


def _meta(values: Mapping[str, Any], at: Place) -> Iterator[Problem]:
    for key in values.get("_meta", {}):
        if key == OFFICIAL:
            message = f"`{OFFICIAL}` is written by the registry; what stands here is dropped"
            yield _problem("KNO-011", at("_meta"), "_meta", message, "leave it out", "warning")
        elif not META_KEY.fullmatch(key):
            yield _problem(
                "KNO-012", at("_meta"), "_meta", f"`{key[:60]}` is no reverse-DNS key", "write com.example/…"
            )


def _problem(
    number: str, place: tuple[str, int], field: str, message: str, mend: str, severity: str = "error"
) -> Problem:
    return Problem(number, place[0], place[1], field, message, mend=mend, severity=severity)


def across(entities: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Problem]:
    """Yield what two entities of one corpus may not share.

    Args:
        entities: file and values of each.
    """
    for name in ("id", "slug", "name", "endpoint_path"):
        seen: dict[Any, str] = {}
        for file, values in entities:
            value = values.get(name)
            if value is None or not isinstance(value, str):
                continue
            if value in seen:
                message = f"{seen[value]} has the same `{name}`"
                yield Problem("KNO-014", file, 0, name, message, found=value[:80], mend="give each its own")
            seen.setdefault(value, file)
