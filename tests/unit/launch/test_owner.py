"""Who owns what a run left: the living are spared, the dead are not, and what cannot be told is spared."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from sandbox.launch import owner


def test_this_process_is_alive() -> None:
    """A supervisor's own containers are spared."""
    assert "alive" == owner.judge(owner.own())


def other(**parts: str) -> str:
    """Return this process's label with one part replaced."""
    names = ("boot", "pid", "start", "namespace")
    values = dict(zip(names, owner.own().split(":"), strict=True)) | parts
    return ":".join(values[name] for name in names)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (other(start="1"), "dead"),
        (other(boot="0" * 36), "dead"),
        (other(pid=str(2**22 + 1)), "dead"),
        (other(namespace="1"), "unknown"),
        (other(pid="x"), "unknown"),
        ("", "unknown"),
        ("a:1", "unknown"),
    ],
    ids=["start", "boot", "pid", "namespace", "no pid", "empty", "too short"],
)
def test_each_part_of_the_label_decides(label: str, expected: str) -> None:
    """A pid that is used again, a reboot and another PID namespace are told apart."""
    assert expected == owner.judge(label)


def test_a_process_that_ended_is_dead_also_while_its_parent_has_not_noticed() -> None:
    """A zombie owns nothing."""
    child = subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE)
    label = ":".join([owner._boot_id(), str(child.pid), owner._start_time(child.pid), owner._pid_namespace()])
    before = owner.judge(label)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    time.sleep(0)
    after = owner.judge(label)
    child.communicate()

    assert ("alive", "dead") == (before, after)


def test_run_ids_are_not_guessable() -> None:
    """Two runs never share a label."""
    found = {owner.new_run_id() for _ in range(100)}

    assert (100, {32}) == (len(found), {len(item) for item in found})
