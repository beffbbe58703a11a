"""Sigstore bundles as package signatures: who, vouched for by whom, over every file, and nothing less."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import main
from sandbox.errors import InstallRefused, UsageError
from sandbox.mcpkg import signatures
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.signatures import Signed
from sandbox.mcpkg.trust import TrustStore, load_trust
from tests.mcpkg_kit import echo_folder
from tests.sigstore_kit import SIGNED, Sigstore

WHO, BY = "release@acme.example", "https://login.acme.example"


@pytest.fixture(scope="module")
def services() -> Sigstore:
    """Return one instance of the services."""
    return Sigstore()


def trust(folder: Path, services: Sigstore, tools: str = '["*"]', identity: str = WHO, issuer: str = BY) -> TrustStore:
    """Return a trust store that vouches for one identity."""
    (folder / "root.json").write_text(json.dumps(services.trusted_root()))
    text = f'sigstore-root = "{folder}/root.json"\n[[publisher]]\nid = "acme"\n'
    (folder / "publishers.toml").write_text(
        text + f'identity = "{identity}"\nissuer = "{issuer}"\ntools = {tools}\n', encoding="utf-8"
    )
    return load_trust(folder / "publishers.toml")


def package(folder: Path, publisher: str = "") -> Path:
    """Return the echo package as a folder, perhaps in somebody's name."""
    meta = {"meta": {"publisher": {"id": publisher, "name": publisher}}} if publisher else {}
    return echo_folder(folder / "package", **meta)


def sign(package: Path, services: Sigstore, identity: str = WHO, issuer: str = BY, **more: Any) -> dict[str, Any]:
    """Put a bundle into a package and return it."""
    contents = FolderContents(package)
    bundle = services.bundle(signatures.statement(contents, read_package(contents)[0]), identity, issuer, **more)
    put(package, bundle)
    return bundle


def put(package: Path, bundle: Any) -> None:
    """Write a signature file."""
    (package / "meta").mkdir(exist_ok=True)
    (package / signatures.FILE).write_text(json.dumps(bundle))


def verify(package: Path, store: TrustStore) -> Signed:
    """Return who signed a package."""
    contents = FolderContents(package)
    return signatures.verify(contents, read_package(contents)[0], store)


@pytest.mark.claim("P-PKG-06")
def test_a_known_identity_is_trusted(tmp_path: Path, services: Sigstore) -> None:
    """A bundle over every file, of an identity and issuer that the trust store names, counts for its publisher."""
    source = package(tmp_path)
    sign(source, services)

    assert Signed("trusted", "acme", WHO) == verify(source, trust(tmp_path, services))


@pytest.mark.claim("P-PKG-05")
@pytest.mark.parametrize(
    ("identity", "issuer"), [("mallory@acme.example", BY), (WHO, "https://login.mallory.example")], ids=["who", "by"]
)
def test_another_identity_or_issuer_is_nobody(tmp_path: Path, services: Sigstore, identity: str, issuer: str) -> None:
    """The right name from another issuer, and another name from the right one, are unknown to the trust store."""
    source = package(tmp_path)
    sign(source, services, identity, issuer)
    store = trust(tmp_path, services)

    assert "unknown" == verify(source, store).state
    with pytest.raises(InstallRefused, match="PKG-020"):
        signatures.demand(verify(source, store), "require", "demo.echo")


def test_a_tool_that_the_identity_does_not_count_for(tmp_path: Path, services: Sigstore) -> None:
    """An identity that may publish other tools only does not vouch for this one."""
    source = package(tmp_path)
    sign(source, services)

    assert "unknown" == verify(source, trust(tmp_path, services, tools='["other.*"]')).state


def change_file(source: Path, _bundle: Any) -> None:
    """Change a file after the signature."""
    (source / "tests" / "echo.test.json").write_text('{"name": "x", "input": {"message": "x"}}')


def add_file(source: Path, _bundle: Any) -> None:
    """Add a file after the signature."""
    (source / "more.txt").write_text("more")


def without(*path: str | int) -> Callable[[Path, Any], None]:
    """Return what takes one member out of a bundle."""

    def change(source: Path, bundle: Any) -> None:
        place = bundle
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        put(source, bundle)

    return change


ENTRY = ("verificationMaterial", "tlogEntries", 0)
BROKEN: dict[str, Callable[[Path, Any], None]] = {
    "changed": change_file,
    "added": add_file,
    "no signature": without("messageSignature"),
    "no certificate": without("verificationMaterial", "certificate"),
    "no log": without("verificationMaterial", "tlogEntries", 0),
    "no promise": without(*ENTRY, "inclusionPromise"),
    "no proof": without(*ENTRY, "inclusionProof"),
    "no material": without("verificationMaterial"),
}


@pytest.mark.claim("P-PKG-06")
@pytest.mark.parametrize("how", sorted(BROKEN))
def test_a_bundle_that_does_not_hold_is_refused(tmp_path: Path, services: Sigstore, how: str) -> None:
    """Whatever is changed in the package or taken from the bundle, it is refused under `warn` too; before, it held."""
    source = package(tmp_path)
    bundle = sign(source, services)
    store = trust(tmp_path, services)
    assert "trusted" == verify(source, store).state
    BROKEN[how](source, bundle)

    with pytest.raises(InstallRefused, match="PKG-021"):
        verify(source, store)


@pytest.mark.claim("P-PKG-06")
def test_a_bundle_of_another_sigstore_is_refused(tmp_path: Path, services: Sigstore) -> None:
    """The same identity from services that the operator's root does not name counts for nothing."""
    source = package(tmp_path)
    sign(source, Sigstore())

    with pytest.raises(InstallRefused, match="PKG-021"):
        verify(source, trust(tmp_path, services))


def test_a_certificate_is_good_while_it_lasts(tmp_path: Path, services: Sigstore) -> None:
    """A signature that the log saw after the certificate's ten minutes is refused."""
    source = package(tmp_path)
    sign(source, services, at=SIGNED + dt.timedelta(hours=1))

    with pytest.raises(InstallRefused, match="PKG-021"):
        verify(source, trust(tmp_path, services))


def test_the_log_has_to_have_seen_the_same(tmp_path: Path, services: Sigstore) -> None:
    """A log entry over something else does not prove that this signature was published."""
    source = package(tmp_path)
    sign(source, services, listed=b"something else")

    with pytest.raises(InstallRefused, match="PKG-021"):
        verify(source, trust(tmp_path, services))


@pytest.mark.claim("P-PKG-05")
def test_a_publishers_name_needs_the_publishers_identity(tmp_path: Path, services: Sigstore) -> None:
    """A package in a known publisher's name with somebody else's bundle is refused; with theirs it is trusted."""
    source = package(tmp_path, "acme")
    sign(source, services, "mallory@evil.example", "https://login.evil.example")
    store = trust(tmp_path, services)
    with pytest.raises(InstallRefused, match="PKG-022"):
        verify(source, store)
    sign(source, services)

    assert Signed("trusted", "acme", WHO) == verify(source, store)


def test_the_sigstore_packages_own_root_needs_no_network(tmp_path: Path, services: Sigstore) -> None:
    """Without `sigstore-root` the public root that comes with the package judges, and does not know these services."""
    source = package(tmp_path)
    sign(source, services)

    with pytest.raises(InstallRefused, match="PKG-021"):
        verify(source, TrustStore())


def test_a_root_that_is_none_is_told(tmp_path: Path, services: Sigstore) -> None:
    """A trusted root that cannot be read stops the check instead of weakening it."""
    source = package(tmp_path)
    sign(source, services)
    store = trust(tmp_path, services)
    (tmp_path / "root.json").write_text("{}")

    with pytest.raises(UsageError, match="PKG-028"):
        verify(source, store)


def test_the_statement_is_what_clients_sign(
    tmp_path: Path, services: Sigstore, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`pkg sign --statement` gives the bytes for a Sigstore client, and `--bundle` puts in what it made."""
    source = package(tmp_path)
    assert 0 == main(["pkg", "sign", str(source), "--statement"])
    bundle = services.bundle(capfdbinary.readouterr().out, WHO, BY)
    (tmp_path / "bundle.json").write_text(json.dumps(bundle))
    assert 0 == main(["pkg", "sign", str(source), "--bundle", str(tmp_path / "bundle.json")])

    assert "trusted" == verify(source, trust(tmp_path, services)).state


@pytest.mark.parametrize(
    "entry",
    [
        'identity = "x@y.example"',
        'issuer = "https://x.example"',
        'identity = "x@y.example"\nissuer = ""',
        f'identity = "x@y.example"\nissuer = "https://x.example"\nkey = "{"A" * 43}="',
    ],
)
def test_half_an_identity_is_none(tmp_path: Path, entry: str) -> None:
    """An entry without the issuer, with an empty one, or with a key beside it is refused."""
    (tmp_path / "publishers.toml").write_text(f'[[publisher]]\nid = "acme"\n{entry}\n')

    with pytest.raises(UsageError, match="PKG-023"):
        load_trust(tmp_path / "publishers.toml")
