"""Signatures: over every file, by a key that the operator knows for this publisher and tool."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox import jsontext
from sandbox.cli import main
from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg import signatures
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.signatures import FILE, Signed, demand, sign, verify
from sandbox.mcpkg.trust import Publisher, TrustStore, load_trust
from tests.mcpkg_kit import echo_folder

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
TRUST = TrustStore((Publisher("acme", signatures.key_text(KEY)),))


def signed(place: Path, key: Ed25519PrivateKey = KEY, publisher: str = "acme") -> Path:
    """Return a signed echo package as a folder."""
    folder = echo_folder(place / "signed")
    contents = FolderContents(folder)
    manifest, _, _ = read_package(contents)
    (folder / "meta").mkdir()
    (folder / FILE).write_bytes(sign(contents, manifest, key, publisher))
    return folder


def verdict(folder: Path, store: TrustStore = TRUST) -> Signed:
    """Return what is known about a folder's publisher."""
    contents = FolderContents(folder)
    return verify(contents, read_package(contents)[0], store)


def forged(folder: Path, **changes: Any) -> None:
    """Sign a document with other members, properly, with the publisher's own key."""
    document = {**json.loads((folder / FILE).read_bytes()), **changes}
    document.pop("signature")
    made = KEY.sign(b"mcp-sandbox .mcpkg signature v1\x00" + jsontext.canonical(document))
    (folder / FILE).write_text(json.dumps({**document, "signature": base64.b64encode(made).decode()}))


def test_a_known_key_is_trusted(tmp_path: Path) -> None:
    """The positive control of every refusal below."""
    assert "trusted" == verdict(signed(tmp_path)).state


@pytest.mark.claim("P-PKG-06")
@pytest.mark.parametrize("change", ["manifest", "test", "new file", "removed file", "empty file", "program"])
def test_every_file_is_covered(change: str, tmp_path: Path) -> None:
    """Changing, adding or removing any file breaks the signature."""
    folder = signed(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    match change:
        case "manifest":
            (folder / "manifest.json").write_text(json.dumps({**manifest, "description": "Evil."}))
        case "test":
            (folder / "tests" / "echo.test.json").write_text(json.dumps({"name": "x", "input": {"message": "x"}}))
        case "new file":
            (folder / "meta" / "more.json").write_text("{}")
        case "removed file":
            (folder / "manifest.json").write_text(json.dumps({**manifest, "tests": []}))
            (folder / "tests" / "echo.test.json").unlink()
        case "empty file":
            (folder / "empty").touch()
        case "program":
            (folder / "tool.sh").write_text("#!/bin/sh")

    with pytest.raises(InstallRefused, match="PKG-021"):
        verdict(folder)


@pytest.mark.claim("P-PKG-06")
def test_a_signature_over_less_than_the_manifest_never_counts(tmp_path: Path) -> None:
    """A valid signature of the right key over a list without manifest.json, or without another file, is refused."""
    folder = signed(tmp_path)
    files = json.loads((folder / FILE).read_bytes())["files"]
    for listed in (
        {},
        {"tests/echo.test.json": files["tests/echo.test.json"]},
        {"manifest.json": files["manifest.json"]},
    ):
        forged(folder, files=listed)
        with pytest.raises(InstallRefused, match="PKG-021"):
            verdict(folder)
    forged(folder, files=files)
    assert "trusted" == verdict(folder).state


@pytest.mark.parametrize(
    "changes",
    [{"toolId": "demo.other"}, {"version": "9.9.9"}, {"files": []}, {"key": "AAAA"}, {"key": 7}, {"extra": 1}],
    ids=str,
)
def test_a_signature_for_something_else_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    """Tool, version, key and form are part of what is signed and of what is checked."""
    folder = signed(tmp_path)
    forged(folder, **changes)

    with pytest.raises(InstallRefused, match="PKG-021"):
        verdict(folder)


def test_a_manifest_of_another_publisher_is_refused(tmp_path: Path) -> None:
    """The publisher who signs is the one that the manifest names, when it names one."""
    folder = echo_folder(tmp_path / "a", meta={"publisher": {"id": "stripe"}})
    contents = FolderContents(folder)

    with pytest.raises(UsageError, match="PKG-024"):
        sign(contents, read_package(contents)[0], KEY, "acme")


@pytest.mark.claim("P-PKG-05")
def test_a_stranger_cannot_sign_as_a_known_publisher(tmp_path: Path) -> None:
    """A proper signature under another key, or for a tool that the key is not for, is refused and not only unknown."""
    narrow = TrustStore((Publisher("acme", signatures.key_text(KEY), ("acme.*",)),))

    with pytest.raises(InstallRefused, match="PKG-022"):
        verdict(signed(tmp_path / "a", OTHER))
    with pytest.raises(InstallRefused, match="PKG-022"):
        verdict(signed(tmp_path / "b"), narrow)
    assert "unknown" == verdict(signed(tmp_path / "c", OTHER, "nobody")).state


@pytest.mark.parametrize(
    ("state", "require", "warn"),
    [
        ("trusted", True, ""),
        ("unknown", False, "nobody vouches"),
        ("unsigned", False, "not signed"),
        ("unverifiable", False, "scheme"),
    ],
)
def test_what_is_demanded_decides(state: Any, require: bool, warn: str) -> None:
    """`require` takes trusted signatures only, `warn` says why one is not, `off` says nothing."""
    found = Signed(state, "acme", "key")

    assert warn in demand(found, "warn", "x")
    assert "" == demand(found, "off", "x")
    if require:
        assert "" == demand(found, "require", "x")
    else:
        with pytest.raises(InstallRefused, match="PKG-020"):
            demand(found, "require", "x")


def test_an_opaque_blob_is_unverifiable(tmp_path: Path) -> None:
    """The specification lets hosts define the scheme: what is not ours is neither trusted nor an error."""
    folder = signed(tmp_path)
    for blob in (b"\x00\x01", b"{}", b'{"format": "other"}', b"[1]"):
        (folder / FILE).write_bytes(blob)
        assert "unverifiable" == verdict(folder).state


def test_a_trust_store_is_read_strictly(tmp_path: Path) -> None:
    """An absent file trusts nobody; a wrong one is an error rather than an empty one."""
    place = tmp_path / "publishers.toml"
    assert TrustStore() == load_trust(place)
    place.write_text(f'[[publisher]]\nid = "acme"\nkey = "{signatures.key_text(KEY)}"\n')
    assert TRUST == load_trust(place)
    for text in ("x", "[publisher]", '[[publisher]]\nid = "a"', '[[publisher]]\nid = "a"\nkey = "AAAA"', "more = 1"):
        place.write_text(text)
        with pytest.raises(UsageError, match="PKG-023"):
            load_trust(place)


def test_a_key_is_made_and_read(tmp_path: Path) -> None:
    """A fresh key signs; anything else is no key."""
    pem, public = signatures.new_key()
    place = tmp_path / "key.pem"
    place.write_bytes(pem)
    assert public == signatures.key_text(signatures.load_key(place))
    place.write_text("no key")
    with pytest.raises(UsageError, match="PKG-025"):
        signatures.load_key(place)


def test_a_publishers_name_is_no_command_for_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: a signature names a publisher with escape sequences; `pkg verify` shows them instead of sending them."""
    monkeypatch.chdir(tmp_path)
    folder = signed(tmp_path, OTHER, "acme\x1b]0;owned\x07\x1b[2J")
    plain = signed(tmp_path / "plain", OTHER, "acme-plain")
    status = [
        main(["pkg", "verify", str(one), "--signatures", "warn", "--trust", str(tmp_path / "none.toml")])
        for one in (folder, plain)
    ]
    out = capsys.readouterr().out

    assert [0, 0] == status
    assert "unknown: signed as acme-plain" in out
    assert not {"\x1b", "\x07"} & set(out)
