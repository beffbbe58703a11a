"""What must hold before anything is made (step 1 of a launch), and what its request is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import PlanRefused, PlatformError
from sandbox.launch import failure, seccomp, translate
from sandbox.launch.engine import Identity
from sandbox.launch.interface import NetworkAttachment
from sandbox.plan.model import SandboxPlan


def profile_of(plan: SandboxPlan) -> seccomp.Profile:
    """Return the profile that the plan names, unchanged since it was planned.

    Raises:
        PlanRefused: ``LAUNCH-015`` there is nothing to start, ``LAUNCH-013`` the profile has changed.
    """
    if plan.server_kind == "remote" or not plan.argv:
        raise PlanRefused(
            "LAUNCH-015", f"the plan of {plan.driver_id} has no container to start", "remote servers are not launched"
        )
    profile = seccomp.load(plan.seccomp)
    if profile.digest != plan.seccomp_digest:
        raise PlanRefused(
            "LAUNCH-013",
            f"the seccomp profile {plan.seccomp!r} is not the one that was planned ({plan.seccomp_digest})",
            "plan again; the profile's file has changed",
        )
    return profile


def check_engine(identity: Identity) -> None:
    """Raise ``LAUNCH-017`` for Podman: its Docker-compatible API drops parts of the baseline (ADR 0036)."""
    if identity.kind == "podman":
        raise PlanRefused(
            "LAUNCH-017",
            "Podman answers, and its Docker-compatible API cannot express the baseline (masked paths and more)",
            "start Docker; docs/adr/0036-podman.md says what is missing",
        )


def check_secrets(plan: SandboxPlan, secrets: Mapping[str, str]) -> None:
    """Raise ``LAUNCH-016`` when a secret that the plan names has no value."""
    missing = sorted(set(plan.secrets()) - set(secrets))
    if missing:
        raise PlanRefused(
            "LAUNCH-016", f"no value was resolved for the secrets {', '.join(missing)}", "see SECRETS.md of the driver"
        )


def check_image(plan: SandboxPlan, joined: translate.Joined, described: Mapping[str, Any] | None) -> None:
    """Raise unless the planned image is present and brings no volume of its own.

    Raises:
        PlatformError: ``LAUNCH-010``, it is absent.
        PlanRefused: ``LAUNCH-011``, a volume of the image would be writable disk of the host.
    """
    if described is None or described.get("Id") != plan.image_id:
        raise PlatformError(
            "LAUNCH-010",
            f"the planned image {plan.image_named or plan.image_id!r} ({plan.image_id}) is not present in the engine",
            "run `mcp-sandbox install DRIVER.md`; nothing is pulled during a start",
        )
    volumes = (described.get("Config") or {}).get("Volumes") or {}
    left = translate.uncovered_volumes(volumes, plan, joined)
    if left:
        raise PlanRefused(
            "LAUNCH-011",
            f"the image {plan.image_named!r} declares the volumes {', '.join(left)}, which would be writable host disk",
            "cover each with a tmpfs or a root in DRIVER.md (`sandbox.fs`)",
        )


def image_env(described: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the image's own variables."""
    entries = ((described or {}).get("Config") or {}).get("Env") or []
    return [str(entry).partition("=")[0] for entry in entries]


def joined_by(attachment: NetworkAttachment | None, files: Mapping[str, str]) -> translate.Joined:
    """Return what an attachment and handed-over files add to the request."""
    if attachment is None:
        return translate.Joined(mounts=files)
    return translate.Joined(attachment.network_mode, {**attachment.mounts, **files}, attachment.env)


def check_warnings(warnings: Sequence[str]) -> None:
    """An engine's warning at create says which option it dropped; nothing planned may be dropped."""
    if warnings:
        raise PlatformError(
            "LAUNCH-036",
            f"the engine cannot do all that was planned: {failure.shorten('; '.join(warnings))}",
            "see `mcp-sandbox doctor`; a control that this host lacks must not be planned",
        )


def foreign_texts(plan: SandboxPlan) -> list[str]:
    """Return the texts of a plan that whoever wrote the driver chose."""
    texts = [*plan.argv, plan.workdir, plan.image_named, plan.user, plan.hostname]
    texts += [text for mount in plan.mounts for text in (mount.source, mount.target)]
    texts += [text for entry in plan.env for text in (entry.name, entry.value)]
    texts += [tmpfs.target for tmpfs in plan.tmpfs]
    return [text for text in texts if text]
