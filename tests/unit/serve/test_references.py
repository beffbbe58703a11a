"""References ``mcp_<kind>:<uri>`` open what their own kind declares and nothing else; prompts name their skill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import CallRefused, VetRefused
from sandbox.serve.client_lists import REF_META, SKILL_META, answer_list, resolved
from sandbox.serve.guard import UriGuard
from sandbox.serve.paths import Roots
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules
from sandbox.spec.load import check_folder
from sandbox.spec.model import PromptDecl, ResourceDecl
from sandbox.vet.bind import bind
from sandbox.vet.model import ServerSurface
from sandbox.wire.jsonrpc import Result
from tests.unit.serve.builders import contract_of, spec_of
from tests.unit.spec.folders import driver, write
from tests.wire_kit import HANDSHAKE, STATELESS, exposure, of_client, refused, serving

NOTES = ResourceDecl(uri_template="note://{name}", integrate_as="ref_kind", ref_kind_id="mcp_notes")
FILES = ResourceDecl(uri_template="file:///data/{+path}", integrate_as="ref_kind", ref_kind_id="mcp_files")
PLAIN = ResourceDecl(uri_template="plain://{name}", integrate_as="raw", ref_kind_id="mcp_plain")
SHOWN = replace(exposure(), resources=(NOTES, FILES, PLAIN))

pytestmark = pytest.mark.anyio


@pytest.mark.claim("P-URI-06")
@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("mcp_notes:note://one", "note://one"),
        ("mcp_files:file:///data/a/b", "file:///data/a/b"),
        ("note://one", "note://one"),
        ("mcp_notes:file:///data/a", None),
        ("mcp_files:note://one", None),
        ("mcp_other:note://one", None),
        ("mcp_plain:plain://one", None),
        ("mcp_notes:mcp_notes:note://one", None),
        ("MCP_NOTES:note://one", None),
        ("mcp_notes :note://one", None),
        ("mcp_notes:", None),
        ("mcp_notes", None),
        ("", None),
        ("mcp_files:file:///data/" + "a" * 20_000, None),
    ],
)
def test_a_reference_opens_what_its_kind_declares(text: str, uri: str | None) -> None:
    """Only an expansion of a template of that very kind; anything else stays a text that no resource has."""
    assert (uri if uri is not None else text) == resolved(SHOWN, text)


@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
async def test_a_reference_is_read_through_resources_read(era: str) -> None:
    """The server gets the URI, never the reference."""
    async with serving(client_era=era, shown=SHOWN) as stage:
        stage.client.call("resources/read", of_client(era, {"uri": "mcp_notes:note://one"}))
        request = await stage.server.expect("resources/read")
        stage.server.send(Result(request.id, {"contents": [{"uri": "note://one", "text": "1"}]}))
        answer = await stage.client.receive(Result)

    assert "note://one" == request.params["uri"]
    assert "1" == answer.result["contents"][0]["text"]


ESCAPES = [
    "mcp_files:file:///data/../etc/passwd",
    "mcp_files:file:///data/%2e%2e/etc/passwd",
    "mcp_files:file:///data/..%2fetc/passwd",
    "mcp_files:file:///etc/passwd",
    "mcp_files:file://host/data/a",
    "mcp_notes:note://..",
    "mcp_notes:note://a%2f..%2fb",
]


@pytest.mark.claim("P-URI-06")
@pytest.mark.parametrize("text", ESCAPES)
async def test_an_escape_is_refused_like_the_uri_itself(text: str) -> None:
    """With the guard of a real driver, no reading of the URI behind a reference leaves its roots or template."""
    templates = (Template("note://{name}"), Template("file:///data/{+path}"))
    guard = UriGuard(UriRules(roots=Roots(["/data"]), templates=templates))
    good = resolved(SHOWN, "mcp_files:file:///data/a")

    assert "file:///data/a" == guard.inspect(good).text
    with pytest.raises(CallRefused, match="CALL-04"):
        guard.inspect(resolved(SHOWN, text))


@pytest.mark.parametrize("uri", ["mcp_other:note://one", "mcp_notes:secret://x"])
async def test_an_undeclared_reference_reaches_no_server(uri: str) -> None:
    """What no declaration could have made is an unknown resource."""
    async with serving(shown=SHOWN) as stage:
        assert -32002 == (await refused(stage, "resources/read", of_client(HANDSHAKE, {"uri": uri}))).code
        assert stage.server.unread.empty()


def test_lists_tell_references_and_skills() -> None:
    """A listed resource of a kind carries its reference, a prompt of a skill its name; others carry nothing."""
    prompts = {
        "a": PromptDecl(name="a", integrate_as="skill_block", skill_ref="./SKILL.md", skill="summaries"),
        "b": PromptDecl(name="b", integrate_as="raw"),
    }
    shown = replace(SHOWN, prompts=prompts)

    def metas(method: str, key: str, name: str) -> list[Any]:
        return [one.get("_meta", {}).get(name) for one in answer_list(method, {}, shown, HANDSHAKE)[key]]

    assert ["mcp_notes:note://one"] == metas("resources/list", "resources", REF_META)
    assert ["mcp_notes:note://{name}", "mcp_files:file:///data/{+path}", None] == metas(
        "resources/templates/list", "resourceTemplates", REF_META
    )
    assert ["summaries", None] == metas("prompts/list", "prompts", SKILL_META)


# --- declared integrations --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("part", "id_"),
    [
        ({"prompts": (PromptDecl(name="p", integrate_as="skill_block"),)}, "VET-151"),
        ({"resources": (ResourceDecl(uri_template="a:b", integrate_as="ref_kind"),)}, "VET-152"),
        ({"resources": (ResourceDecl(uri_template="a:b", integrate_as="ref_kind", ref_kind_id="url"),)}, "VET-152"),
    ],
)
def test_an_integration_that_leads_nowhere_is_refused_at_registration(part: dict[str, Any], id_: str) -> None:
    """A block of no skill, and a kind without a name or with one of AIP-27's own."""
    spec = spec_of(contract_of()).model_copy(update=part)
    surface = ServerSurface(
        "handshake", HANDSHAKE, {}, {}, tools={"server_tool": {"name": "server_tool"}}, prompts={"p": {"name": "p"}}
    )

    with pytest.raises(VetRefused, match=id_):
        bind(spec, surface)


SKILLS = [
    ("---\nname: summaries\ndescription: d\n---\n", "summaries", False),
    ("---\ndescription: d\n---\n", "", True),
    ("---\nname: Not a name\n---\n", "", True),
    ("no front matter", "", True),
    (None, "", True),
]


@pytest.mark.parametrize(("text", "name", "warned"), SKILLS)
def test_a_skill_is_read_from_the_folder(text: str | None, name: str, warned: bool, tmp_path: Path) -> None:
    """A valid SKILL.md gives its name; anything else warns and names no skill."""
    prompt = {"name": "p", "integrate_as": "skill_block", "skill_ref": "./s/SKILL.md"}
    path = write(tmp_path, driver(prompts=[prompt]))
    if text is not None:
        (path / "s").mkdir()
        (path / "s" / "SKILL.md").write_text(text)

    spec, problems = check_folder(path)

    assert spec is not None
    assert name == spec.prompts[0].skill
    assert warned == ("SPEC-067" in {problem.id for problem in problems})
