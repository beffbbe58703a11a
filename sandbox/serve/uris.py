r"""URIs: parsed once, decoded in every way, confined before they are forwarded (S0-70; attack J17).

The steps, the same numbers in the code:

1. Text: no control characters, no backslash, no space at either end, at most :data:`MAX_URI_BYTES`; a lower-case
scheme. 2. Percent-encoding: well-formed, valid UTF-8, and not of characters that need none (``%2e`` and ``%61`` serve
nobody but
   those who hide something).
3. By scheme:

   - ``file``: no host but ``localhost``, no query or fragment, no encoded slash, no empty, ``.`` or ``..``
     component; decoded, the path is confined to the roots like any path (``paths``), and so is every other reading.
   - ``http``, ``https``: no credentials; the host is a plain ASCII name or an address in its canonical form; the egress
     rules allow host and port.
   - any other: a declared template matches, and no reading of what follows the scheme climbs.

4. A second parser (WHATWG) must see the same scheme, host, port and path; where two parsers differ, one of them would
be
   deceived.

What comes out is what is forwarded. For ``file`` and templates that is the text that came in (a server may look it up
as a string), with ``file:/x`` and ``file://localhost/x`` written ``file:///x``; for http it is the WHATWG
serialisation. Text that could be read in two ways is refused rather than repaired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from pydantic_core import Url, ValidationError

from sandbox.errors import CallRefused
from sandbox.limits import KIB
from sandbox.policy.destinations import EgressRule, address_refusal, canonical_address, match, networks
from sandbox.serve.paths import Checked, Roots, confine, every_reading_stays, refused
from sandbox.serve.readings import has_control
from sandbox.serve.templates import Template

MAX_URI_BYTES: Final = 12 * KIB
"""One URI: a path of 4 KiB with every byte encoded. Web servers stop at 8 KiB."""

KNOWN_HOSTS: Final = 1024
"""Hosts whose answer is remembered: a plan's rules do not change, and a server has few hosts."""

HTTP_PORTS: Final = {"http": 80, "https": 443}
MAX_PORT: Final = 65535

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NEEDLESS: Final = re.compile(r"%(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|2[Ee])")
_HIDDEN: Final = re.compile(r"%(?:2[Ff]|[01][0-9A-Fa-f]|7[Ff])")
_HIDDEN_BACKSLASH: Final = re.compile(r"%5[Cc]")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)
_HTTP: Final = re.compile(
    r"(https?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([1-9][0-9]{0,4}))?([/?#].*)?", re.DOTALL
)
_AUTHORITY: Final = re.compile(r"[a-z0-9+.-]+:(?://([^/?#]*))?([^?#]*)")

Egress = Callable[[str, int], "str | None"]
"""Why a host (canonical) and port may not be reached, or ``None`` when they may."""


def egress_of(rules: Sequence[EgressRule], private: Sequence[str] = ()) -> Egress:
    """Return the judge that follows a plan's egress rules, before the broker does (an address is judged again there).

    Args:
        rules: of the plan.
        private: CIDRs of addresses that are not public and that the operator allows.
    """
    allowed = networks(tuple(private))

    @lru_cache(KNOWN_HOSTS)
    def judge(host: str, port: int) -> str | None:
        if match(rules, host, port) is None:
            return "no entry of `network.egress` allows it"
        try:
            address = canonical_address(host)
        except ValueError:
            return None
        return address_refusal(address, allowed) or None

    return judge


def no_egress(host: str, port: int) -> str | None:  # noqa: ARG001 - the shape of Egress
    """Refuse every host: what a driver without ``network.egress`` has."""
    return "the driver has no network"


@dataclass(frozen=True, slots=True)
class UriRules:
    """What URIs and paths of one server are held to.

    Attributes:
        roots: directories and files of the sandbox that the plan grants.
        cwd: where relative paths start; empty: they are refused.
        templates: declared resource templates.
        egress: judge of http hosts.
    """

    roots: Roots
    cwd: str = ""
    templates: tuple[Template, ...] = ()
    egress: Egress = no_egress


def check_uri(text: str, rules: UriRules) -> Checked:
    """Return a URI in the form that is forwarded.

    Raises:
        CallRefused: ``CALL-040`` not a usable URI, ``CALL-041`` some reading of it leads out, ``CALL-042`` outside
            every root, ``CALL-043`` scheme or template not declared, ``CALL-044`` host not allowed.
    """
    scheme = _scheme(text)  # 1
    _encoded_once(text, scheme)  # 2
    if scheme == "file":  # 3
        return _file(text, rules.roots)
    if scheme in HTTP_PORTS:
        return _http(text, rules.egress)
    return _templated(text, scheme, rules.templates)


def check_reference(text: str, rules: UriRules) -> Checked:
    """Return a URI reference: a URI, or a relative reference resolved against the working directory.

    Raises:
        CallRefused: as :func:`check_uri`.
    """
    if _SCHEME.match(text):
        return check_uri(text, rules)
    _text(text)
    if text.startswith(("//", "~")) or not text:
        raise refused("CALL-041", text, "it is not relative to a known directory", "write a URI with its scheme")
    if text.startswith("/"):
        return check_uri(f"file://{text}", rules)
    if not rules.cwd:
        raise refused("CALL-040", text, "it is relative, and no working directory is declared", "write a whole URI")
    plain = text.removeprefix("./")
    return check_uri(f"file://{quote(rules.cwd.rstrip('/'))}/{plain}", rules)


def check_resource(text: str, rules: UriRules) -> Checked:
    """Return the URI of a resource that is read or watched: confined by its scheme, and declared by a template.

    Raises:
        CallRefused: as :func:`check_uri`; ``CALL-043`` also for ``file`` and http resources that no template declares.
    """
    checked = check_uri(text, rules)
    if checked.template:
        return checked
    return checked._replace(template=_declared(checked.text, checked.scheme, rules.templates).text)


def _scheme(text: str) -> str:
    _text(text)
    found = _SCHEME.match(text)
    if found is None:
        raise refused("CALL-040", text, "it has no scheme", "write a whole URI, such as `file:///workspace/a.txt`")
    if found[1] != found[1].lower():
        raise refused("CALL-040", text, "its scheme is not in lower case", "write the scheme in lower case")
    return found[1]


def _text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refused("CALL-040", text, "it is not text", "send valid Unicode") from None
    if size > MAX_URI_BYTES:
        raise refused("CALL-040", text, f"it has {size} bytes, more than {MAX_URI_BYTES}", "shorten it")
    if has_control(text) or text != text.strip():
        raise refused("CALL-040", text, "it has control characters, or spaces at an end", "leave them out")
    if "\\" in text:
        raise refused(
            "CALL-041", text, "parsers differ on what a backslash means", "write `/`, or `%5C` where one is meant"
        )


def _encoded_once(text: str, scheme: str) -> None:
    if "%" not in text:
        return
    if _MALFORMED.search(text):
        raise refused("CALL-040", text, "it has a `%` that begins no encoding", "write `%` as `%25`")
    if scheme in HTTP_PORTS:
        return
    if _NEEDLESS.search(text):
        raise refused(
            "CALL-041", text, "it encodes characters that need no encoding", "write letters, digits and dots plainly"
        )
    if _HIDDEN.search(text) or (scheme != "file" and _HIDDEN_BACKSLASH.search(text)):
        why = "it hides a slash, a backslash or a control character"
        raise refused("CALL-041", text, why, "name one resource, not a path within a name")
    _decoded(text, text)


def _decoded(text: str, shown: str) -> str:
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise refused("CALL-041", shown, "what it encodes is not UTF-8", "encode names as UTF-8") from None


def _file(text: str, roots: Roots) -> Checked:
    found = _FILE.fullmatch(text)
    if found is None:
        raise refused("CALL-040", text, "a file URI names no host and an absolute path", "write `file:///…`")
    raw = found[1]
    if "?" in raw or "#" in raw:
        why = "a file has no query and no fragment"
        raise refused("CALL-041", text, why, "write `?` and `#` as `%3F` and `%23` where they belong to the name")
    components = raw[1:].split("/")
    if any(part in ("", ".", "..") for part in components[:-1]) or components[-1] in (".", ".."):
        raise refused("CALL-041", text, "it has empty, `.` or `..` components", "write the path plainly")
    place = confine(_decoded(raw, text), roots, text)
    written = [part for part in components if part]
    below = place.below.count("/") + 1 if place.below else 0
    every_reading_stays("/".join(written[len(written) - below :]), text)
    forwarded = f"file://{raw}"
    _same_file(forwarded, place.path)  # 4
    return Checked(forwarded, "file", "file", "", 0, place.path, place.root, place.below)


def _same_file(uri: str, path: str) -> None:
    seen = _whatwg(uri)
    same = _decoded(seen.path or "", uri).rstrip("/") == path.rstrip("/")
    if not same or seen.scheme != "file" or seen.host or seen.query or seen.fragment:
        raise refused("CALL-041", uri, "parsers differ on what it names", "write the path plainly")


def _http(text: str, egress: Egress) -> Checked:
    found = _HTTP.fullmatch(text)
    if found is None:
        why = "its host is not a plain name or address, or it has credentials"
        raise refused(
            "CALL-041", text, why, "write `https://host/path`, names in ASCII (`xn--…`), without user and password"
        )
    scheme, host, port_text, rest = found[1], found[2].lower(), found[3], found[4] or ""
    port = int(port_text) if port_text else HTTP_PORTS[scheme]
    if " " in rest:
        raise refused("CALL-040", text, "it has a space", "write a space as `%20`")
    seen = _whatwg(text)  # 4
    if (seen.scheme, seen.host, seen.port) != (scheme, host, port) or seen.username or seen.password:
        form = f"`{seen.host}`" if seen.host else "another form"
        raise refused("CALL-041", text, f"parsers read its host as {form}", "write the host in its canonical form")
    if host.endswith(".") or host.startswith("."):
        raise refused("CALL-041", text, "its host begins or ends with a dot", "leave the dot out")
    every_reading_stays(rest.split("?")[0].split("#")[0].removeprefix("/"), text, start=None)
    reason = egress(host.strip("[]"), port)
    if reason is not None:
        raise CallRefused(
            "CALL-044", f"`{host}:{port}` may not be reached: {reason}", "ask for it in `network.egress` of DRIVER.md"
        )
    return Checked(str(seen), "http", scheme, host, port, seen.path or "/")


def _whatwg(text: str) -> Url:
    try:
        return Url(text)
    except ValidationError:
        raise refused("CALL-040", text, "it is not a URL", "correct it") from None


def _templated(text: str, scheme: str, templates: Iterable[Template]) -> Checked:
    template = _declared(text, scheme, templates)
    every_reading_stays(text[len(scheme) + 1 :].lstrip("/"), text, start=None)
    parts = _AUTHORITY.match(text)
    host, path = (parts[1] or "", parts[2]) if parts else ("", "")
    return Checked(text, "template", scheme, host, 0, path, template=template.text)


def _declared(text: str, scheme: str, templates: Iterable[Template]) -> Template:
    for template in templates:
        if template.scheme == scheme and template.matches(text):
            return template
    declared = ", ".join(f"`{template.text}`" for template in templates) or "none"
    message = f"no declared resource template matches `{text[:120]}`"
    raise CallRefused("CALL-043", message, f"declared templates: {declared}")
