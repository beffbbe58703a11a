"""The drivers that ship: their marks, templates and examples fit the guard, and the starter policy fits them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.policy.cedar import PolicySet
from sandbox.policy.request import DriverFacts, ToolFacts
from sandbox.policy.schema import check
from sandbox.resources import shipped
from sandbox.serve.guard import ToolGuard
from sandbox.serve.marks import find_marked
from sandbox.serve.paths import Roots
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules
from sandbox.spec.load import load_driver
from sandbox.spec.model import DriverSpec

DRIVERS = sorted(path.parent.name for path in shipped("drivers").glob("*/DRIVER.md"))


def load(name: str) -> DriverSpec:
    """Return a shipped driver."""
    return load_driver(Path(shipped("drivers", name, "DRIVER.md")))


def rules_of(spec: DriverSpec) -> UriRules:
    """Return what its plan would hold URIs to."""
    roots = [grant.at for grant in (*spec.sandbox.fs.read, *spec.sandbox.fs.write)]
    templates = tuple(Template(resource.uri_template) for resource in spec.resources)
    return UriRules(Roots(roots), roots[0] if roots else "", templates, lambda _host, _port: None)


@pytest.mark.parametrize("name", DRIVERS)
def test_the_examples_of_a_driver_pass_its_guard(name: str) -> None:
    """Every example of every contract is forwarded as it stands."""
    spec = load(name)
    rules = rules_of(spec)
    wrong = []
    for binding in spec.bindings:
        guard = ToolGuard(binding, rules)
        for example in binding.contract.examples:
            given = example.get("input", example.get("inputs", example.get("arguments", {})))
            if dict(guard.check(given)) != dict(given):
                wrong.append((binding.contract.id, given))

    assert wrong == []


def test_tools_that_take_paths_are_marked() -> None:
    """An input named like a path is marked, in every driver with granted directories."""
    unmarked = []
    for name in DRIVERS:
        spec = load(name)
        for binding in spec.bindings if spec.sandbox.fs.read or spec.sandbox.fs.write else ():
            places = "".join(find_marked(binding.contract.inputs))
            names = dict(binding.contract.inputs.get("properties") or {})
            unmarked += [(name, binding.contract.id, key) for key in names if "path" in key and f"/{key}" not in places]

    assert unmarked == []


def test_the_starter_policy_fits_all_drivers() -> None:
    """The rules that ship are valid for every tool that ships."""
    policy = PolicySet.load([("starter.cedar", shipped("policies", "starter.cedar").read_text())])
    drivers = {name: DriverFacts(load(name).id) for name in DRIVERS}
    tools = [
        ToolFacts(drivers[name], binding.contract.id, inputs=binding.contract.inputs)
        for name in DRIVERS
        for binding in load(name).bindings
    ]

    assert check(policy.rules, drivers.values(), tools) == ()
