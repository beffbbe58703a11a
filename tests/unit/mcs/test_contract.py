"""Our interface of the Model Context Standard is the published one, with its package and without."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from typing import Any

import pytest
from mcs.driver import core

from sandbox.mcs import SandboxedDriver, SandboxedToolDriver, contract, own
from tests.shared import ROOT

DATA = ("DriverBinding", "DriverMeta", "DriverResponse", "Tool", "ToolParameter")
ABSTRACT = ("MCSDriver", "MCSToolDriver", "SupportsHealthcheck", "ToolCallSignaling")
WITHOUT = (
    "import sys; sys.modules['mcs'] = None\n"
    "from sandbox.mcs import SandboxedDriver, own\n"
    f"driver = SandboxedDriver({str(ROOT / 'drivers' / 'text-mcp')!r})\n"
    "assert isinstance(driver, own.MCSDriver) and isinstance(driver, own.MCSToolDriver)\n"
    "answer = driver.process_llm_response.__self__.meta\n"
    "print(type(answer).__module__, answer.id)\n"
)


def shape(kind: type) -> list[tuple[str, Any]]:
    """Return names and defaults of a data class, in order."""
    return [(field.name, field.default) for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("name", DATA)
def test_our_data_has_the_published_fields_and_defaults(name: str) -> None:
    """Values of one interface can be made and read as those of the other."""
    ours, theirs = getattr(own, name), getattr(core, name)

    assert shape(theirs) == shape(ours)
    assert theirs.__dataclass_params__.frozen == ours.__dataclass_params__.frozen


@pytest.mark.parametrize("name", ABSTRACT)
def test_our_abstract_classes_ask_for_the_published_methods(name: str) -> None:
    """Flag, abstract methods, and names, kinds and defaults of their parameters are the same."""
    ours, theirs = getattr(own, name), getattr(core, name)

    assert theirs.CAPABILITY == ours.CAPABILITY
    assert theirs.__abstractmethods__ == ours.__abstractmethods__
    for method in theirs.__abstractmethods__:
        mine, published = (inspect.signature(getattr(kind, method)).parameters for kind in (ours, theirs))
        assert [(one.name, one.kind, one.default) for one in published.values()] == [
            (one.name, one.kind, one.default) for one in mine.values()
        ]


def test_health_has_the_published_words() -> None:
    """A status can be told by its value."""
    assert {one.name: one.value for one in core.HealthStatus} == {one.name: one.value for one in own.HealthStatus}


def test_capabilities_are_found_as_published() -> None:
    """Flags are added, derived and looked up alike, also through a wrapper."""
    for kind in (own, core):
        plain = kind.DriverMeta("i", "n", "1.0.0", (), None, ())
        richer = plain.with_capability(kind.SupportsHealthcheck)

        assert (("healthcheck",), True) == (richer.capabilities, richer.has_capability(kind.SupportsHealthcheck))
        assert richer is richer.with_capability(kind.SupportsHealthcheck)
        assert ("standalone",) == kind.DriverMeta.derive_capabilities(plain, kind.MCSDriver).capabilities

    class Wrapper:
        def resolve_capability(self, contract: type) -> Any:
            return contract

    assert own.SupportsHealthcheck is own.DriverMeta.resolve_capability(Wrapper(), own.SupportsHealthcheck)
    assert None is own.DriverMeta.resolve_capability(object(), own.SupportsHealthcheck)


def test_a_tool_says_what_it_does() -> None:
    """A title stands for a description; a tool with neither is refused, in both interfaces."""
    for kind in (own, core):
        assert ("T", []) == ((made := kind.Tool("t", title="T")).description, made.parameters)
        with pytest.raises(ValueError, match="title"):
            kind.Tool("t")


def test_with_the_package_our_drivers_are_its_drivers() -> None:
    """Whoever checks against the published abstract classes finds real subclasses."""
    assert contract.MCSDriver is core.MCSDriver
    assert issubclass(SandboxedToolDriver, core.MCSToolDriver)
    assert issubclass(SandboxedDriver, (core.MCSDriver, core.MCSToolDriver, core.SupportsHealthcheck))
    assert not issubclass(SandboxedToolDriver, core.MCSDriver)


def test_without_the_package_everything_is_there() -> None:
    """A process in which it cannot be imported has the same driver on our own interface."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)

    assert (0, "sandbox.mcs.own text-mcp") == (done.returncode, done.stdout.strip()), done.stderr


def test_metadata_names_every_optional_contract() -> None:
    """A consumer that looks at the flags first finds exactly what the class can do."""
    driver = SandboxedDriver(str(ROOT / "drivers" / "text-mcp"))

    assert {"standalone", "orchestratable", "tcs", "healthcheck", "cache", "status", "autostart"} == set(
        driver.meta.capabilities
    )
    for able in (contract.SupportsCache, contract.SupportsStatus, contract.SupportsAutostart, core.ToolCallSignaling):
        assert driver.meta.has_capability(able)
        assert driver is core.DriverMeta.resolve_capability(driver, able)
    assert ("text-mcp", "1.0.0", ("*",)) == (driver.meta.id, driver.meta.version, driver.meta.supported_llms)
