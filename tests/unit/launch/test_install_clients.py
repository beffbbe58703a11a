"""What is taken over of the user's client configuration, and what is refused in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import UsageError
from sandbox.launch.install import hostca, npmrc, pipconf
from sandbox.launch.install.network import origin

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def npm(home: Path, text: str, **environ: str) -> npmrc.NpmSettings:
    """Return the settings of an npmrc of a user."""
    (home / ".npmrc").write_text(text)
    return npmrc.load({"HOME": str(home), **environ})


@pytest.fixture(autouse=True)
def no_global_npmrc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at no file of this machine."""
    monkeypatch.setattr(npmrc, "GLOBAL_FILES", ())


def test_only_what_concerns_fetching_is_passed(tmp_path: Path) -> None:
    """Registry, scopes, credentials and proxies pass; what changes npm's behaviour does not."""
    text = (
        "registry = https://r.example/npm/\n@s:registry=https://s.example\n//r.example/npm/:_authToken=${TOKEN}\n"
        "; comment\n# comment\nignore-scripts=false\nscript-shell=/bin/evil\nprefix=/x\n[section]\nproxy=http://p.example\n"
    )

    given = npm(tmp_path, text, TOKEN="t0ken").npmrc().decode()

    assert [
        "//r.example/npm/:_authToken=t0ken",
        "@s:registry=https://s.example",
        "proxy=http://p.example",
        "registry=https://r.example/npm/",
    ] == given.splitlines()


def test_environment_goes_before_files(tmp_path: Path) -> None:
    """The environment comes last, in any case, as npm has it."""
    found = npm(
        tmp_path, "registry=https://a.example\n", NPM_CONFIG_REGISTRY="https://b.example", npm_config_prefix="/x"
    )

    assert {"registry": "https://b.example"} == dict(found.values)


@pytest.mark.parametrize("text", ["strict-ssl=false\n", "//r/:_authToken=${MISSING}\n"])
def test_unchecked_or_incomplete_npm_settings_are_refused(text: str, tmp_path: Path) -> None:
    """Certificates are always checked, and a secret that is not there is not replaced by nothing."""
    with pytest.raises(UsageError) as caught:
        npm(tmp_path, text)

    assert "INST-011" == caught.value.id


def test_optional_variable_may_be_missing(tmp_path: Path) -> None:
    """`${NAME?}` is npm's own way to say that."""
    assert {"//r/:_authToken": ""} == dict(npm(tmp_path, "//r/:_authToken=${MISSING?}\n").values)


def pip(tmp_path: Path, text: str) -> tuple[pipconf.PipSettings, list[str]]:
    """Return pip's settings of a configuration file, and what was left out."""
    file = tmp_path / "pip.conf"
    file.write_text(text)
    told: list[str] = []
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(file)}
    return pipconf.load(environ, told.append), told


def test_indexes_of_pip_are_passed_and_folders_are_named(tmp_path: Path) -> None:
    """Addresses pass in order; folders of the host, which a container does not see, are named to the user."""
    text = (
        "[global]\nindex-url = https://u:p@i.example/simple\n"
        "extra-index-url = https://e.example/simple file:///local\nfind-links = /wheels\ncert = /ca.pem\n"
    )

    found, told = pip(tmp_path, text)

    assert {
        "UV_DEFAULT_INDEX": "https://u:p@i.example/simple",
        "UV_INDEX": "https://e.example/simple",
    } == found.environment()
    assert "/ca.pem" == found.cert
    assert 2 == len([line for line in told if "find-links" in line or "extra-index-url" in line])


@pytest.mark.parametrize(
    "setting", ["trusted-host = i.example", "no-index = true", "index-url = http://i.example/simple"]
)
def test_unchecked_pip_settings_are_refused(setting: str, tmp_path: Path) -> None:
    """An index without certificates is refused rather than used."""
    with pytest.raises(UsageError) as caught:
        pip(tmp_path, f"[global]\n{setting}\n")

    assert "INST-012" == caught.value.id


def test_certificates_of_every_setting_are_joined(tmp_path: Path) -> None:
    """Each named file once, in order."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(PEM.replace(b"AAAA", name.encode() * 4))
    environ = {
        "SSL_CERT_FILE": str(tmp_path / "a"),
        "PIP_CERT": str(tmp_path / "b"),
        "CURL_CA_BUNDLE": str(tmp_path / "a"),
    }

    assert 2 == hostca.bundle(environ, [str(tmp_path / "b")]).count(b"BEGIN CERTIFICATE")


@pytest.mark.parametrize("data", [None, b"no pem", b""])
def test_named_certificates_must_be_there(data: bytes | None, tmp_path: Path) -> None:
    """A setting that names no bundle is an error with the file's name, not a download that fails later."""
    file = tmp_path / "ca.pem"
    if data is not None:
        file.write_bytes(data)

    with pytest.raises(UsageError) as caught:
        hostca.bundle({"SSL_CERT_FILE": str(file)})

    assert "INST-010" == caught.value.id
    assert str(file) in caught.value.message


def test_system_bundle_is_used_when_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host trusts is what builds trust."""
    (tmp_path / "ca.pem").write_bytes(PEM)
    monkeypatch.setattr(hostca, "SYSTEM_BUNDLES", ("/nonexistent", str(tmp_path / "ca.pem")))

    assert PEM == hostca.bundle({})


def test_origin_has_no_credentials() -> None:
    """What is told about a registry is scheme, host and port."""
    assert "https://h.example:8443" == origin("https://user:secret@h.example:8443/simple?x=1")
