"""The oracle: what is accepted resolves inside a root, on a real tree, by the kernel and independently of our code.

The tree is a sandbox's: its own ``/etc`` and ``/proc`` stand-ins, three roots, a sibling whose name begins like a
root's, and links of every kind. Resolution is ``openat2`` with ``RESOLVE_IN_ROOT``: the tree's top is ``/``, as in a
container.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest

from sandbox.errors import CallRefused
from sandbox.serve.paths import Roots, check_path
from sandbox.serve.paths_fs import HostTree
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules, check_reference, check_uri
from tests.shared import shared_data

ROOTS = ("/data/a", "/home/me/projects", "/srv")
CWD = "/data/a/work"
TRAVERSAL = (
    "deep_traversal.txt", "LFI-FD-check.txt", "List_Of_File_To_Include_NullByteAdded.txt", "directory_traversal.txt",
    "traversals-8-deep-exotic-encoding.txt", "List_Of_File_To_Include.txt", "JHADDIX_LFI.txt", "BSD-files.txt",
    "Traversal.txt", "simple-check.txt", "Mac-files.txt", "php-filter-iconv.txt", "LFI-WindowsFileCheck.txt",
    "Windows-files.txt", "Linux-files.txt", "dotdotpwn.txt", "Web-files.txt",
    "dot-slash-PathTraversal_and_LFI_pairing.txt",
)  # fmt: skip
RULES = UriRules(Roots(ROOTS), CWD, (Template("demo://{+path}"), Template("memo://{id}")), lambda _host, _port: None)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the top of a prepared tree."""
    top = tmp_path_factory.mktemp("tree")
    for folder in (
        "data/a/work/sub",
        "data/a_evil",
        "home/me/projects",
        "home/me/.ssh",
        "srv/www",
        "etc",
        "proc/self",
        "windows/system32",
    ):
        top.joinpath(folder).mkdir(parents=True)
    for canary in (
        "etc/passwd",
        "etc/shadow",
        "data/a_evil/canary",
        "home/me/.ssh/id",
        "boot.ini",
        "proc/self/environ",
    ):
        top.joinpath(canary).write_text("CANARY")
    for name in ("data/a/work/file", "data/a/work/sub/file", "srv/www/index.html"):
        top.joinpath(name).write_text("content")
    links = {
        "data/a/out-absolute": "/etc",
        "data/a/out-relative": "../../etc",
        "data/a/out-file": "/etc/passwd",
        "data/a/dangling": "../../etc/new",
        "data/a/in": "work/sub",
        "data/a/loop": "loop",
        "data/a/work/up": "..",
        "data/a/magic": "/proc/self/root",
        "srv/www/chain": "../../data/a/out-relative",
    }
    for link, target in links.items():
        top.joinpath(link).symlink_to(target)
    return top


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def resolve(top: Path, path: str) -> str:
    """Return where the kernel arrives, as a path in the sandbox; for a name that is absent, where it would be made."""
    libc = ctypes.CDLL(None, use_errno=True)
    in_root = 0x10
    parts = [part for part in path.split("/") if part]
    root = os.open(top, os.O_PATH)
    try:
        for length in range(len(parts), -1, -1):
            how = _How(os.O_PATH | os.O_CLOEXEC, 0, in_root)
            name = os.fsencode("/" + "/".join(parts[:length]))
            found = libc.syscall(437, root, name, ctypes.byref(how), ctypes.sizeof(how))
            if found >= 0:
                real = str(Path(f"/proc/self/fd/{found}").readlink())
                os.close(found)
                rest = "/".join(parts[length:])
                return "/" + os.path.relpath(real, top).removeprefix(".").lstrip("/") + (f"/{rest}" if rest else "")
            if ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                raise OSError(ctypes.get_errno(), "openat2", path)
    finally:
        os.close(root)
    raise AssertionError("the top of the tree resolves")


def inside(path: str) -> bool:
    """Return whether a resolved path is a root or below one, by component."""
    return any(path == root or path.startswith(root + "/") for root in ROOTS)


def lines() -> list[str]:
    """Return every line of every list, with and without what an editor would call its ending, each once."""
    found: dict[str, None] = {}
    for name in TRAVERSAL:
        for raw in shared_data("uri", "traversal", name).read_bytes().split(b"\n"):
            text = raw.decode("utf-8", "surrogateescape").replace("{FILE}", "etc/passwd")
            found.update({text: None, text.strip("\r"): None})
    return list(found)


def variants(line: str) -> tuple[str, str, str]:
    """Return a line as itself, and behind a root with and without a slash between."""
    return line, f"{ROOTS[0]}/{line}", f"{ROOTS[0]}{line}"


def readings_of(text: str) -> set[str]:
    """Return what servers make of an accepted path: itself, decoded once and twice, backslashes as slashes, folded."""
    once = unquote(text, errors="replace")
    some = {text, once, unquote(once, errors="replace"), unicodedata.normalize("NFKC", once)}
    return some | {reading.replace("\\", "/") for reading in some}


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.claim("P-URI-01")
def test_no_line_of_the_traversal_lists_leads_out(tree: Path) -> None:
    """Every accepted path lies inside a root, in every reading a server may make of it."""
    accepted, refused, out = 0, 0, []
    with HostTree((root, str(tree) + root) for root in ROOTS) as host:
        for line in lines():
            for text in variants(line):
                try:
                    checked = check_path(text, RULES.roots, CWD)
                    host.verify(checked)
                except CallRefused:
                    refused += 1
                    continue
                accepted += 1
                out += [
                    (text, each)
                    for each in readings_of(checked.text)
                    if "\0" in each or not inside(resolve(tree, each))
                ]

    assert out == []
    assert refused > 50_000
    assert accepted > 1_000


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.claim("P-URI-01")
def test_no_uri_made_of_the_traversal_lists_leads_out(tree: Path) -> None:
    """The same for file URIs and references, raw and encoded once."""
    accepted, out = 0, []
    with HostTree((root, str(tree) + root) for root in ROOTS) as host:
        for line in lines():
            for text in (line, f"/data/a/{line}"):
                plain = text.encode("utf-8", "replace").decode()
                for uri in (f"file://{plain}", f"file://{quote(plain)}", plain):
                    try:
                        checked = check_reference(uri, RULES)
                        if checked.kind != "file":
                            continue
                        host.verify(checked)
                    except CallRefused:
                        continue
                    accepted += 1
                    path = urlsplit(checked.text).path
                    out += [(uri, each) for each in readings_of(unquote(path)) if not inside(resolve(tree, each))]
                    out += [(uri, "differs")] * (unquote(path).rstrip("/") != checked.path.rstrip("/"))

    assert out == []
    assert accepted > 1_000


def wpt_cases() -> Iterator[dict[str, Any]]:
    """Yield the URL cases of web-platform-tests and of another parser."""
    for name in (
        "urltestdata.json",
        "ada_extra_urltestdata.json",
        "urltestdata-javascript-only.json",
        "ada_long_urltestdata.json",
    ):
        for case in json.loads(shared_data("uri", "wpt-url", "tests", "wpt", name).read_text()):
            if isinstance(case, dict) and "input" in case:
                yield case


@pytest.mark.data
@pytest.mark.claim("P-URI-02")
def test_no_url_case_leads_out(tree: Path) -> None:
    """An accepted case is one that the standard also parses, to the same URL; files lie inside a root."""
    accepted, wrong = [], []
    for case in wpt_cases():
        for text in (case["input"], f"{case.get('base') or ''}{case['input']}"):
            try:
                checked = check_uri(text, RULES)
            except CallRefused:
                continue
            accepted.append(text)
            if checked.kind == "file" and not inside(resolve(tree, checked.path)):
                wrong.append((text, checked.path))
            if checked.kind == "http" and text == case["input"]:
                if case.get("failure") and case.get("base"):
                    continue  # it is the base that fails
                same = not case.get("failure") and (checked.host, checked.text) == (case["hostname"], case["href"])
                wrong += [] if same else [(text, checked)]

    assert wrong == []
    assert len(accepted) > 50


@pytest.mark.data
@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/passwd", "../x", "file:///data/a/%2e%2e/%2e%2e/etc/passwd", "file://host/data/a/x",
        "FILE:///data/a/x",
        "file:////etc/passwd", "jar:file:///data/a/x!/y", "data:text/plain,x", "javascript:alert(1)",
        "file:///data/a_evil/canary",
        "http://169.254.169.254@example.com/", "http://0x7f.1/", "http://2130706433/", "http://[::ffff:127.0.0.1]/",
        "http://example.com\\@evil.example/", "http://exa\tmple.com/", "http:///example.com", "http:example.com",
        "http://example.com%2f@evil.example/", "http://ｅxample.com/", "http://example.com./", "http://127.1/",
        "http://017700000001/", "http://example.com:080/", "http://example.com/a/../b", "http://example.com/%2e%2e/b",
    ],
)  # fmt: skip
def test_abuses_of_uris_are_refused(text: str) -> None:
    """J17: the known ways to write a URI that somebody reads in another way."""
    with pytest.raises(CallRefused):
        check_uri(text, RULES)


BENIGN = [
    "a.txt", "a..b", "...", "....", "a...", "..a", "..a..", "x..", "100%", "50% off.txt", "100%.txt", "a%20b.txt",
    "%", "%%", "%zz", "%d", "naïve.txt", "nai\u0308ve.txt", "файл.txt", "日本語.md", "emoji 😀.png",
    "👨\u200d👩\u200d👦.jpg", "می\u200cخواهم.txt", "شبكة.pdf", "AC\u29f8DC.mp3", "AC\uff0fDC.mp3", "what\uff1f.txt",
    "½ cup.txt", "~backup", "file~", "~$doc.docx", "$HOME", "${HOME}", "Foo$Bar.class", "a b  c", " leading",
    "trailing ", "(1).txt", "[x].md", "{y}", "a;b", "a:b", "C:", "a,b", "a=b&c=d", "a+b", "#tag", "what?.txt", "'q'",
    '"q"', "-rf", "--help", "system\\x2dunit.slice", "a\\b", "CON", "NUL", ".hidden", ".git", ".env.local",
    "node_modules", "v1.2.3", "x.tar.gz", "a" * 255, "ﷺ.txt", "ﬁ.txt", "e\u0301", "\u00e9", "o͞ ̷i̲̬͇̪͙n̝̗͕v̟̜",
    "2024-01-01T00:00:00Z.log", "file.", "http", "file", "…", "a…b", "http:x", "100%25", "%41",
]  # fmt: skip


def naughty() -> Iterator[str]:
    """Yield the naughty strings that are possible names of files: no slash, no control character, no dot-dot."""
    for text in json.loads(shared_data("uri", "blns", "blns.json").read_text()):
        short = 0 < len(text.encode("utf-8", "replace")) < 256
        usable = short and "/" not in text and text not in (".", "..")
        if usable and not any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
            yield text


def accepted_by_kernel(folder: Path, name: str) -> bool:
    """Create a file of that name and say whether it is there."""
    folder.joinpath(name).write_text("x")
    return name in {entry.name for entry in folder.iterdir()}


@pytest.mark.data
@pytest.mark.claim("P-URI-03")
def test_real_names_are_accepted_unchanged(tmp_path: Path) -> None:
    """Whatever may be a file's name below a root is accepted as a path and forwarded as it is."""
    names = [*BENIGN, *naughty()]
    wrong = []
    for name in names:
        assert accepted_by_kernel(tmp_path, name)
        for text in (f"/data/a/{name}", f"/data/a/sub dir/{name}/child.txt", f"./{name}"):
            try:
                checked = check_path(text, RULES.roots, "/data/a")
            except CallRefused as refusal:
                wrong.append((text, str(refusal)))
                continue
            if checked.text != text.replace("./", "/data/a/", 1) and text.startswith("./"):
                wrong.append((text, checked.text))

    assert wrong == []
    assert len(names) > 400


@pytest.mark.data
@pytest.mark.claim("P-URI-03")
def test_real_names_are_accepted_in_uris() -> None:
    """The same names, encoded as a URI library does it, are accepted and reach the file that was meant."""
    wrong = []
    for name in [*BENIGN, *naughty()]:
        uri = f"file:///data/a/{quote(name)}"
        try:
            checked = check_uri(uri, RULES)
        except CallRefused as refusal:
            wrong.append((uri, str(refusal)))
            continue
        if (checked.text, checked.path) != (uri, f"/data/a/{name}"):
            wrong.append((uri, checked))

    assert wrong == []


@pytest.mark.parametrize(
    "unit", ["../", "%2e%2e%2f", "a/", "%", "%25", "．", "..;/", "\u0300", "{", "//", "ﷺ", ". ", "%u002e"]
)
@pytest.mark.parametrize("head", ["", "file:///data/a/", "http://example.com/", "demo://", "memo://"])
def test_long_text_takes_bounded_time(head: str, unit: str) -> None:
    """R11: 200 KB of anything is answered at a cost that grows with length and no faster."""

    def cost(size: int) -> float:
        text = head + unit * (size // len(unit.encode()))
        started = time.perf_counter()
        for check in (lambda: check_uri(text, RULES), lambda: check_path(text, RULES.roots, CWD)):
            with contextlib.suppress(CallRefused):
                check()
        return time.perf_counter() - started

    small = min(cost(1_000) for _ in range(3))

    assert min(cost(200_000) for _ in range(2)) < 200 * small + 0.5
    assert min(cost(16_000) for _ in range(2)) < 16 * 10 * small + 0.5
