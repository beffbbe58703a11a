"""A chain as the values of the flow: a driver with one contract, and a plan that permits nothing."""

from __future__ import annotations

from typing import Final

from sandbox import jsontext
from sandbox.limits import CALL_TIMEOUT, DEFAULT_LIFETIME
from sandbox.mcpkg.model import Manifest
from sandbox.mcpkg.project import contract_id
from sandbox.plan.model import LimitPlan, NetworkPlan, SandboxPlan
from sandbox.spec.model import BinaryServer, Binding, DriverSpec, Origin, ToolContract

PROTOCOL: Final = "2025-11-25"
"""What a chain speaks to its supervisor."""


def spec_of(manifest: Manifest, folder: str) -> DriverSpec:
    """Return a chain as a driver: one contract, no network, no files, no secrets; each step counts as changing things.

    Args:
        manifest: of the chain.
        folder: where it is installed.
    """
    origin = Origin(file=f"{folder}/inside/package/manifest.json")
    contract = ToolContract(
        id=contract_id(manifest),
        name=manifest.name,
        description=manifest.description,
        version=manifest.version,
        inputs=manifest.input_schema,
        outputs=manifest.output_schema,
        mutates=tuple(f"tool:{step.tool}" for step in manifest.chain),
        approval="on-mutate",
        timeout_ms=int(CALL_TIMEOUT * 1000),
        origin=origin,
        digest=jsontext.digest(manifest.raw),
    )
    wrapped = manifest.output_schema.get("type") != "object"
    binding = Binding(
        contract=contract,
        version_range="*",
        tool_name=manifest.tool_id,
        result_extract="$.result" if wrapped else "$",
        timeout_ms=contract.timeout_ms,
        origin=origin,
    )
    return DriverSpec(
        folder=folder,
        file=origin.file,
        digest=contract.digest,
        id=contract.id,
        name=manifest.name,
        description=manifest.description,
        version=manifest.version,
        server=BinaryServer(kind="binary", path=""),
        transport="stdio",
        protocol_version=PROTOCOL,
        bindings=(binding,),
    )


def plan_of(spec: DriverSpec) -> SandboxPlan:
    """Return the plan of a chain: nothing, for it has no process."""
    limits = LimitPlan(0, 0.0, 0, 0, 0, DEFAULT_LIFETIME)
    return SandboxPlan(
        driver_id=spec.id,
        driver_version=spec.version,
        driver_digest=spec.digest,
        policy_digest="",
        server_kind="binary",
        image_id="",
        image_named="",
        argv=(),
        workdir="/",
        user="",
        env=(),
        mounts=(),
        tmpfs=(),
        network=NetworkPlan(),
        limits=limits,
        runtime="",
        seccomp="",
        seccomp_digest="",
        masked_paths=(),
        readonly_paths=(),
        init=False,
    )
