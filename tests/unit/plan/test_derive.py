"""Each refusal and each value of a plan, one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sandbox.errors import PlanProblems
from sandbox.limits import GIB, MIB
from sandbox.plan import baseline
from sandbox.plan.derive import Overrides
from sandbox.plan.model import EnvEntry, HostFacts, Mount, PathFacts
from sandbox.spec.model import (
    BinaryServer,
    DockerServer,
    DriverSpec,
    EnvRules,
    ExecRules,
    InstallStep,
    NpmServer,
    Origin,
    RemoteServer,
)
from tests import planning
from tests.planning import driver, engine, folders, host, image, plan


def refused(spec: DriverSpec | None = None, facts: HostFacts | None = None, **parts: Any) -> dict[str, str]:
    """Return id → line of every refusal."""
    with pytest.raises(PlanProblems) as caught:
        plan(spec, facts, **parts)
    return {problem.id: str(problem) for problem in caught.value.problems}


def test_plain_driver_gets_the_baseline_and_the_defaults() -> None:
    """A driver that asks for nothing gets no network, no files and the default bounds."""
    found = plan()

    assert (found.network.mode, found.mounts, found.user) == ("none", (), "65532:65532")
    assert (found.limits.memory_bytes, found.limits.cpus, found.limits.pids) == (512 * MIB, 1.0, 128)
    assert (found.seccomp, found.runtime, found.init, found.unsafe) == ("nonet", "runc", True, ())
    assert set(baseline.MASKED) == set(found.masked_paths)


def test_program_and_arguments_become_one_vector() -> None:
    """The image's program comes first, the driver's arguments follow; no shell is involved."""
    found = plan(driver(server=NpmServer(kind="npm", package="p@1", args=("/data", "; rm -rf /"))))

    assert found.argv == ("/usr/bin/node", "/opt/server/index.js", "/data", "; rm -rf /")


def test_every_field_has_a_reason_with_a_source() -> None:
    """Each field of the plan that has a value is explained, and each reason names its source."""
    found = plan(driver(write={"./data": "/data"}), host(folders("./data")))
    explained = {reason.field.partition(".")[0] for reason in found.reasons}
    without = {
        "driver_id",
        "driver_version",
        "image_named",
        "seccomp_digest",
        "reasons",
        "port",
        "remote_url",
        "headers",
        "auth",
        "authorities",
        "secret_files",
        "substitutes",
        "unsafe",
    }

    assert {field.name for field in dataclasses.fields(found)} - without == explained
    assert all(reason.source and reason.why for reason in found.reasons)


def test_all_refusals_come_at_once() -> None:
    """A driver with several faults is told all of them."""
    spec = driver(limits={"memory_bytes": 64 * GIB, "pids": 0}, egress=("api.example.com",), ingress=("x",))

    assert {"PLAN-006", "PLAN-010", "PLAN-011", "PLAN-012", "PLAN-050"} == set(refused(spec))


def test_refusal_names_both_values_and_both_places() -> None:
    """A bound above the ceiling is refused with what was asked, what is allowed, and both lines."""
    line = refused(driver(limits={"memory_bytes": 5 * GIB}))["PLAN-010"]

    assert "files-mcp/DRIVER.md:31" in line
    assert "5GiB" in line
    assert "4GiB (policies/default.toml:" in line


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf")])
def test_amounts_that_engines_read_as_unlimited_are_refused(amount: float) -> None:
    """Zero, negative and non-finite bounds are refused, for engines read them as "no limit"."""
    assert {"PLAN-011"} == set(refused(driver(limits={"cpus": amount})))


@pytest.mark.parametrize(("bound", "least"), [("cpus", 0.01), ("memory_bytes", 8 * MIB), ("pids", 8)])
def test_bounds_under_which_no_server_starts_reliably_are_refused(bound: str, least: float) -> None:
    """Less than the runtime's own init process needs is refused; exactly as much is planned."""
    small = {"tmp_bytes": MIB} if bound == "memory_bytes" else {}
    refusals = refused(driver(limits={bound: least - (1 if least > 1 else 0.005), **small}))

    assert "too little to start" in refusals["PLAN-012"]
    assert least == getattr(plan(driver(limits={bound: least, **small})).limits, bound)


@pytest.mark.parametrize(
    ("bound", "amount", "facts"),
    [
        ("cpus", 3.0, {"cpus": 2}),
        ("nofile", 4096, {"hard_nofile": 1024}),
        ("memory_bytes", 4 * GIB, {"memory_bytes": 2 * GIB}),
    ],
)
def test_bounds_that_the_host_cannot_keep_are_refused(bound: str, amount: float, facts: dict[str, int]) -> None:
    """More than the host has is refused before the engine would refuse it."""
    assert {"PLAN-012"} == set(refused(driver(limits={bound: amount}), host(engine=engine(**facts))))


def test_tmp_larger_than_memory_is_refused_when_asked_for() -> None:
    """A /tmp that cannot fit is refused; the default merely shrinks to the memory, and says so."""
    asked = driver(limits={"memory_bytes": 32 * MIB, "tmp_bytes": 64 * MIB})
    default = plan(driver(limits={"memory_bytes": 32 * MIB}))

    assert {"PLAN-012"} == set(refused(asked))
    assert default.tmpfs[0].size_bytes == 32 * MIB
    assert any(reason.field == "tmpfs./tmp" for reason in default.reasons)


def test_calls_longer_than_the_ceiling_are_refused() -> None:
    """A contract whose timeout exceeds the ceiling is named."""
    line = refused(driver(bindings=(planning.contract("slow", 7_200_000),)))["PLAN-010"]

    assert "slow: 7200000 ms" in line


# --- kind, image, transport -----------------------------------------------------------------------------------------
def test_kind_that_the_operator_does_not_allow_is_refused() -> None:
    """The strict ceiling has no binaries from the host."""
    spec = driver(server=BinaryServer(kind="binary", path="./server"), limits={"memory_bytes": 64 * MIB})

    assert {"PLAN-001"} == set(refused(spec, ceiling=planning.strict()))


def test_remote_server_is_refused_where_it_cannot_be_enforced() -> None:
    """A host that cannot hold the connection to the rules refuses."""
    spec = driver(server=RemoteServer(kind="remote", url="https://mcp.example.com/"), transport="http")

    assert "PLAN-004" in refused(spec)


def test_missing_image_is_refused() -> None:
    """Nothing is planned for an image that is not there."""
    assert {"PLAN-002"} == set(refused(facts=host(image=None)))


@pytest.mark.parametrize(
    ("reference", "facts", "expected"),
    [
        ("tool:1", {}, {"PLAN-003"}),
        ("tool:1", {"pinned": True}, set()),
        ("tool@sha256:" + "a" * 64, {}, set()),
        ("sha256:" + "a" * 64, {}, set()),
    ],
)
def test_image_by_tag_is_refused_unless_its_id_was_reviewed(
    reference: str, facts: dict[str, Any], expected: set[str]
) -> None:
    """A tag may move; a digest, or an id in the lock, may not."""
    spec = driver(server=DockerServer(kind="docker", image=reference))
    facts_ = host(image=image(**facts))

    assert expected == (set(refused(spec, facts_)) if expected else set(plan(spec, facts_).unsafe))


def test_transport_that_cannot_be_carried_is_refused() -> None:
    """A local server that wants a port is refused where only stdio is carried."""
    assert {"PLAN-005"} == set(refused(driver(transport="http")))


def test_install_method_beyond_the_ceiling_is_refused() -> None:
    """An unknown way to install is refused by name."""
    step = InstallStep(method="brew", origin=Origin(file="files-mcp/DRIVER.md", line=15))

    assert "brew" in refused(driver(install=(step,)))["PLAN-007"]


def test_image_started_in_proc_is_refused() -> None:
    """WORKDIR below /proc/self/fd is how CVE-2024-21626 leaves the container."""
    assert {"PLAN-058"} == set(refused(facts=host(image=image(workdir="/proc/self/fd/7"))))


# --- runtime, controls, profiles ------------------------------------------------------------------------------------
def test_absent_runtime_is_refused_and_never_replaced() -> None:
    """A runtime that the engine lacks refuses the plan, with what there is."""
    line = refused(driver(sandbox={"runtime": "kata"}))["PLAN-015"]

    assert "runc, runsc" in line


def test_unlisted_runtime_is_refused() -> None:
    """A runtime the ceiling does not list is refused although the engine has it."""
    facts = host(engine=engine(runtimes=("runc", "nvidia")))

    assert {"PLAN-014"} == set(refused(driver(sandbox={"runtime": "nvidia"}), facts))


def test_command_line_may_choose_a_stronger_runtime_only() -> None:
    """``--runtime`` may strengthen what the driver asks for, not weaken it."""
    strong = driver(sandbox={"runtime": "runsc"})

    assert plan(overrides=Overrides(runtime="runsc")).runtime == "runsc"
    assert {"PLAN-016"} == set(refused(strong, overrides=Overrides(runtime="runc")))


@pytest.mark.claim("P-PLAN-01")
@pytest.mark.parametrize("control", ["memory", "pids", "cpu", "seccomp", "something-new"])
def test_missing_control_refuses_the_plan_by_name(control: str) -> None:
    """A host that cannot enforce a control gets no plan that relies on it."""
    line = refused(facts=host(engine=engine(missing=(control,))))["PLAN-013"]

    assert f"`{control}`" in line


def test_engine_without_seccomp_is_refused() -> None:
    """The flag alone is enough."""
    assert {"PLAN-013"} == set(refused(facts=host(engine=engine(seccomp=False))))


def test_forbidden_children_get_the_profile_without_fork_and_no_init() -> None:
    """``exec.allow: false`` is a system call profile, and an init that would fork is left out."""
    found = plan(driver(sandbox={"exec": ExecRules(allow=False)}))

    assert (found.seccomp, found.init) == ("nonet-nospawn", False)


def test_forbidden_children_without_the_profile_are_refused() -> None:
    """A host without that profile does not start the server with a weaker one."""
    spec = driver(sandbox={"exec": ExecRules(allow=False)})

    assert {"PLAN-018"} == set(refused(spec, host(seccomp_profiles={"nonet": "sha256:x"})))


def test_list_of_programs_is_refused_as_not_enforceable() -> None:
    """``exec.spawn`` names cannot be enforced by system call number."""
    assert {"PLAN-055"} == set(refused(driver(sandbox={"exec": ExecRules(spawn=("git",))})))


@pytest.mark.parametrize(
    "wanted",
    [{"os": ["darwin"]}, {"arch": ["arm64"]}, {"min_memory_mb": 4096}, {"min_disk_mb": 1}, {"gpu": True}],
)
def test_unmet_requirement_is_refused(wanted: dict[str, Any]) -> None:
    """Each requirement that this host does not meet, or nobody can judge, refuses the plan."""
    assert {"PLAN-017"} == set(refused(driver(requires=wanted)))


def test_met_requirements_are_accepted() -> None:
    """Requirements that hold change nothing."""
    wanted = {"os": ["linux"], "arch": ["x64"], "min_memory_mb": 256, "min_disk_mb": 10}

    assert (
        plan(facts=host(disk_free_bytes=GIB)).digest()
        == plan(driver(requires=wanted), host(disk_free_bytes=GIB)).digest()
    )


# --- files ----------------------------------------------------------------------------------------------------------
def test_grants_become_mounts_parents_first() -> None:
    """The real path is mounted, and a parent precedes what is mounted in it."""
    spec = driver(read={"~/p/out/ro": "/p/out/ro"}, write={"~/p": "/p", "~/p/out": "/p/out"})
    found = plan(spec, host(folders("~/p/out/ro", "~/p", "~/p/out")))

    assert found.mounts == (
        Mount("/home/ada/p", "/p", writable=True),
        Mount("/home/ada/p/out", "/p/out", writable=True),
        Mount("/home/ada/p/out/ro", "/p/out/ro", writable=False),
    )


def test_path_that_nobody_looked_at_is_refused() -> None:
    """A grant without facts is refused, not mounted as written."""
    assert {"PLAN-020"} == set(refused(driver(read={"~/p": "/p"})))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (PathFacts("/home/ada/p", "/home/ada/p", exists=False, kind="other"), "PLAN-021"),
        (PathFacts("/home/ada/p", "/home/ada/p", exists=True, kind="other"), "PLAN-022"),
        (PathFacts("/home/ada/p", "/home/ada/p\n/x", exists=True, kind="dir"), "PLAN-035"),
        (PathFacts("/home/ada/p", "/var/lib/mysql", exists=True, kind="dir"), "PLAN-023"),
    ],
)
def test_source_that_cannot_be_mounted_is_refused(facts: PathFacts, expected: str) -> None:
    """What is absent, not a file or folder, unprintable or outside every mountable root is refused."""
    assert {expected} == set(refused(driver(read={"~/p": "/p"}), host({"~/p": facts})))


@pytest.mark.parametrize(
    "at",
    [
        "/",
        "/proc",
        "/proc/1",
        "/sys/fs",
        "/dev/shm",
        "/etc",
        "/etc/passwd",
        "/tmp",
        "/usr/bin",
        "/lib64",
        "/run/x",
        "/boot",
    ],
)
def test_reserved_places_inside_are_refused(at: str) -> None:
    """Nothing is mounted over the root, the kernel's places, programs or /tmp itself."""
    assert {"PLAN-029"} == set(refused(driver(read={"~/p": at}), host(folders("~/p"))))


@pytest.mark.parametrize("at", ["data", "/data/", "/data/../etc", "//data", "/da\nta", "/./data", ""])
def test_places_inside_in_another_form_are_refused(at: str) -> None:
    """A place inside is compared as written, so it must be in its shortest form."""
    assert {"PLAN-028"} == set(refused(driver(read={"~/p": at}), host(folders("~/p"))))


def test_mount_below_tmp_is_allowed() -> None:
    """A folder below /tmp is a plain place."""
    found = plan(driver(read={"/tmp/x": "/tmp/x"}), host(folders("/tmp/x")))

    assert (Mount("/tmp/x", "/tmp/x", writable=False),) == found.mounts


@pytest.mark.parametrize("at", ["/opt", "/opt/server", "/opt/server/index.js"])
def test_mount_over_the_servers_program_is_refused(at: str) -> None:
    """A grant cannot replace the program that was reviewed."""
    assert {"PLAN-030"} == set(refused(driver(read={"~/p": at}), host(folders("~/p"))))


@pytest.mark.parametrize(
    "grants",
    [
        {"~/a": "/d", "~/b": "/d"},
        {"~/a": "/d", "~/b": "/d/sub"},
        {"~/a": "/d/sub", "~/b": "/d"},
    ],
)
def test_mounts_in_each_others_way_are_refused(grants: dict[str, str]) -> None:
    """Two grants cannot share a place, nor nest where their sources do not."""
    assert {"PLAN-031"} == set(refused(driver(read=grants), host(folders("~/a", "~/b"))))


def test_same_path_granted_twice_is_refused() -> None:
    """One path with two rights is a mistake in one of them."""
    spec = driver(read={"~/a": "/d"}, write={"~/a": "/e"})

    assert {"PLAN-031"} == set(refused(spec, host(folders("~/a"))))


def test_denied_folder_below_a_grant_is_masked() -> None:
    """``fs.deny`` covers a folder below every grant that shows it."""
    spec = driver(read={"~/p": "/p"}, deny=("~/p/secret/**",))
    found = plan(spec, host(folders("~/p", "~/p/secret")))

    assert "/p/secret" in found.masked_paths


def test_denied_folder_behind_a_link_is_masked_where_it_really_lies() -> None:
    """A denial is judged by its real path, as a grant is."""
    spec = driver(read={"~/p": "/p"}, deny=("~/link",))
    found = plan(spec, host({"~/p": "/home/ada/p", "~/link": "/home/ada/p/real"}))

    assert "/p/real" in found.masked_paths


def test_denials_that_no_grant_reaches_hold_already() -> None:
    """A denial outside every grant needs no mask."""
    spec = driver(read={"~/p": "/p"}, deny=("~/.ssh/**", "/etc/**"))
    found = plan(spec, host(folders("~/p", "~/.ssh", "/etc")))

    assert tuple(baseline.MASKED) == found.masked_paths


@pytest.mark.parametrize(
    ("deny", "facts", "expected"),
    [
        ("**/.env", {}, "PLAN-032"),
        ("~/p/*.key", {}, "PLAN-032"),
        ("~/p/later", {"~/p/later": PathFacts("/home/ada/p/later", "/home/ada/p/later", False, "other")}, "PLAN-033"),
        ("~/p", {}, "PLAN-031"),
        ("~", {"~": "/home/ada"}, "PLAN-031"),
    ],
)
def test_denials_that_cannot_be_kept_are_refused(deny: str, facts: dict[str, Any], expected: str) -> None:
    """Patterns, what does not exist yet, and what is granted too cannot be denied."""
    spec = driver(read={"~/p": "/p"}, deny=(deny,))

    assert {expected} == set(refused(spec, host(folders("~/p") | facts)))


def test_root_override_repoints_a_declared_grant() -> None:
    """``--root AT=PATH`` changes where a declared grant comes from, and is recorded."""
    found = plan(driver(write={"~/p": "/p"}), host(folders("~/q")), overrides=Overrides(roots={"/p": "~/q"}))

    assert (Mount("/home/ada/q", "/p", writable=True),) == found.mounts
    assert any("--root /p=~/q" in reason.source for reason in found.reasons)


def test_root_override_of_an_undeclared_place_is_refused() -> None:
    """The command line adds no grant."""
    assert {"PLAN-034"} == set(refused(facts=host(folders("~/q")), overrides=Overrides(roots={"/p": "~/q"})))


def test_root_override_is_held_to_the_ceiling() -> None:
    """The command line cannot reach what the driver may not."""
    spec = driver(read={"~/p": "/p"})
    line = refused(spec, host(folders("~/.ssh")), overrides=Overrides(roots={"/p": "~/.ssh"}))["PLAN-024"]

    assert line.startswith("--root /p=~/.ssh")


def test_memory_override_narrows_only() -> None:
    """``--memory`` takes away and never adds."""
    assert plan(overrides=Overrides(memory_bytes=64 * MIB)).limits.memory_bytes == 64 * MIB
    assert {"PLAN-016"} == set(refused(overrides=Overrides(memory_bytes=GIB)))


# --- environment ----------------------------------------------------------------------------------------------------
def test_secret_becomes_a_slug_and_never_a_value() -> None:
    """``${secrets.SLUG}`` is resolved at launch; the plan knows the slug only."""
    spec = driver(
        server=NpmServer(kind="npm", package="p@1", env={"TOKEN": "${secrets.KEY}"}), secrets=(planning.secret("KEY"),)
    )
    entry = next(entry for entry in plan(spec, host(secrets=("KEY",))).env if entry.name == "TOKEN")

    assert EnvEntry("TOKEN", secret="KEY", origin="driver") == entry


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"A": "${secrets.NONE}"}, "PLAN-045"),
        ({"A": "${secrets.KEY}"}, "PLAN-046"),
        ({"A": "Bearer ${secrets.KEY}"}, "PLAN-044"),
        ({"A": "${env.HOME}"}, "PLAN-044"),
        ({"A": "${"}, "PLAN-044"),
        ({"1A": "x"}, "PLAN-040"),
        ({"A=B": "x"}, "PLAN-040"),
        ({"A": "x\0y"}, "PLAN-040"),
        ({"A": "x" * 40_000}, "PLAN-040"),
        ({"LD_PRELOAD": "/p/x.so"}, "PLAN-041"),
        ({"NODE_TLS_REJECT_UNAUTHORIZED": "0"}, "PLAN-041"),
        ({"PATH": "/data:/usr/bin"}, "PLAN-048"),
        ({"PATH": ".:/usr/bin"}, "PLAN-048"),
        ({"PATH": "/usr/bin:"}, "PLAN-048"),
    ],
)
def test_variable_that_may_not_be_set_is_refused(env: dict[str, str], expected: str) -> None:
    """Undeclared or unknown secrets, other substitutions, bad names, forbidden names and unsafe PATHs are refused."""
    spec = driver(
        server=NpmServer(kind="npm", package="p@1", env=env), secrets=(planning.secret("KEY"),), write={"./d": "/data"}
    )

    assert {expected} == set(refused(spec, host(folders("./d"))))


def test_secret_in_an_argument_is_refused() -> None:
    """Arguments can be read by every process."""
    spec = driver(server=NpmServer(kind="npm", package="p@1", args=("--key=${secrets.KEY}",)))

    assert {"PLAN-047"} == set(refused(spec))


def test_dangerous_variables_of_an_image_are_left_out() -> None:
    """What the ceiling never sets is not taken from an image either."""
    facts = host(image=image(env={"PATH": "/usr/bin", "LD_PRELOAD": "/x.so", "NODE_VERSION": "24"}))

    assert [entry.name for entry in plan(facts=facts).env] == ["HOME", "NODE_VERSION", "PATH", "TMPDIR"]


def test_image_with_a_writable_path_entry_is_refused() -> None:
    """An image whose PATH finds programs in /tmp is refused."""
    assert {"PLAN-048"} == set(refused(facts=host(image=image(env={"PATH": "/tmp/bin:/usr/bin"}))))


def test_passed_variables_are_those_the_ceiling_names() -> None:
    """A language passes; credentials of the host do not, whatever the driver says."""
    spec = driver(sandbox={"env": EnvRules(passed=("LANG", "TZ"))})
    found = plan(spec, host(passed_env={"LANG": "C.UTF-8", "GITHUB_TOKEN": "x"}))
    line = refused(driver(sandbox={"env": EnvRules(passed=("GITHUB_TOKEN",))}), host(passed_env={"GITHUB_TOKEN": "x"}))

    assert EnvEntry("LANG", "C.UTF-8", origin="host") in found.env
    assert "TZ" not in {entry.name for entry in found.env}
    assert {"PLAN-042"} == set(line)


def test_values_of_host_variables_are_not_in_the_json() -> None:
    """A plan that is pasted into a review tells names only."""
    spec = driver(sandbox={"env": EnvRules(passed=("LANG",))})
    body = plan(spec, host(passed_env={"LANG": "xx_YY.private"})).to_json()

    assert "xx_YY.private" not in str(body)


def test_variable_set_twice_differently_is_refused() -> None:
    """Which of two values holds is not for us to pick."""
    server = NpmServer(kind="npm", package="p@1", env={"A": "1"})

    assert {"PLAN-043"} == set(refused(driver(server=server, sandbox={"env": EnvRules(fixed={"A": "2"})})))


# --- network --------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-PLAN-02")
def test_network_without_a_broker_is_refused() -> None:
    """Destinations are refused, never dropped, where nothing can enforce them."""
    assert {"PLAN-050"} == set(refused(driver(egress=("api.example.com",))))


def test_network_with_a_broker_names_exactly_the_rules() -> None:
    """Each entry becomes one rule, with the profile that has INET."""
    found = plan(driver(egress=("api.example.com", "db.example.com:5432")), host(egress_available=True))

    assert (found.network.mode, found.seccomp) == ("broker", "net")
    assert [(rule.host, rule.ports) for rule in found.network.rules] == [
        ("api.example.com", (443,)),
        ("db.example.com", (5432,)),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [("db.example.com:5432", {"PLAN-052", "PLAN-053"}), ("api.example.com:8443", {"PLAN-052"}), ("*", {"EGR-004"})],
)
def test_destination_beyond_the_ceiling_is_refused(entry: str, expected: set[str]) -> None:
    """The strict ceiling has TLS on one port; no ceiling has every host at once."""
    found = refused(driver(egress=(entry,)), host(egress_available=True), ceiling=planning.strict())

    assert set(found) & expected
    assert set(found) <= expected


def test_host_ca_needs_network_ceiling_and_bundle() -> None:
    """The host's CAs are trusted only where that is allowed and means something."""
    spec = driver(sandbox={"trust_host_ca": True})
    online = driver(sandbox={"trust_host_ca": True}, egress=("api.example.com",))
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    found = plan(online, host(egress_available=True, ca_bundle=bundle))

    assert {"PLAN-057"} == set(refused(spec, host(ca_bundle=bundle)))
    assert {"PLAN-057"} == set(refused(online, host(egress_available=True)))
    assert Mount(bundle, baseline.CA_TARGET, writable=False) in found.mounts
    assert EnvEntry("SSL_CERT_FILE", baseline.CA_TARGET) in found.env


def test_local_port_is_in_the_plan_where_it_can_be_carried() -> None:
    """A local HTTP server's port on the sandbox's own loopback is part of what was decided."""
    server = NpmServer(kind="npm", package="p@1", port=8080, endpoint="/mcp")
    found = plan(driver(server=server, transport="http"), host(transports=("stdio", "http")))

    assert (found.transport, found.port) == ("http", 8080)
