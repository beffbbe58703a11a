from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.fields.secrets import VALUE_KEYS
from tests.unit.spec.folders import SECRET, checked, driver, errors, front, loaded, warnings, write


def uses(name: str) -> dict[str, Any]:
    """Return a driver whose server gets one secret."""
    return driver(server={"kind": "npm", "package": "server-x", "env": {"X": f"${{secrets.{name}}}"}})


@pytest.mark.claim("P-SPEC-10")
@pytest.mark.parametrize("key", VALUE_KEYS)
def test_a_manifest_that_holds_a_value_is_refused_without_repeating_it(tmp_path: Path, key: str) -> None:
    """Every key under which a secret might be written is refused, and the message does not print it (AIP-19)."""
    _, problems = checked(tmp_path, None, None, [SECRET | {key: "hunter2"}])

    assert [("SPEC-192", f"secrets[0].{key}")] == errors(problems)
    assert "hunter2" not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"slug": "API"}, ("SPEC-045", "secrets[0].slug")),
        ({"slug": "a--"}, ("SPEC-045", "secrets[0].slug")),
        ({"name": None}, ("SPEC-043", "secrets[0].name")),
        ({"kind": "password"}, ("SPEC-044", "secrets[0].kind")),
        ({"backend": "no uri"}, ("SPEC-045", "secrets[0].backend")),
        ({"vault": "x"}, ("SPEC-042", "secrets[0].vault")),
        ({"access": {"bind": [{"tool": "a", "role": "b"}]}}, ("SPEC-193", "secrets[0].access.bind[0]")),
        ({"access": {"bind": [{}]}}, ("SPEC-193", "secrets[0].access.bind[0]")),
        ({"access": {"reveal": [{"cap": "x"}]}}, ("SPEC-045", "secrets[0].access.reveal[0].cap")),
        ({"audit": {"retention": "forever"}}, ("SPEC-045", "secrets[0].audit.retention")),
        ({"exposures": [{"kind": "env", "name": "lower", "field": "v"}]}, ("SPEC-045", "secrets[0].exposures[0].name")),
        (
            {"exposures": [{"kind": "egress-substitute", "placeholderName": "A"}]},
            ("SPEC-041", "secrets[0].exposures[0].allowedByDefault"),
        ),
        ({"metadata": {"bindings": {"env": "X"}}}, ("SPEC-043", "secrets[0].metadata.bindings.env")),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, entry: dict[str, Any], expected: tuple[str, str]) -> None:
    """Each entry is held against the shape of AIP-19, its rules in words included."""
    assert [expected] == errors(checked(tmp_path, None, None, [SECRET | entry])[1])


def test_a_whole_entry_becomes_a_value(tmp_path: Path) -> None:
    """Slug, exposures and names of variables arrive; the access block is checked and stays with the host."""
    entry = SECRET | {
        "slug": "billing/api-key",
        "kind": "oauth",
        "backend": "vault://x/y",
        "access": {"reveal": [{"role": "admin"}], "bind": [{"cap": "cap://x"}], "rotate": [{"userId": "u"}]},
        "audit": {"retention": "7y", "pii": True, "classification": ["c"]},
        "tags": ["prod"],
        "exposures": [
            {"kind": "env", "name": "KEY", "field": "value"},
            {"kind": "file", "path": "~/k"},
            {"kind": "egress-substitute", "placeholderName": "KEY", "allowedByDefault": True},
        ],
    }

    (found,) = loaded(tmp_path, None, None, [entry]).secrets

    assert ("billing/api-key", "oauth", "vault://x/y") == (found.slug, found.kind, found.backend)
    assert ("KEY", "API_KEY") == found.env_names
    assert ["env", "file", "egress-substitute"] == [exposure["kind"] for exposure in found.exposures]
    assert 0o600 == found.exposures[1]["mode"]


def test_an_exposure_of_an_unknown_kind_is_left_out_aloud(tmp_path: Path) -> None:
    """AIP-19 has unknown kinds ignored; that is said."""
    _, problems = checked(tmp_path, None, None, [SECRET | {"exposures": [{"kind": "header", "name": "X"}]}])

    assert ("SPEC-194", "secrets[0].exposures[0]") in warnings(problems)
    assert [] == errors(problems)


@pytest.mark.parametrize(
    "text",
    ["---\nsecrets: []\n---\n", "---\nsecrets: {}\n---\n", "---\nsecret: []\n---\n", "---\nsecrets: [x]\n---\n", "x"],
)
def test_an_inventory_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """A SECRETS.md without entries, with others, or without front matter is refused."""
    folder = write(tmp_path)
    (folder / "SECRETS.md").write_text(text)

    assert {"SPEC-190", "SPEC-042", "SPEC-043", "SPEC-022"} >= {id_ for id_, _ in errors(checked(tmp_path)[1])} > set()


def test_a_slug_stands_once_in_the_merged_inventory(tmp_path: Path) -> None:
    """Slugs of the folder and the workspace are one inventory, in which a slug stands once."""
    folder = write(tmp_path / ".drivers", uses("OTHER_KEY"), secrets=[SECRET])
    (tmp_path / ".secrets/other").mkdir(parents=True)
    (tmp_path / ".secrets/other/SECRETS.md").write_text(front({"secrets": [SECRET | {"slug": "other-key"}]}))
    merged = loaded(tmp_path / ".drivers", uses("OTHER_KEY"), secrets=[SECRET])
    (tmp_path / ".secrets/SECRETS.md").write_text(front({"secrets": [SECRET]}))

    problems = checked(tmp_path / ".drivers", uses("OTHER_KEY"), secrets=[SECRET])[1]

    assert ["api-key", "other-key"] == [secret.slug for secret in merged.secrets]
    assert [("SPEC-191", "secrets[0].slug")] == errors(problems)
    assert folder.exists()


def test_a_variable_leads_to_one_slug(tmp_path: Path) -> None:
    """Two slugs bound to one variable are refused; two that only share their letters are not found by them."""
    bound = {"metadata": {"bindings": {"env": ["KEY"]}}}
    twice = [SECRET | bound, SECRET | bound | {"slug": "other"}]
    alike = [SECRET | {"slug": "aa/key"}, SECRET | {"slug": "bb/key"}]

    assert [("SPEC-191", "secrets[1]")] == errors(checked(tmp_path / "1", None, None, twice)[1])
    assert [("SPEC-081", "server.env.X")] == errors(checked(tmp_path / "2", uses("KEY"), None, alike)[1])
    assert loaded(tmp_path / "3", uses("aa/key"), None, alike)


def test_the_inventory_may_be_named(tmp_path: Path) -> None:
    """`auth.ref` names the inventory (AIP-30); names in `auth.state.env` that no slug has are told."""
    folder = write(tmp_path, driver())
    (folder / "KEYS.md").write_text(front({"secrets": [SECRET]}))
    values = uses("API_KEY") | {"auth": {"ref": "./KEYS.md", "state": {"env": ["API_KEY", "MORE"]}}}

    spec, problems = checked(tmp_path, values)

    assert spec is not None
    assert ("SPEC-195", "auth.state.env[1]") in warnings(problems)
    assert "./KEYS.md" == spec.auth["ref"]


def test_what_auth_asks_for_and_nobody_does_is_told(tmp_path: Path) -> None:
    """Paths of a login are not mounted and logins are not carried out; each is a warning."""
    auth = {"state": {"paths": ["~/.x"]}, "login": {"cmd": "x"}, "refresh": {"cmd": "", "every": "PT1H"}}

    found = warnings(checked(tmp_path, driver(auth=auth))[1])

    assert [("SPEC-196", "auth.state.paths"), ("SPEC-197", "auth.login"), ("SPEC-197", "auth.refresh")] == found
