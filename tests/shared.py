"""Finds the shared test data that lies beside the checkout; tests that need it skip, loudly, where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared(*parts: str) -> Path:
    """Return a path below the shared folder, or skip the test with the reason."""
    path = ROOT.parent.joinpath("shared", *parts)
    if not path.exists():
        pytest.skip(f"shared test data is absent: shared/{'/'.join(parts)}")
    return path


def shared_data(*parts: str) -> Path:
    """Return a path below the shared ``data`` folder, or skip the test with the reason."""
    return shared("data", *parts)
