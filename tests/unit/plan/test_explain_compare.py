"""Plans in words, as JSON, and compared with each other."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from sandbox.limits import GIB, MIB
from sandbox.plan import compare, explain
from sandbox.plan.model import EgressRule, EnvEntry, Mount, NetworkPlan, SandboxPlan
from sandbox.resources import shipped
from sandbox.spec.model import EnvRules, ExecRules, NpmServer
from tests.planning import driver, folders, host, plan, secret

SCHEMA = json.loads(shipped("schemas", "plan.schema.json").read_bytes())


def variants() -> list[SandboxPlan]:
    """Return plans that differ in every part."""
    server = NpmServer(kind="npm", package="p@1", args=("/d",), env={"T": "${secrets.K}"})
    return [
        plan(),
        plan(driver(server=server, secrets=(secret("K"),)), host(secrets=("K",))),
        plan(
            driver(read={"~/p": "/p"}, write={"~/p/o": "/p/o"}, deny=("~/p/s",)), host(folders("~/p", "~/p/o", "~/p/s"))
        ),
        plan(driver(egress=("a.example.com", "*.b.example.com:8443")), host(egress_available=True)),
        plan(
            driver(sandbox={"exec": ExecRules(allow=False), "env": EnvRules(passed=("LANG",))}),
            host(passed_env={"LANG": "C"}),
        ),
        plan(driver(limits={"memory_bytes": 64 * MIB, "cpus": 0.5, "lifetime": 60.0})),
    ]


@pytest.mark.parametrize("number", range(6))
def test_every_plan_is_valid_under_the_published_schema(number: int) -> None:
    """The JSON form of each plan validates, after a round trip through text."""
    body = json.loads(json.dumps(variants()[number].to_json()))

    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(body)


def test_schema_names_exactly_the_fields_of_a_plan() -> None:
    """A field that is added to the plan must be added to the schema, and to its version."""
    names = {field.name for field in dataclasses.fields(SandboxPlan)} | {"version", "digest"}

    assert names == set(SCHEMA["properties"]) == set(SCHEMA["required"])


def test_lines_tell_what_the_server_can_do() -> None:
    """The short form has one line for each thing a reviewer asks about."""
    text = "\n".join(explain.lines(variants()[2]))

    assert "/p (read) is /home/ada/p" in text
    assert "/p/o (read and write) is /home/ada/p/o" in text
    assert "/p/s (masked)" in text
    assert "network   none" in text
    assert "memory 512MiB" in text


def test_lines_never_show_values_of_secrets_or_variables() -> None:
    """Variables are named; secrets are marked."""
    text = "\n".join(explain.lines(variants()[1]))

    assert "T=<secret>" in text
    assert "PATH" in text
    assert "/usr/local/bin" not in text


def test_lines_cannot_move_the_cursor() -> None:
    """Control characters that a driver or an image brings are written out."""
    found = dataclasses.replace(plan(), image_named="a\x1b[2J\nb\u202e")
    lines = explain.lines(found) + explain.reasons(found)

    assert all(line.isprintable() for line in lines)
    assert "\\x1b[2J\\nb\\u202e" in "".join(lines)


def test_reasons_name_field_value_why_and_source() -> None:
    """Each reason is one line that ends with its source."""
    line = next(line for line in explain.reasons(plan()) if line.startswith("limits.memory = 512MiB"))

    assert "[policies/default.toml:" in line


# --- compare ----------------------------------------------------------------------------------------------------------
BASE = plan()


def widened(**parts: Any) -> SandboxPlan:
    """Return a plan with more than :data:`BASE` in one field."""
    return dataclasses.replace(BASE, **parts)


@pytest.mark.parametrize("number", range(6))
def test_a_plan_is_within_itself(number: int) -> None:
    """Equal plans permit the same."""
    found = variants()[number]

    assert compare.within(found, found)


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("files", widened(mounts=(Mount("/srv", "/srv", writable=False),))),
        ("tmpfs", widened(tmpfs=(dataclasses.replace(BASE.tmpfs[0], size_bytes=GIB),))),
        ("tmpfs", widened(tmpfs=(dataclasses.replace(BASE.tmpfs[0], executable=True),))),
        ("tmpfs", widened(tmpfs=(*BASE.tmpfs, dataclasses.replace(BASE.tmpfs[0], target="/x")))),
        ("network.rules", widened(network=NetworkPlan("broker", (EgressRule("a.example.com", (443,)),)))),
        ("network.allowed_private", widened(network=NetworkPlan("none", (), ("10.0.0.0/8",)))),
        ("limits.pids", widened(limits=dataclasses.replace(BASE.limits, pids=129))),
        ("limits.core_bytes", widened(limits=dataclasses.replace(BASE.limits, core_bytes=1))),
        ("masked_paths", widened(masked_paths=BASE.masked_paths[1:])),
        ("readonly_paths", widened(readonly_paths=BASE.readonly_paths[1:])),
        ("seccomp", widened(seccomp="net")),
        ("unsafe", widened(unsafe=("unsafe_missing_pids",))),
    ],
)
def test_each_widening_is_found_and_its_reverse_is_none(field: str, more: SandboxPlan) -> None:
    """What the wider plan permits is named; the narrower one permits nothing beyond it."""
    found = compare.excess(more, BASE)

    assert {"more"} == {item.kind for item in found}
    assert all(item.field.startswith(field) for item in found)
    assert compare.within(BASE, more)
    assert str(found[0])


def test_masks_and_read_only_parts_narrow() -> None:
    """A mask below a mount, or a read-only mount in a writable one, permits less."""
    wide = widened(mounts=(Mount("/srv/p", "/p", writable=True),))
    masked = dataclasses.replace(wide, masked_paths=(*wide.masked_paths, "/p/s"))
    guarded = dataclasses.replace(wide, mounts=(*wide.mounts, Mount("/srv/p/s", "/p/s", writable=False)))

    assert compare.within(masked, wide)
    assert not compare.within(wide, masked)
    assert compare.within(guarded, wide)
    assert not compare.within(wide, guarded)


def test_narrower_destinations_are_within_wider_ones() -> None:
    """A name below a wildcard, fewer ports, and a mode that checks more are less."""
    wide = widened(network=NetworkPlan("broker", (EgressRule("*.example.com", (443, 8443), "tcp"),)), seccomp="net")
    narrow = widened(network=NetworkPlan("broker", (EgressRule("a.example.com", (443,), "tls"),)), seccomp="net")

    assert compare.within(narrow, wide)
    assert not compare.within(wide, narrow)


@pytest.mark.parametrize(
    "parts",
    [
        {"argv": ("/x",)},
        {"runtime": "runsc"},
        {"image_id": "sha256:x"},
        {"env": (EnvEntry("A", "hidden"),)},
        {"seccomp_digest": "sha256:x"},
    ],
)
def test_what_has_no_order_is_reported_as_different(parts: dict[str, Any]) -> None:
    """Another program, runtime or environment is neither more nor less, and no value is shown."""
    found = compare.excess(widened(**parts), BASE)

    assert [item.kind for item in found] == ["different"]
    assert "hidden" not in str(found[0])
