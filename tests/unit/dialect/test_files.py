"""Descriptors as files: what is there, what hostile paths get, digests, and the export to a real folder."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli import main
from sandbox.dialect.exporting import files_of, view_of, write
from sandbox.dialect.files import FileView, matches, plain
from sandbox.dialect.refusals import DialectRefused
from sandbox.errors import UsageError
from sandbox.spec.load import load_driver
from sandbox.vet.model import Exposure
from tests.dialect_lab import CLOSED, OPEN, dialect_lab
from tests.gateway_lab import SECRET
from tests.shared import ROOT

FILESYSTEM = ROOT / "drivers" / "filesystem-mcp" / "DRIVER.md"
HOSTILE = (
    "tools/../metadata", "tools/./tool.json", "tools//tool.json", "tools/%74ool.json", "tools/tool.json%00",
    "tools/tool", "tools/%2e%2e/%2e%2e/etc/passwd", "tools/..%2f..%2fetc%2fpasswd", "tools/..\\..\\etc\\passwd",
    "tools/TOOL.json", "tools/server_tool.json", "tools/tool.json/", "tools/tool.json/x",
    "resources/../tools/tool.json", "tools",
    "tools/%c0%ae%c0%ae/x", "resources/schemas/tool@1.0.0.input.json?x=../..", "tools/ tool.json", "tools/tool.json ",
)  # fmt: skip


async def raw_get(url: str, path: str) -> str:
    """Send a path as it stands, which no client library does, and return the whole answer."""
    host = url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
    answer = await asyncio.wait_for(reader.read(), 15)
    writer.close()
    return answer.decode("utf-8", "replace")


@pytest.mark.claim("P-DIA-03")
@pytest.mark.anyio
async def test_hostile_paths_get_nothing_and_plain_ones_their_file(tmp_path: Path) -> None:
    """However a path is disguised it is never resolved; the probe itself reaches the file when written plainly."""
    async with dialect_lab(tmp_path) as lab:
        plainly = await lab.send("GET", OPEN + "/tools/tool.json")
        found = []
        for path in HOSTILE:
            answer = await raw_get(lab.stage.url, f"{OPEN}/{path}")
            found.append((path, int(answer[9:12]), "tool_id" in answer or "root:" in answer))

    assert 200 == plainly.status_code
    good = "resources/schemas/tool@1.0.0.input.json?x=../.."  # what follows `?` is no part of the path
    assert [(path, 200 if path == good else 404, False) for path in HOSTILE if " " not in path] == [
        one for one in found if " " not in one[0]
    ]
    assert {(400, False)} == {one[1:] for one in found if " " in one[0]}


@pytest.mark.anyio
async def test_an_etag_is_the_digest_of_the_bytes_and_spares_a_second_answer(tmp_path: Path) -> None:
    """SHA-256 of what was sent; named in If-None-Match it gives 304 without a body, anything else gives the file."""
    async with dialect_lab(tmp_path) as lab:
        first = await lab.send("GET", OPEN + "/tools/tool.json")
        etag = first.headers["etag"]
        fields = [etag, f"W/{etag}", f'"other", {etag}', "*", '"other"', etag.strip('"'), ""]
        again = [await lab.send("GET", OPEN + "/tools/tool.json", headers={"if-none-match": one}) for one in fields]
        head = await lab.send("HEAD", OPEN + "/tools/tool.json")

    assert f'"{hashlib.sha256(first.content).hexdigest()}"' == etag == head.headers["etag"]
    assert [304, 304, 304, 304, 200, 200, 200] == [one.status_code for one in again]
    assert [b""] * 4 == [one.content for one in again[:4]]
    assert b"" == head.content


@pytest.mark.anyio
async def test_the_view_lists_itself_and_has_what_the_driver_binds_only(tmp_path: Path) -> None:
    """Descriptor and versioned schemas agree; the server's own name and words are in no file."""
    async with dialect_lab(tmp_path) as lab:
        folders = {path: (await lab.send("GET", f"{OPEN}/{path}")).json() for path in ("tools/", "resources/")}
        schemas = (await lab.send("GET", OPEN + "/resources/schemas/")).json()
        bodies = {
            one["path"]: (await lab.send("GET", f"{OPEN}/{one['path']}")).content
            for one in folders["tools/"]["files"] + schemas["files"]
        }
        hidden = await lab.send("GET", CLOSED + "/tools/tool.json")
        written = await lab.send("PUT", OPEN + "/tools/tool.json", b"{}")

    tool = json.loads(bodies["tools/tool.json"])
    assert ["resources/schemas/", "resources/templates/"] == folders["resources/"]["folders"]
    assert {"tool_id", "name", "description", "input_schema", "output_schema", "metadata"} == set(tool)
    assert tool["input_schema"] == json.loads(bodies[tool["metadata"]["input_schema"]])
    assert tool["output_schema"] == json.loads(bodies[tool["metadata"]["output_schema"]])
    listed = {one["path"]: one["sha256"] for one in folders["tools/"]["files"] + schemas["files"]}
    assert listed == {path: hashlib.sha256(data).hexdigest() for path, data in bodies.items()}
    assert not any(SECRET.encode() in data or b"server_tool" in data for data in bodies.values())
    assert (401, 405) == (hidden.status_code, written.status_code)


@given(st.text(max_size=60))
def test_only_listed_paths_are_files(path: str) -> None:
    """Whatever text is asked for, it is an entry of the table byte for byte, or nothing."""
    view = view_of(load_driver(FILESYSTEM))
    try:
        found = view.read(path)
    except DialectRefused:
        assert path not in view.files
        return
    assert path in view.files or path.endswith("/")
    assert found.sha256 == hashlib.sha256(found.data).hexdigest()


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_names_of_files_are_harmless_and_distinct(one: str, other: str) -> None:
    """No name has a separator, a dot in front or more than a file system takes; two names are never one."""
    for name in (plain(one), plain(other)):
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name) <= 128
        assert quote(name) == name
    assert (one == other) == (plain(one) == plain(other))


@given(st.text(max_size=40))
def test_only_a_named_tag_matches(field: str) -> None:
    """A field without the tag and without a star matches nothing."""
    assert not matches(field.replace("*", ""), '"0123456789abcdef"')


def test_an_empty_exposure_has_no_files() -> None:
    """Nothing bound, nothing told."""
    assert {} == FileView(Exposure({})).files


# --- export ---
def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def names_in(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(one.name for one in folder.iterdir())


def test_an_export_is_the_same_twice_and_replaces_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes the same bytes into two places and over itself, and leaves nothing beside them."""
    places = [tmp_path / "one", tmp_path / "two", tmp_path / "one"]
    done = [main(["export-tools", str(FILESYSTEM.parent), str(place)]) for place in places]
    found = [contents(place) for place in places]

    assert [0, 0, 0] == done, capsys.readouterr().err
    assert found[0] == found[1] == found[2]
    assert "tools/fs-read.json" in found[0]
    assert ["one", "two"] == names_in(tmp_path)
    index = json.loads(found[0]["index.json"])
    assert index["files"] == {
        path: "sha256:" + hashlib.sha256(data).hexdigest() for path, data in found[0].items() if path != "index.json"
    }


def test_an_export_of_several_drivers_has_a_folder_for_each(tmp_path: Path) -> None:
    """Names of different drivers never meet."""
    assert 0 == main(["export-tools", str(ROOT / "drivers"), str(tmp_path / "all")])

    assert (tmp_path / "all" / "filesystem-mcp" / "tools").is_dir()
    assert (tmp_path / "all" / "time-mcp" / "tools").is_dir()


def test_what_is_no_export_is_left_alone(tmp_path: Path) -> None:
    """A folder with something else, a file and a link are refused as they are."""
    files = files_of({"x": view_of(load_driver(FILESYSTEM))})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    (tmp_path / "plain").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("mine", "plain", "link"):
        with pytest.raises(UsageError, match="CLI-232"):
            write(files, tmp_path / name)

    assert "precious" == (tmp_path / "mine" / "file").read_text() == (tmp_path / "plain").read_text()
    assert ["link", "mine", "plain"] == names_in(tmp_path)


def test_an_export_that_fails_changes_nothing(tmp_path: Path) -> None:
    """An earlier export stands as it was when a later one cannot be written whole."""
    files = files_of({"x": view_of(load_driver(FILESYSTEM))})
    write(files, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(Exception, match="CLI-233"):
        write({**files, "tools/" + "x" * 300: b""}, tmp_path / "out")

    assert before == contents(tmp_path / "out")
    assert ["out"] == names_in(tmp_path)
