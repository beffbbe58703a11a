"""Images on a host without apt: apt runs in a container of a Debian image, and the same bytes come out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import PlatformError
from sandbox.launch.images import lock, recipe
from sandbox.launch.images.apt_sources import Distribution
from sandbox.launch.images.build import Images
from sandbox.launch.images.engine import connect
from sandbox.launch.images.lock import Resolved
from sandbox.launch.images.places import Places
from sandbox.launch.images.store import Store
from tests.image_kit import Told
from tests.registry_lab import docker

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

NAME = "mcp-sandbox-test/debian:bookworm"


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make a Debian image with apt, as a registry would have it."""
    if shutil.which("mmdebstrap") is None or os.getuid() != 0:
        pytest.skip("a Debian image is made with mmdebstrap by root, and one of them is missing")
    folder = tmp_path_factory.mktemp("debian")
    sources = folder / "sources.list"
    sources.write_text("".join(source.line() for source in Distribution.of_host().sources))
    archive = folder / "debian.tar"
    command = ["mmdebstrap", "--quiet", "--variant=apt", "--include=ca-certificates", "bookworm", archive, sources]
    subprocess.run(command, check=True, capture_output=True)
    docker("import", str(archive), NAME)
    archive.unlink()
    yield NAME
    docker("rmi", NAME)


def built(folder: Path, box: str) -> Resolved:
    """Build the base image in an empty cache and return what came of it."""
    images = Images(Store(connect(os.environ), Told()), Places(folder / "cache", folder / "state"), box)
    wanted = recipe.load("base")
    with images.places.building() as scratch:
        return images._make(
            wanted, lock.pinned(wanted, images.platform, images.places), None, scratch, moved=True
        ).resolved


def test_apt_in_a_container_gives_the_same_image(debian: str, tmp_path: Path) -> None:
    """Where packages are fetched makes no difference to a single byte."""
    assert built(tmp_path / "host", "") == built(tmp_path / "box", debian)


def test_image_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A Debian image that the engine does not have is not fetched behind anybody's back."""
    with pytest.raises(PlatformError) as caught:
        built(tmp_path, "mcp-sandbox-test/none:1")

    assert "IMG-010" == caught.value.id
    assert "docker pull mcp-sandbox-test/none:1" in caught.value.mend
