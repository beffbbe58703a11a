"""What whoever runs installs adds to them, the answers of indexes, and the registries that clients are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import CeilingError, PlanRefused
from sandbox.launch.install import askindex
from sandbox.launch.install.confined import Confined
from sandbox.launch.install.exceptions import Exceptions, load, read, with_private
from sandbox.launch.install.network import Reach
from sandbox.launch.install.pip import MAX_FILE_HOSTS, hosts_of


def test_a_file_of_exceptions_is_read_with_its_reasons() -> None:
    """Each entry needs a reason, as everything that an operator opens does."""
    text = with_private("", {"10.1.2.3/32": "ours"}) + '[[hosts]]\nhost = "files.test:8443"\nreason = "files"\n'

    assert read(text.encode(), "install.toml") == Exceptions(("10.1.2.3/32",), ("files.test:8443",))
    assert read(with_private(text, {"10.9.9.9/32": "more"}).encode(), "x").private == ("10.1.2.3/32", "10.9.9.9/32")


@pytest.mark.parametrize(
    "text",
    [
        "version = 2\n",
        'version = 1\n[[private]]\ncidr = "10.1.2.3/32"\n',
        'version = 1\n[[private]]\ncidr = "10.1.2.3/8"\nreason = "r"\n',
        'version = 1\n[[hosts]]\nhost = "*"\nreason = "r"\n',
        "version = 1\nother = 1\n",
        "no toml",
    ],
)
def test_a_file_with_a_fault_is_refused_whole(text: str) -> None:
    """Nothing of it is used."""
    with pytest.raises(CeilingError):
        read(text.encode(), "install.toml")


def test_without_a_file_there_are_no_exceptions(tmp_path: Path) -> None:
    """The file lies where XDG says, and is not needed."""
    assert load({"HOME": str(tmp_path)}) == Exceptions()
    (tmp_path / "mcp-sandbox").mkdir()
    (tmp_path / "mcp-sandbox" / "install.toml").write_text(with_private("", {"10.0.0.1/32": "r"}))
    assert load({"XDG_CONFIG_HOME": str(tmp_path)}).private == ("10.0.0.1/32",)


def test_an_answer_of_an_index_is_bounded_and_canonical() -> None:
    """Only https origins of names count, and only a few: what an index says is not ours."""
    lines = [f"https://h{n}.test" for n in range(20)]

    assert hosts_of("\n".join(lines).encode()) == tuple(lines[:MAX_FILE_HOSTS])
    assert hosts_of(b"http://a.test\nhttps://198.51.100.7\nhttps://a.test@b.test\nhttps://*.test.test\n\xff\n") == ()
    assert hosts_of(b"https://a.test:8443\n") == ("https://a.test:8443",)
    assert hosts_of(b"https://a.test\n" * 1_000_000) == ("https://a.test",)


def test_links_of_both_forms_of_an_index_are_found() -> None:
    """JSON by its urls, HTML by its anchors."""
    assert askindex.links("application/vnd.pypi.simple.v1+json", b'{"files": [{"url": "x.whl"}]}') == ["x.whl"]
    assert askindex.links("text/html", b'<a href="https://f.test/x.whl#sha256=0">x</a><a>none</a>') == [
        "https://f.test/x.whl#sha256=0"
    ]


@pytest.mark.parametrize("origin", ["http://registry.test", "https://", "https://a%00b", "ftp://registry.test"])
def test_a_registry_that_is_none_opens_nothing(origin: str) -> None:
    """Not https, or not a host: refused before anything is started."""
    networks = Confined("/nonexistent", lambda: "")
    with pytest.raises(PlanRefused, match="INST-092"), networks.open(Reach("npm", (origin,))):
        pass
