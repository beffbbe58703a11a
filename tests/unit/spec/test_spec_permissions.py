from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.limits import MIB
from sandbox.policy.hosts import parse_rule
from sandbox.spec.hosts import wrong
from sandbox.spec.model import FsGrant, FsRules, Limits, SandboxRules
from tests.unit.spec.folders import SECRET, checked, driver, errors, loaded, warnings, write


def sandbox(**block: Any) -> dict[str, Any]:
    """Return a driver with another `sandbox` block and no top-level `network`."""
    return driver(sandbox=block, network=None)


def test_an_absent_block_grants_nothing(tmp_path: Path) -> None:
    """Without `sandbox`, `network` and `limits` there are no paths, hosts, variables and limits of its own (B0-11)."""
    spec = loaded(tmp_path, driver(sandbox=None, network=None, limits=None))

    assert (SandboxRules(), (), (), Limits()) == (spec.sandbox, spec.egress, spec.ingress, spec.limits)
    assert (FsRules(), ()) == (spec.sandbox.fs, spec.sandbox.env.passed)


def test_the_whole_block_becomes_values(tmp_path: Path) -> None:
    """Every key of the AIP-29 block and ours arrives."""
    block = {
        "network": {"egress": ["API.example.com", "*.example.org:443"], "ingress": []},
        "fs": {
            "read": ["/srv/data/**", {"path": "~/notes", "at": "/notes"}, {"path": "./x/", "at": "/x/"}],
            "write": [{"path": "out", "at": "/out"}],
            "deny": ["~/.ssh/**", "/srv/data/private"],
        },
        "exec": {"allow": True, "spawn": ["git"]},
        "env": {"pass": ["LANG"], "set": {"A": "b", "K": "${secrets.API_KEY}"}},
        "tty": {"required": False},
        "runtime": "runsc",
        "trust_host_ca": True,
    }

    spec = loaded(tmp_path, sandbox(**block), secrets=[SECRET])

    assert ("api.example.com", "*.example.org:443") == spec.egress
    assert (
        FsGrant(path="/srv/data", at="/srv/data"),
        FsGrant(path="~/notes", at="/notes"),
        FsGrant(path="x", at="/x"),
    ) == spec.sandbox.fs.read
    assert (FsGrant(path="out", at="/out"),) == spec.sandbox.fs.write
    assert ("~/.ssh", "/srv/data/private") == spec.sandbox.fs.deny
    assert (True, ("git",)) == (spec.sandbox.exec.allow, spec.sandbox.exec.spawn)
    assert {"A": "b", "K": "${secrets.api-key}"} == dict(spec.sandbox.env.fixed)
    assert ("runsc", True) == (spec.sandbox.runtime, spec.sandbox.trust_host_ca)


# --- paths ------------------------------------------------------------------------------------------------------------
@pytest.mark.claim("P-SPEC-07")
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("data", "SPEC-151"),
        ("./data", "SPEC-151"),
        ("~/notes", "SPEC-151"),
        ("**/.git/**", "SPEC-151"),
        ("../x", "SPEC-151"),
        ("/srv/*", "SPEC-154"),
        ("/srv/**/x", "SPEC-154"),
        ("/srv/../etc", "SPEC-154"),
        ("/srv:/etc", "SPEC-154"),
        ("/srv,readonly=false", "SPEC-154"),
        ("//srv", "SPEC-154"),
        ("/srv\nx", "SPEC-154"),
        ("/srv/${HOME}", "SPEC-154"),
        ("", "SPEC-043"),
        (7, "SPEC-043"),
        (None, "SPEC-043"),
        ("/", "SPEC-155"),
        ("/**", "SPEC-154"),
        ("/proc", "SPEC-155"),
        ("/sys/kernel/**", "SPEC-155"),
        ("/dev/mem", "SPEC-155"),
        ({"path": "/srv"}, "SPEC-041"),
        ({"path": "/srv", "at": "srv"}, "SPEC-155"),
        ({"path": "/srv", "at": "/a/../b"}, "SPEC-155"),
        ({"path": "/srv", "at": "/a:b"}, "SPEC-155"),
        ({"path": "/srv", "at": "/proc/self"}, "SPEC-155"),
        ({"path": "/srv", "at": "/./"}, "SPEC-155"),
        ({"path": "/srv", "at": "//x"}, "SPEC-155"),
        ({"path": "/srv", "at": "/x", "mode": "rw"}, "SPEC-042"),
        ({"path": "/srv", "At": "/x"}, "SPEC-042"),
        ({"path": "~root/x", "at": "/x"}, "SPEC-154"),
        ({"path": "../x", "at": "/x"}, "SPEC-154"),
        ({"path": "a\\b", "at": "/x"}, "SPEC-154"),
        ({"path": "${HOME}", "at": "/x"}, "SPEC-072"),
    ],
)
def test_a_path_that_does_not_say_what_is_mounted_where_is_refused(tmp_path: Path, entry: Any, expected: str) -> None:
    """Relative strings, globs, `..`, separators of mount options and kernel file systems are refused (probe D04)."""
    for key in ("read", "write"):
        problems = checked(tmp_path / key, sandbox(fs={key: [entry]}))[1]

        assert expected in [id_ for id_, field in errors(problems) if field.startswith(f"sandbox.fs.{key}")]


@pytest.mark.parametrize("entry", ["**/.env", ".ssh", "*.pem", "~/.ssh/*", "/a/../b", "~other/x"])
def test_a_denial_that_cannot_be_kept_is_refused(tmp_path: Path, entry: str) -> None:
    """A pattern in `deny` is refused rather than half enforced."""
    found = errors(checked(tmp_path, sandbox(fs={"deny": [entry]}))[1])

    assert found in ([("SPEC-157", "sandbox.fs.deny[0]")], [("SPEC-154", "sandbox.fs.deny[0]")])


@pytest.mark.parametrize(
    ("fs", "field"),
    [
        ({"read": [{"path": "/a", "at": "/x"}, {"path": "/b", "at": "/x"}]}, "sandbox.fs.read[1]"),
        ({"read": [{"path": "/a", "at": "/x"}], "write": [{"path": "/b", "at": "/x/"}]}, "sandbox.fs.write[0]"),
        ({"read": ["/a"], "write": [{"path": "/a/", "at": "/y"}]}, "sandbox.fs.write[0]"),
        ({"read": ["/a/**"], "write": [{"path": "/a", "at": "/y"}]}, "sandbox.fs.write[0]"),
    ],
)
def test_a_place_or_path_that_is_granted_twice_is_refused(tmp_path: Path, fs: dict[str, Any], field: str) -> None:
    """One place has one source, and one path is for reading or for writing."""
    assert [("SPEC-156", field)] == errors(checked(tmp_path, sandbox(fs=fs))[1])


def test_the_driver_folder_is_not_writable(tmp_path: Path) -> None:
    """A server may read its driver folder and may not rewrite its own DRIVER.md."""
    loaded(tmp_path / "read", sandbox(fs={"read": [{"path": ".", "at": "/driver"}]}))

    for path in (".", "./", "./."):
        problems = checked(tmp_path / "write", sandbox(fs={"write": [{"path": path, "at": "/driver"}]}))[1]

        assert [("SPEC-153", "sandbox.fs.write[0].path")] == errors(problems)


# --- hosts ------------------------------------------------------------------------------------------------------------
GOOD_HOSTS = [
    "api.example.com",
    "api.example.com:5432",
    "*.example.org",
    "*.example.org:443",
    "https://api.example.com",
    "http://api.example.com:8080",
    "tcp://db.internal:5432",
    "xn--bcher-kva.example",
    "198.51.100.7",
    "198.51.100.7:22",
    "198.51.100.0/24",
    "[2001:db8::1]",
    "[2001:db8::1]:443",
    "_dmarc.example.com",
    "host:443,8443",
]

BAD_HOSTS = [
    "*",
    "*:443",
    "tcp://*",
    "*.com",
    "0.0.0.0/0",
    "[::/0]",
    "api.*.com",
    "*example.com",
    "ex*mple.com",
    "api.example.com/path",
    "user@api.example.com",
    "user:pw@api.example.com",
    "api.example.com.",
    ".example.com",
    "api..example.com",
    "api example.com",
    "api.example.com:0",
    "api.example.com:99999",
    "api.example.com:x",
    "api.example.com:",
    "ftp://api.example.com",
    "127.1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "2130706433",
    "198.51.100.7/24",
    "1.2.3.4.5",
    "2001:db8::1",
    "[2001:db8::1",
    "[fe80::1%eth0]",
    "api%2eexample.com",
    "-a.example.com",
    "a" * 64 + ".example.com",
    "a." * 127 + "example",
    "${secrets.HOST}",
    "a\\b",
    "example.0x1",
]


@pytest.mark.parametrize("entry", GOOD_HOSTS)
def test_hosts_that_policy_reads_are_admitted(tmp_path: Path, entry: str) -> None:
    """Every form of the policy's grammar passes, unchanged but for its case."""
    assert (entry,) == loaded(tmp_path, driver(network={"egress": [entry]})).egress
    assert parse_rule(entry)


@pytest.mark.claim("P-SPEC-08")
@pytest.mark.parametrize("entry", BAD_HOSTS)
def test_hosts_that_mean_two_things_or_everything_are_refused(tmp_path: Path, entry: str) -> None:
    """A list that opens everything, and a name that parsers read in two ways, are refused with their line."""
    assert [("SPEC-140", "network.egress[0]")] == errors(checked(tmp_path, driver(network={"egress": [entry]}))[1])


def test_a_name_that_is_not_ascii_is_a_warning(tmp_path: Path) -> None:
    """An international name passes with a warning, for look-alike letters hide in it."""
    values = driver(network={"egress": ["bücher.example"]}, sandbox=None)

    assert [("SPEC-141", "network.egress[0]")] == warnings(checked(tmp_path, values)[1])
    assert not wrong("bücher.example")


def test_ingress_is_refused(tmp_path: Path) -> None:
    """Nothing in a sandbox can be reached from outside, at either place."""
    assert [("SPEC-120", "network.ingress")] == errors(checked(tmp_path, driver(network={"ingress": ["https://x"]}))[1])
    inner = driver(sandbox={"network": {"ingress": ["https://x"]}}, network=None)

    assert [("SPEC-120", "sandbox.network.ingress")] == errors(checked(tmp_path, inner)[1])


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (["a.example"], ["a.example"], ("a.example",)),
        (["a.example", "b.example"], ["B.example", "a.example"], ("a.example", "b.example")),
        (None, ["a.example"], ("a.example",)),
        ([], [], ()),
        (["a.example"], [], None),
        ([], ["a.example"], None),
        (["a.example"], ["b.example"], None),
    ],
)
def test_the_two_egress_lists_must_agree(
    tmp_path: Path, outer: list[str] | None, inner: list[str], expected: tuple[str, ...] | None
) -> None:
    """`network.egress` and `sandbox.network.egress` are one list or refused."""
    network = None if outer is None else {"egress": outer}
    spec, problems = checked(tmp_path, driver(network=network, sandbox={"network": {"egress": inner}}))

    if expected is None:
        assert [("SPEC-121", "sandbox.network.egress")] == errors(problems)
    else:
        assert spec is not None
        assert expected == spec.egress


def test_the_line_of_a_nested_egress_entry_is_known_to_later_stages(tmp_path: Path) -> None:
    """A later stage that speaks of `network.egress[0]` finds the line of the nested list."""
    folder = write(tmp_path)
    text = "sandbox:\n  network:\n    egress:\n      - a.example\n"
    front = (folder / "DRIVER.md").read_text().split("\n")
    kept = [line for line in front if not line.startswith(('"network"', '"sandbox"'))]
    spec = loaded(tmp_path, "\n".join([*kept[:-2], text + kept[-2], ""]))

    assert len(kept) + 2 == spec.where("network.egress[0]").line


# --- process ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"tty": {"required": True}}, ("SPEC-122", "sandbox.tty.required")),
        ({"exec": {"allow": False, "spawn": ["git"]}}, ("SPEC-123", "sandbox.exec.spawn")),
        ({"exec": {"spawn": ["git"]}}, ("SPEC-041", "sandbox.exec.allow")),
        ({"exec": {"allow": "no"}}, ("SPEC-043", "sandbox.exec.allow")),
        ({"env": {"pass": ["A"], "set": {"A": "b"}}}, ("SPEC-124", "sandbox.env.pass[0]")),
        ({"env": {"set": {"PORT": 8080}}}, ("SPEC-043", "sandbox.env.set.PORT")),
        ({"runtime": "../runc"}, ("SPEC-045", "sandbox.runtime")),
        ({"runtime": "runc --debug"}, ("SPEC-045", "sandbox.runtime")),
        ({"trust_host_ca": "yes"}, ("SPEC-043", "sandbox.trust_host_ca")),
        ({"fs": None}, ("SPEC-043", "sandbox.fs")),
        ({"fs": {"read": None}}, ("SPEC-043", "sandbox.fs.read")),
        ({"privileged": True}, ("SPEC-042", "sandbox.privileged")),
        ({"network": {"mode": "host"}}, ("SPEC-042", "sandbox.network.mode")),
        ({"provider": "mastra-e2b"}, ("SPEC-125", "sandbox.provider")),
        ({"provider": "local", "config": {"shell": "/bin/sh"}}, ("SPEC-127", "sandbox.config")),
        ({"read_only": True}, ("SPEC-126", "sandbox.read_only")),
        ({"identity": {"ref": "bot://x"}}, ("SPEC-127", "sandbox.identity")),
        ({"policy": {"ref": "x"}}, ("SPEC-127", "sandbox.policy")),
        ({"inline": {"provider": "local"}}, ("SPEC-042", "sandbox.inline")),
        (
            {"mounts": [{"source": "workspace", "at": "/w", "mode": "read-only"}]},
            ("SPEC-152", "sandbox.mounts[0].source"),
        ),
        (
            {"mounts": [{"source": {"ref": "@a/b"}, "at": "/w", "mode": "read-only"}]},
            ("SPEC-152", "sandbox.mounts[0].source"),
        ),
        (
            {"mounts": [{"source": {"file": "x.STORAGE.md"}, "at": "/w", "mode": "read-only"}]},
            ("SPEC-152", "sandbox.mounts[0].source"),
        ),
        ({"mounts": [{"source": {"file": "/srv"}, "at": "/w"}]}, ("SPEC-150", "sandbox.mounts[0].mode")),
        (
            {"mounts": [{"source": {"file": "/srv"}, "at": "w", "mode": "read-only"}]},
            ("SPEC-155", "sandbox.mounts[0].at"),
        ),
    ],
)
def test_what_is_not_carried_out_is_refused(tmp_path: Path, block: dict[str, Any], expected: tuple[str, str]) -> None:
    """A key that is unknown, contradictory, or that this supervisor cannot honour refuses the driver."""
    assert [expected] == errors(checked(tmp_path, sandbox(**block))[1])


def test_what_maps_exactly_from_aip_36_is_honoured(tmp_path: Path) -> None:
    """Limits, path mounts, passed variables, secrets and hosts of an AIP-36 block become the same values."""
    block = {
        "provider": "local",
        "config": {},
        "limits": {"timeout_ms": 9000, "memory_mb": 128},
        "env": {"auth": {"ref": "./SECRETS.md", "state": {"env": ["API_KEY"]}}, "passthrough": ["LANG"]},
        "network": {"egress": ["api.example.com"]},
        "mounts": [
            {"source": {"file": "./data"}, "at": "/data", "mode": "read-only"},
            {"source": {"file": "/srv/out"}, "at": "/out", "mode": "read-write"},
        ],
        "lifecycle": {"pause_after_idle_ms": 1, "destroy_on_workspace_close": True},
    }

    spec, problems = checked(tmp_path, sandbox(**block), secrets=[SECRET])

    assert spec is not None, problems
    assert [("SPEC-128", "sandbox.lifecycle")] == warnings(problems)
    assert (FsGrant(path="data", at="/data"),) == spec.sandbox.fs.read
    assert (FsGrant(path="/srv/out", at="/out"),) == spec.sandbox.fs.write
    assert (("LANG",), ("api.example.com",)) == (spec.sandbox.env.passed, spec.egress)
    assert "${secrets.api-key}" == spec.server.env["API_KEY"]  # type: ignore[union-attr]
    assert (9.0, 128 * MIB) == (spec.limits.call_timeout, spec.limits.memory_bytes)


# --- limits -----------------------------------------------------------------------------------------------------------
def test_every_limit_arrives_in_its_unit(tmp_path: Path) -> None:
    """MiB become bytes, milliseconds become seconds."""
    limits = {
        "memory_mb": 256,
        "timeout_ms": 1500,
        "cpus": 2,
        "pids": 64,
        "nofile": 512,
        "fsize_mb": 10,
        "tmp_mb": 20,
        "lifetime_s": 3600,
    }

    expected = Limits(
        memory_bytes=256 * MIB,
        call_timeout=1.5,
        cpus=2,
        pids=64,
        nofile=512,
        fsize_bytes=10 * MIB,
        tmp_bytes=20 * MIB,
        lifetime=3600,
    )
    assert expected == loaded(tmp_path, driver(limits=limits)).limits


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"limits": {"memory_mb": 0}}, ("SPEC-045", "limits.memory_mb")),
        ({"limits": {"memory_mb": -1}}, ("SPEC-045", "limits.memory_mb")),
        ({"limits": {"memory_mb": 2**40}}, ("SPEC-045", "limits.memory_mb")),
        ({"limits": {"memory_mb": 1.5}}, ("SPEC-043", "limits.memory_mb")),
        ({"limits": {"memory_mb": "128"}}, ("SPEC-043", "limits.memory_mb")),
        ({"limits": {"memory_mb": True}}, ("SPEC-043", "limits.memory_mb")),
        ({"limits": {"memory_mb": None}}, ("SPEC-043", "limits.memory_mb")),
        ({"limits": {"memory": 128}}, ("SPEC-042", "limits.memory")),
        ({"limits": {"memroy_mb": 128}}, ("SPEC-042", "limits.memroy_mb")),
        ({"limits": {"cpus": 0}}, ("SPEC-045", "limits.cpus")),
        ({"limits": {"cpu_ms": 1000}}, ("SPEC-133", "limits.cpu_ms")),
        ({"runner": {"limits": {"cpu_ms": 1000}}}, ("SPEC-133", "runner.limits.cpu_ms")),
        ({"runner": {"limits": {"pids": 5}}}, ("SPEC-042", "runner.limits.pids")),
        ({"runner": {"limits": {"memory_mb": 64}}}, ("SPEC-132", "runner.limits.memory_mb")),
        ({"sandbox": {"limits": {"timeout_ms": 1}}}, ("SPEC-132", "sandbox.limits.timeout_ms")),
        (
            {"limits": None, "runner": {"limits": {"timeout_ms": 1}}, "sandbox": {"limits": {"timeout_ms": 2}}},
            ("SPEC-132", "sandbox.limits.timeout_ms"),
        ),
        ({"limits": []}, ("SPEC-043", "limits")),
        ({"limits": {}, "runner": {"image": "mcp-node-server"}}, ("SPEC-130", "runner.image")),
        ({"runner": {"needs": {"native": ["ffmpeg"]}}}, ("SPEC-131", "runner.needs.native")),
        ({"runner": {"engine": "vm"}}, ("SPEC-044", "runner.engine")),
        ({"runner": "./RUNNER.md"}, ("SPEC-010", "runner")),
    ],
)
def test_limits_that_cannot_be_kept_or_disagree_are_refused(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    """A limit is never rounded, ignored or chosen among two."""
    assert [expected] == errors(checked(tmp_path, driver(network=None, **changes))[1])


def test_equal_limits_may_stand_twice(tmp_path: Path) -> None:
    """The same number in two places is one limit."""
    values = driver(runner={"engine": "sandbox", "limits": {"memory_mb": 128}})

    assert 128 * MIB == loaded(tmp_path, values).limits.memory_bytes


def test_in_process_is_downgraded_aloud(tmp_path: Path) -> None:
    """`runner.engine: in-process` is not honoured, which is said (AIP-17)."""
    values = driver(runner={"engine": "in-process"}, sandbox=None)

    assert [("SPEC-129", "runner.engine")] == warnings(checked(tmp_path, values)[1])


@pytest.mark.parametrize("text", ["runner:\n  limits: {pids: 5}", "limits: {pids: 5}", "limit: {memory_mb: 5}"])
def test_runner_md_is_read_like_the_block(tmp_path: Path, text: str) -> None:
    """RUNNER.md holds the block, below `runner` or alone, and a wrong one is refused alike."""
    folder = write(tmp_path)
    (folder / "RUNNER.md").write_text(f"---\n{text}\n---\n")

    problems = checked(tmp_path, driver(runner="./RUNNER.md", limits=None))[1]
    (folder / "RUNNER.md").write_text("---\nlimits: {memory_mb: 64}\n---\n")

    assert ["SPEC-042"] == [id_ for id_, _ in errors(problems)]
    assert 64 * MIB == loaded(tmp_path, driver(runner="./RUNNER.md", limits=None)).limits.memory_bytes
