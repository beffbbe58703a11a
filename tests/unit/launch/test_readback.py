"""Whatever an engine runs beside what it was asked shows as a difference; captured from a real engine."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch.readback import differences, is_neutral
from tests.shared import ROOT

CAPTURE = json.loads((ROOT / "tests" / "data" / "launch" / "inspect-docker-20.10.json").read_text())
REQUEST: dict[str, Any] = CAPTURE["request"]
INSPECTED: dict[str, Any] = CAPTURE["inspected"]

HOST_CONFIG = {
    "Privileged": True,
    "CapAdd": ["SYS_ADMIN"],
    "CapDrop": [],
    "SecurityOpt": ["no-new-privileges", "seccomp=unconfined"],
    "ReadonlyRootfs": False,
    "PidMode": "host",
    "IpcMode": "host",
    "UTSMode": "host",
    "UsernsMode": "host",
    "CgroupnsMode": "host",
    "NetworkMode": "host",
    "Memory": 0,
    "MemorySwap": -1,
    "NanoCpus": 0,
    "PidsLimit": -5,
    "Ulimits": [],
    "OomKillDisable": True,
    "OomScoreAdj": -900,
    "ShmSize": 1 << 40,
    "Init": None,
    "Runtime": "other",
    "LogConfig": {"Type": "json-file", "Config": {}},
    "RestartPolicy": {"Name": "always", "MaximumRetryCount": 0},
    "AutoRemove": True,
    "PublishAllPorts": True,
    "PortBindings": {"80/tcp": [{"HostPort": "80"}]},
    "Binds": ["/:/host"],
    "Mounts": [],
    "Tmpfs": {},
    "Devices": [{"PathOnHost": "/dev/mem", "PathInContainer": "/dev/mem", "CgroupPermissions": "rwm"}],
    "DeviceCgroupRules": ["a *:* rwm"],
    "DeviceRequests": [{"Driver": "nvidia", "Count": -1}],
    "Sysctls": {"net.ipv4.ip_forward": "1"},
    "MaskedPaths": [],
    "ReadonlyPaths": [],
    "GroupAdd": ["0"],
    "CgroupParent": "/",
    "VolumesFrom": ["other"],
    "VolumeDriver": "nfs",
    "Links": ["/other:/alias"],
    "ExtraHosts": ["metadata:169.254.169.254"],
    "Dns": ["8.8.8.8"],
    "Isolation": "hyperv",
    "CpuRealtimeRuntime": 950000,
    "StorageOpt": {"size": "1T"},
    "MemorySwappiness": 60,
    "AnOptionOfTheFuture": "on",
}
CONFIG = {
    "User": "0",
    "Env": [],
    "WorkingDir": "/proc/self/fd/7",
    "Tty": True,
    "OpenStdin": False,
    "StdinOnce": False,
    "AttachStdout": False,
    "Entrypoint": ["/bin/sh"],
    "Cmd": ["-c", "id"],
    "Healthcheck": {"Test": ["CMD", "/x"]},
    "StopSignal": "SIGUSR1",
    "Hostname": "host",
    "Labels": {},
    "Image": "other",
    "MacAddress": "02:42:ac:11:00:02",
    "AnOptionOfTheFuture": True,
}
TOP = {
    "Image": "sha256:" + "9" * 64,
    "Path": "/bin/sh",
    "Args": ["-c", "id"],
    "AppArmorProfile": "unconfined",
    "ExecIDs": ["abc"],
    "RestartCount": 1,
}
MOUNTS = [
    {"Type": "volume", "Name": "x", "Source": "/var/lib/docker/volumes/x", "Destination": "/x", "RW": True},
    {"Type": "bind", "Source": "/", "Destination": "/host", "Mode": "", "RW": False, "Propagation": "private"},
    {"Type": "tmpfs", "Source": "", "Destination": "/other", "RW": True},
]


def changed(part: str, name: str, value: Any) -> dict[str, Any]:
    """Return the capture with one field replaced."""
    found = copy.deepcopy(INSPECTED)
    place = found[part] if part else found
    assert place.get(name) != value
    place[name] = value
    return found


def test_what_was_asked_and_came_back_does_not_differ() -> None:
    """A real engine's description of a faithful container has no difference, whatever its image declared."""
    assert () == differences(REQUEST, INSPECTED)


@pytest.mark.parametrize("name", HOST_CONFIG)
def test_every_host_option_counts(name: str) -> None:
    """A host option that differs, or that nobody asked for, is found by its name."""
    found = differences(REQUEST, changed("HostConfig", name, HOST_CONFIG[name]))

    assert [f"HostConfig.{name}"] == [item.field for item in found]


@pytest.mark.parametrize("name", [name for name in CONFIG if name != "Env"])
def test_every_container_option_counts(name: str) -> None:
    """A container option that differs, or that nobody asked for, is found by its name."""
    found = differences(REQUEST, changed("Config", name, CONFIG[name]))

    assert [f"Config.{name}"] == [item.field for item in found]


@pytest.mark.parametrize("name", TOP)
def test_the_engines_own_findings_count(name: str) -> None:
    """Image, arguments, side doors and restarts are compared as well."""
    assert 1 == len(differences(REQUEST, changed("", name, TOP[name])))


@pytest.mark.parametrize("mount", MOUNTS, ids=lambda mount: mount["Type"])
def test_an_extra_mount_is_found(mount: dict[str, Any]) -> None:
    """A volume, a bind or a tmpfs that was not planned is a difference, also when HostConfig does not show it."""
    found = differences(REQUEST, changed("", "Mounts", [*INSPECTED["Mounts"], mount]))

    assert [f"mounts[{mount['Destination']}]"] == [item.field for item in found]


@pytest.mark.parametrize(
    ("member", "value"), [("RW", True), ("Source", "/"), ("Type", "volume"), ("Propagation", "rshared")]
)
def test_a_mount_made_otherwise_is_found(member: str, value: Any) -> None:
    """A planned mount that is writable, shared or of another source is a difference."""
    mounts = [{**INSPECTED["Mounts"][0], member: value}]

    assert ["mounts[/data]"] == [item.field for item in differences(REQUEST, changed("", "Mounts", mounts))]


@pytest.mark.parametrize(
    "settings",
    [
        {"Networks": {"none": {}, "bridge": {}}},
        {"Networks": {}},
        {"Networks": {"none": {"IPAddress": "172.17.0.2"}}},
        {"Networks": {"none": {}}, "Ports": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "80"}]}},
    ],
)
def test_a_network_that_was_not_planned_is_found(settings: dict[str, Any]) -> None:
    """A second network, an address or a published port is a difference."""
    assert differences(REQUEST, changed("", "NetworkSettings", settings))


@pytest.mark.parametrize(
    ("env", "fields"),
    [
        ([*REQUEST["Env"], "LD_PRELOAD=/evil.so"], ["env[LD_PRELOAD]"]),
        ([entry for entry in REQUEST["Env"] if not entry.startswith("PATH")], ["env[PATH]"]),
        ([entry.replace("/tmp", "/s3cret") for entry in REQUEST["Env"]], ["env[HOME]"]),
        ([*REQUEST["Env"][:-1], "NODE_OPTIONS="], ["env[NODE_OPTIONS]"]),
    ],
)
def test_a_variable_too_many_too_few_or_different_is_found(env: list[str], fields: list[str]) -> None:
    """The environment is exactly the planned one."""
    assert fields == [item.field for item in differences(REQUEST, changed("Config", "Env", env))]


def test_a_difference_never_shows_a_variables_value() -> None:
    """A secret that differs is named and not told."""
    found = differences(REQUEST, changed("Config", "Env", ["HOME=s3cret", *REQUEST["Env"][:1]]))

    assert "s3cret" not in repr(found)


def test_an_engine_that_leaves_a_section_out_is_not_believed() -> None:
    """A description without HostConfig has everything different, not nothing."""
    inspected = {name: value for name, value in INSPECTED.items() if name != "HostConfig"}

    assert {"HostConfig.CapDrop", "HostConfig.ReadonlyRootfs"} <= {
        item.field for item in differences(REQUEST, inspected)
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(min_size=1, max_size=8), json_values)
def test_an_unknown_option_is_a_difference_exactly_when_it_is_not_neutral(name: str, value: Any) -> None:
    """An option nobody knows yet is refused unless it asks for nothing."""
    inspected = copy.deepcopy(INSPECTED)
    inspected["HostConfig"]["Unknown" + name] = value

    assert is_neutral(value) == (differences(REQUEST, inspected) == ())
