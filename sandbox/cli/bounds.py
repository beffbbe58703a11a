"""The bounds of calls that hold for a command: the shipped ones, or those of the operator's policy file."""

from __future__ import annotations

import argparse
import functools

from sandbox.cli import options
from sandbox.policy.call_bounds import CallBounds, load_call_bounds
from sandbox.resources import shipped
from sandbox.supervisor.bounds import PoolBounds


@functools.cache
def shipped_bounds() -> CallBounds:
    """Return the bounds of the shipped file."""
    return load_call_bounds(shipped("policies", "default.toml").read_bytes(), "policies/default.toml")


def pool_bounds(bounds: CallBounds) -> PoolBounds:
    """Return the bounds of a pool of instances."""
    return PoolBounds(instances=bounds.instances, of_tenant=bounds.instances_of_tenant, idle=bounds.idle)


def call_bounds(arguments: argparse.Namespace) -> CallBounds:
    """Return the bounds of ``--policy``, else of ``policy.toml`` of this person, over the shipped ones.

    Raises:
        CeilingError: a file is not valid.
        UsageError: ``CLI-011``, the named file cannot be read.
    """
    base = shipped_bounds()
    named = getattr(arguments, "policy", None)
    own = named or (options.CONFIG / "policy.toml")
    if named is None and not own.exists():
        return base
    return load_call_bounds(options.read_file(own), str(own), base)
