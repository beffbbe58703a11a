"""URIs and templates: what is forwarded, what is refused and why."""

from __future__ import annotations

import pytest

from sandbox.errors import CallRefused
from sandbox.policy.hosts import parse_rules
from sandbox.serve.paths import Roots
from sandbox.serve.templates import MAX_PREFIX, Template, TemplateError, match_template
from sandbox.serve.uris import MAX_URI_BYTES, UriRules, check_reference, check_resource, check_uri, egress_of

TEMPLATES = (
    Template("demo://doc/{name}"),
    Template("repo://{owner}/{repo}/contents{/path*}"),
    Template("file:///data/{+path}"),
)
RULES = UriRules(
    Roots(["/data", "/my files"]),
    "/data/work",
    TEMPLATES,
    egress_of(parse_rules(["*.example.com", "https://198.51.100.7"])),
)


@pytest.mark.parametrize(
    ("text", "forwarded", "path"),
    [
        ("file:///data/a.txt", "file:///data/a.txt", "/data/a.txt"),
        ("file:/data/a.txt", "file:///data/a.txt", "/data/a.txt"),
        ("file://localhost/data/a", "file:///data/a", "/data/a"),
        ("file:///data/my%20file", "file:///data/my%20file", "/data/my file"),
        ("file:///data/my file", "file:///data/my file", "/data/my file"),
        ("file:///my%20files/a", "file:///my%20files/a", "/my files/a"),
        ("file:///data/100%25", "file:///data/100%25", "/data/100%"),
        ("file:///data/é", "file:///data/é", "/data/é"),
        ("file:///data/", "file:///data/", "/data"),
        ("http://www.example.com", "http://www.example.com/", "/"),
        ("https://WWW.example.com:443/a?b=../c#d", "https://www.example.com/a?b=../c#d", "/a"),
        ("https://198.51.100.7/x", "https://198.51.100.7/x", "/x"),
        ("demo://doc/a-b", "demo://doc/a-b", "/a-b"),
    ],
)
def test_what_is_checked_is_what_is_forwarded(text: str, forwarded: str, path: str) -> None:
    """A URI comes out as it will be forwarded, and checking that again changes nothing."""
    rules = UriRules(
        RULES.roots,
        RULES.cwd,
        RULES.templates,
        egress_of(parse_rules(["*.example.com:80,443", "198.51.100.7:443"]), ["198.51.100.0/24"]),
    )
    checked = check_uri(text, rules)

    assert (forwarded, path) == (checked.text, checked.path)
    assert checked == check_uri(checked.text, rules)


@pytest.mark.claim("P-URI-02")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no scheme", "CALL-040"),
        (" file:///data/a", "CALL-040"),
        ("file:///data/a\n", "CALL-040"),
        ("file:///data/100%", "CALL-040"),
        ("file:///data/%ff", "CALL-041"),
        ("file://data/a", "CALL-040"),
        ("file:data/a", "CALL-040"),
        ("file:///data/a?b", "CALL-041"),
        ("file:///data//a", "CALL-041"),
        ("file:///data/./a", "CALL-041"),
        ("file:///d%61ta/a", "CALL-041"),
        ("file:///data/a%2Fb", "CALL-041"),
        ("file:///data\\a", "CALL-041"),
        ("file:///data/%252e%252e/x", "CALL-041"),
        ("file:///database/x", "CALL-042"),
        ("file:///C|/data", "CALL-042"),
        ("demo:///doc/a", "CALL-043"),
        ("demo://doc/a/b", "CALL-043"),
        ("demo://doc/a%2Fb", "CALL-041"),
        ("demo://doc/..", "CALL-041"),
        ("Demo://doc/a", "CALL-040"),
        ("data:text/plain,x", "CALL-043"),
        ("javascript:alert(1)", "CALL-043"),
        ("http://example.com/", "CALL-044"),
        ("http://www.example.com:8080/", "CALL-044"),
        ("http://127.0.0.1/", "CALL-044"),
        ("https://198.51.100.7/", "CALL-044"),
        ("http://user@www.example.com/", "CALL-041"),
        ("http://www.example.com/%2e%2e/x", "CALL-041"),
        ("http://www.example.com/a b", "CALL-040"),
        ("demo://doc/" + "x" * MAX_URI_BYTES, "CALL-040"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str, expected: str) -> None:
    """Every refusal has its id; nothing is repaired."""
    with pytest.raises(CallRefused) as caught:
        check_uri(text, RULES)

    assert expected == caught.value.id


def test_the_message_has_one_printable_line() -> None:
    """A refusal that repeats hostile text repeats it escaped and short."""
    with pytest.raises(CallRefused) as caught:
        check_uri("demo://doc/\x1b[31m\u202e" + "x" * 500, RULES)

    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


def test_a_driver_without_network_reaches_no_host() -> None:
    """Without egress rules every http URI is refused."""
    with pytest.raises(CallRefused) as caught:
        check_uri("https://www.example.com/", UriRules(Roots(["/data"])))

    assert caught.value.id == "CALL-044"


@pytest.mark.parametrize(
    ("text", "forwarded"),
    [
        ("a.txt", "file:///data/work/a.txt"),
        ("./a%20b", "file:///data/work/a%20b"),
        ("/data/x", "file:///data/x"),
        ("demo://doc/x", "demo://doc/x"),
    ],
)
def test_references_are_resolved_against_the_working_directory(text: str, forwarded: str) -> None:
    """A relative reference becomes the URI that is forwarded."""
    assert forwarded == check_reference(text, RULES).text


@pytest.mark.parametrize("text", ["//host/x", "../x", "", "~/x", "?q", "/etc/passwd", "a/../../x"])
def test_references_do_not_leave(text: str) -> None:
    """Network paths, climbing and homes are refused."""
    with pytest.raises(CallRefused):
        check_reference(text, RULES)


def test_a_resource_must_be_declared() -> None:
    """A file inside a root is no resource unless a template declares it."""
    assert check_resource("file:///data/a/b", RULES).template == "file:///data/{+path}"
    with pytest.raises(CallRefused) as caught:
        check_resource("file:///my%20files/a", RULES)

    assert caught.value.id == "CALL-043"


@pytest.mark.parametrize(
    ("template", "yes", "no"),
    [
        ("memo://{id}", ["memo://x", "memo://a.b-c:d@e", "memo://é%20x"], ["memo://", "memo://a/b", "memo://a?b"]),
        ("memo://{+path}", ["memo://a/b?c#d"], ["memo://", "memo://a\\b"]),
        ("m://{a}-{b}.txt", ["m://x-y.txt", "m://x-y-z.txt"], ["m://-y.txt", "m://x-.txt", "m://x-y"]),
        ("m://h{/path*}", ["m://h", "m://h/a", "m://h/a/b"], ["m://ha", "m://h/", "m://h//a"]),
        ("m://h{/a,b}", ["m://h/x", "m://h/x/y"], ["m://h/x/y/z"]),
        ("m://h{?a,b}", ["m://h", "m://h?a=1&b=2", "m://h?b=2", "m://h?a="], ["m://h?", "m://h?c=1", "m://h?b=2&a=1", "m://h?a=1/2"]),
        ("m://h?x=1{&a*}", ["m://h?x=1", "m://h?x=1&q=2&r=3"], ["m://h?x=1&"]),
        ("m://h{;a}", ["m://h;a", "m://h;a=1", "m://h"], ["m://h;b"]),
        ("m://h{.ext}", ["m://h.txt", "m://h"], ["m://h."]),
        ("m://h{#frag}", ["m://h#a/b", "m://h"], ["m://h#"]),
        ("m://{a,b}", ["m://x", "m://x,y"], ["m://x/y"]),
        ("m://{x:3}", ["m://a", "m://abc"], ["m://abcd", "m://"]),
        ("m://fixed", ["m://fixed"], ["m://fixed/", "m://fixe"]),
    ],
)  # fmt: skip
def test_templates_match_their_expansions_and_nothing_else(template: str, yes: list[str], no: list[str]) -> None:
    """A variable takes no slash unless its operator says so, and is never empty by accident."""
    compiled = Template(template)

    assert [] == [uri for uri in yes if not match_template(compiled, uri)]
    assert [] == [uri for uri in no if match_template(compiled, uri)]


@pytest.mark.parametrize(
    "text",
    [
        "{+x}",
        "{scheme}://x",
        "M://x",
        "m://{",
        "m://}",
        "m://{x",
        "m://{}",
        "m://{x y}",
        f"m://{{x:{MAX_PREFIX + 1}}}",
        "m://{!x}",
        "m://" + "x" * 3000,
    ],
)
def test_templates_that_cannot_be_strict_are_refused(text: str) -> None:
    """A template without a literal scheme, or of unknown form, is an error of its author."""
    with pytest.raises(TemplateError):
        Template(text)


def test_matching_takes_linear_time() -> None:
    """R11: a template made for backtracking is matched in steps that are counted, one for each character."""
    template = Template("m://" + "-".join(f"{{a{index}}}" for index in range(30)) + "!")
    uri = "m://" + "-" * 15_000

    assert not template.matches(uri)
    assert len(template._memo) < 100
