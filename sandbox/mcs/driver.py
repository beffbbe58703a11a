"""Any DRIVER.md as a whole driver of the Model Context Standard: tools, prompt and execution in one object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sandbox.mcs.contract import DriverMeta
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.settings import DriverSettings
from sandbox.mcs.speaking import Speaking
from sandbox.mcs.tooldriver import SandboxedToolDriver

SPEAKING: Final = ("standalone", "tcs")
"""Capabilities of a driver beyond those of its tools."""


class SandboxedDriver(SandboxedToolDriver, Speaking):
    """One sandboxed server for a model; with or without an orchestrator (a hybrid, section 4).

    Args:
        driver: as for :class:`~sandbox.mcs.tooldriver.SandboxedToolDriver`.
        custom_system_message: stands for the whole system prompt.
        custom_tool_description: stands for the whole description of the tools.
        texts: prompts from elsewhere; ``prompts=`` names a file of them.
        settings: the same.

    Raises:
        SandboxError: as for the tool driver; ``MCS-021``, the prompts are not valid.
    """

    def __init__(
        self,
        driver: str | Path | DriverSettings = "",
        *,
        custom_system_message: str | None = None,
        custom_tool_description: str | None = None,
        texts: Prompts | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(driver, **settings)
        self.speak(
            texts or Prompts.load(self.settings.prompts),
            style=self.settings.style,
            semantics=self.settings.semantics,
            description=self.settings.description,
            custom_system_message=custom_system_message,
            custom_tool_description=custom_tool_description,
        )

    def _meta(self, driver: str) -> DriverMeta:
        meta = super()._meta(driver)
        return replace(meta, supported_llms=("*",), capabilities=(*SPEAKING, *meta.capabilities))
