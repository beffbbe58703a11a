"""Engine messages are sorted by fault; texts that a driver or server chose never decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import PlatformError, ServerFault
from sandbox.launch import failure

INIT = "error during container init: "
HINT = (
    ": unknown: Are you trying to mount a directory onto a file (or vice-versa)? Check if the specified host path "
    "exists and is the expected type"
)
NOT_A_DIRECTORY = (
    'error mounting "/etc/hostname" to rootfs at "/data": mount /etc/hostname:/data (via /proc/self/fd/6), flags: '
    "0x1001: not a directory"
)
RLIMIT = "error setting rlimits for ready process: error setting rlimit type 7: operation not permitted: unknown"
CONFLICT = (
    'Conflict. The container name "/x" is already in use by container "c8b6". You have to remove (or rename) that '
    "container to be able to reuse that name."
)
BAD_ACTION = (
    "failed to create shim task: OCI runtime create failed: runc create failed: string SCMP_ACT_FOO is not a valid "
    "action for seccomp: unknown"
)
RUNC = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
OLD_RUNC = "OCI runtime create failed: container_linux.go:380: starting container process caused: "

# Captured from Docker 20.10.24 with containerd 1.6.20 and runc 1.1.5; lines marked "older" from runc 1.0.
CAPTURED = [
    ("create", 404, "No such image: sha256:1111", "LAUNCH-010"),
    ("create", 404, "No such image: mcp-sandbox/absent:1", "LAUNCH-010"),
    ("create", 400, "Unknown runtime specified runsc", "LAUNCH-021"),
    ("start", 400, "unknown or invalid runtime name: kata", "LAUNCH-021"),
    (
        "create",
        400,
        'invalid mount config for type "bind": bind source path does not exist: /nonexistent/x',
        "LAUNCH-022",
    ),
    (
        "create",
        400,
        "invalid mount config for type \"bind\": invalid specification: destination can't be '/'",
        "LAUNCH-023",
    ),
    ("start", 400, RUNC + INIT + NOT_A_DIRECTORY + HINT, "LAUNCH-023"),
    ("start", 400, RUNC + INIT + "mkdir /proc/self/fd/7: not a directory" + HINT, "LAUNCH-023"),
    ("start", 500, 'invalid tmpfs option ["foo" "bar"]', "LAUNCH-023"),
    ("start", 500, RUNC + INIT + RLIMIT, "LAUNCH-026"),
    ("create", 400, "Minimum memory limit allowed is 6MB", "LAUNCH-027"),
    ("create", 400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", "LAUNCH-027"),
    ("create", 400, "Minimum memoryswap limit should be larger than memory limit, see usage", "LAUNCH-027"),
    ("start", 500, "Decoding seccomp profile failed: unexpected end of JSON input", "LAUNCH-031"),
    ("start", 500, BAD_ACTION, "LAUNCH-031"),
    ("start", 404, "No such container: doesnotexist", "LAUNCH-032"),
    ("start", 404, "network nonet-absent not found", "LAUNCH-032"),
    ("start", 500, "unable to find user nobodyhere: no matching entries in passwd file", "LAUNCH-033"),
    ("create", 409, CONFLICT, "LAUNCH-034"),
    ("start", 500, RUNC + "error during container init: sethostname: invalid argument: unknown", "LAUNCH-029"),
    ("create", 400, 'invalid CapAdd: unknown capability: "CAP_NOPE"', "LAUNCH-028"),
    ("start", 500, "write /var/lib/docker/containers/x/.tmp-config.v2.json: no space left on device", "LAUNCH-024"),
    ("start", 500, "fork/exec /usr/bin/containerd-shim-runc-v2: resource temporarily unavailable", "LAUNCH-025"),
]

EXEC = [
    RUNC + 'exec: "/nope": stat /nope: no such file or directory: unknown',
    RUNC + 'exec: "nope": executable file not found in $PATH: unknown',
    RUNC + 'exec: "/etc": permission denied: unknown',
    RUNC + 'error during container init: exec: "/app": exec format error: unknown',
    OLD_RUNC + 'exec: "/nope": stat /nope: no such file or directory: unknown',  # older
]


@pytest.mark.parametrize(("step", "status", "reason", "expected"), CAPTURED)
def test_a_platform_failure_is_sorted(step: failure.Step, status: int, reason: str, expected: str) -> None:
    """A captured message gets its id and is the platform's fault."""
    error = failure.classify(step, status, reason)

    assert (expected, True) == (error.id, isinstance(error, PlatformError))


@pytest.mark.parametrize("reason", EXEC)
def test_a_program_that_cannot_be_executed_is_the_servers_fault(reason: str) -> None:
    """A missing or foreign program is not blamed on the engine."""
    error = failure.classify("start", 400, reason, ["/nope"])

    assert ("LAUNCH-040", True) == (error.id, isinstance(error, ServerFault))


# --- must not fire on texts that a driver or server chose -------------------------------------------------------------
PHRASES = [
    "no space left on device",
    "cannot allocate memory",
    "No such image: x",
    "error setting rlimit",
    "seccomp",
    "cgroup",
    "Unknown runtime specified",
    "bind source path does not exist",
    "unable to find user",
    "cannot join network",
]


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_program_named_like_a_platform_failure_stays_the_servers_fault(phrase: str) -> None:
    """A driver whose program is called "no space left on device" cannot blame the platform."""
    reason = RUNC + f'exec: "{phrase}": stat {phrase}: no such file or directory: unknown'

    assert "LAUNCH-040" == failure.classify("start", 400, reason, [phrase]).id


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_platform_failure_that_quotes_a_driver_keeps_its_id(phrase: str) -> None:
    """A path or variable that contains another failure's words does not change the verdict."""
    reason = RUNC + f'error during container init: environment variable name can\'t contain null: "{phrase}": unknown'

    assert "LAUNCH-029" == failure.classify("start", 500, reason, [phrase]).id


def test_a_platform_failure_cannot_be_made_the_servers_by_a_name() -> None:
    """A mount target that reads like a failed exec stays a platform failure."""
    target = 'unable to start container process: exec: "x": permission denied'
    reason = RUNC + f"error during container init: sethostname {target}"

    assert isinstance(failure.classify("start", 500, reason, [target]), PlatformError)


def test_a_failed_exec_is_believed_at_the_start_only() -> None:
    """Words of a failed exec in an answer to create are the platform's."""
    assert isinstance(failure.classify("create", 400, EXEC[0]), PlatformError)


@given(st.text(max_size=300), st.lists(st.text(max_size=20), max_size=4), st.sampled_from([400, 404, 500]))
def test_any_text_is_sorted_into_one_line(reason: str, foreign: list[str], status: int) -> None:
    """Every message ends in an error whose sentence is one printable, bounded line."""
    error = failure.classify("start", status, reason, foreign)

    assert (True, True) == (error.message.isprintable(), len(error.message) < failure.MAX_REASON + 200)


def test_the_end_of_a_long_message_is_kept() -> None:
    """The cause stands last in what runc says."""
    assert failure.shorten("x" * 5000 + " the cause").endswith("the cause")
