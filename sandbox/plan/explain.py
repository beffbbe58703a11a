"""A plan in words: what the server will be able to do, and for each field why and from which line.

Lines are plain text without control characters; colours and tables are the command line's business. The order is
the one in which a reviewer asks: what runs, what it sees, whom it reaches, how much it may use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.policy.ceiling_values import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.plan.model import EnvEntry, Mount, SandboxPlan

_WIDTH = 10
"""Column of the labels."""


def lines(plan: SandboxPlan) -> tuple[str, ...]:
    """Return the few lines that say what the server will be able to do."""
    if plan.server_kind == "remote":
        return _remote(plan)
    kernel = f"runtime {plan.runtime}, system calls {plan.seccomp}"
    rows = [
        ("server", f"{plan.driver_id} {plan.driver_version} ({plan.server_kind}, {plan.transport})"),
        ("image", f"{plan.image_id[:19]}… {plan.image_named}"),
        ("runs", " ".join(plan.argv)),
        ("as", f"uid {plan.user}, no capabilities, read-only root, {kernel}"),
        *(("files" if number == 0 else "", text) for number, text in enumerate(_files(plan))),
        *(("network" if number == 0 else "", text) for number, text in enumerate(_network(plan))),
        ("limits", _limits(plan)),
        ("env", " ".join(_variable(entry) for entry in plan.env)),
        *(("secret", f"{entry.secret}: put in for {', '.join(entry.hosts)}") for entry in plan.substitutes),
        *(("unsafe", name) for name in plan.unsafe),
        ("digest", plan.digest()),
    ]
    return _rows(rows)


def _login(plan: SandboxPlan) -> Iterator[tuple[str, str]]:
    """Yield the line that says how tokens are got."""
    if plan.auth is None:
        return
    who = "somebody logs in" if plan.auth.grant == "authorization_code" else "with the client's id and secret"
    scopes = " ".join(plan.auth.scopes) or "what is confirmed at the login"
    issuer = plan.auth.issuer or "the issuer that the server names"
    yield "token", f"OAuth, {who}: from {issuer} for {plan.auth.resource}, scopes {scopes}"


def _remote(plan: SandboxPlan) -> tuple[str, ...]:
    """Return the lines of a server that runs elsewhere."""
    rows = [
        ("server", f"{plan.driver_id} {plan.driver_version} ({plan.server_kind}, {plan.transport})"),
        ("at", f"{plan.remote_url}, dialled from here; nothing is started"),
        *(("header", f"{entry.name}: {entry.value}{'<secret>' if entry.secret else ''}") for entry in plan.headers),
        *_login(plan),
        *(("network" if number == 0 else "", text) for number, text in enumerate(_network(plan))),
        *(("trusts", path) for path in plan.authorities),
        (
            "limits",
            f"life {show('lifetime', plan.limits.lifetime)}, call {show('call_timeout', plan.limits.call_timeout)}",
        ),
        *(("unsafe", name) for name in plan.unsafe),
        ("digest", plan.digest()),
    ]
    return _rows(rows)


def _rows(rows: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(_printable(f"{label:<{_WIDTH}}{text}".rstrip()) for label, text in rows)


def reasons(plan: SandboxPlan) -> tuple[str, ...]:
    """Return one line for each field: value, why, and where that is written."""
    return tuple(
        _printable(f"{reason.field} = {reason.value}: {reason.why} [{reason.source}]") for reason in plan.reasons
    )


def _files(plan: SandboxPlan) -> Iterator[str]:
    for mount in plan.mounts:
        yield _mount(mount)
        for path in plan.masked_paths:
            if path.startswith(mount.target.rstrip("/") + "/"):
                yield f"  {path} (masked)"
    for file in plan.secret_files:
        yield f"{file.target} (read, memory) is secret {file.secret}"
    for entry in plan.tmpfs:
        yield f"{entry.target} (memory, {show('tmp', entry.size_bytes)}, {entry.inodes} files, no programs)"


def _mount(mount: Mount) -> str:
    return f"{mount.target} ({'read and write' if mount.writable else 'read'}) is {mount.source}"


def _network(plan: SandboxPlan) -> Iterator[str]:
    if plan.network.mode == "none":
        yield "none"
    for rule in plan.network.rules:
        yield f"{rule.host} port {', '.join(map(str, rule.ports))} ({rule.mode})"
    for cidr in plan.network.allowed_private:
        yield f"private addresses in {cidr}"


def _limits(plan: SandboxPlan) -> str:
    limits = plan.limits
    return (
        f"memory {show('memory', limits.memory_bytes)}, cpus {limits.cpus:g}, pids {limits.pids}, files open "
        f"{limits.nofile}, file size {show('fsize', limits.fsize_bytes)}, life {show('lifetime', limits.lifetime)}, "
        f"call {show('call_timeout', limits.call_timeout)}"
    )


def _variable(entry: EnvEntry) -> str:
    return f"{entry.name}=<secret>" if entry.secret else entry.name


def _printable(text: str) -> str:
    """Return a line in which what drivers and hosts name cannot move the cursor."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
