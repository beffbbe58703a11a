"""Policy files: what is read, what is refused with its line, and that a narrowing file never widens."""

from __future__ import annotations

import tomllib

import pytest

from sandbox.errors import CeilingError
from sandbox.limits import GIB, MIB
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_file import MAX_POLICY_BYTES, line_map
from sandbox.policy.ceiling_values import BOUNDS, show, star
from sandbox.resources import shipped
from tests.planning import default, strict

HEAD = 'version = 1\nname = "own"\nnarrows = "default"\n'


def problems(text: str) -> set[tuple[str, int, str]]:
    """Return id, line and field of everything that is wrong with a file."""
    with pytest.raises(CeilingError) as caught:
        load_ceiling(text.encode(), "own.toml", default())
    return {(problem.id, problem.line, problem.field) for problem in caught.value.problems}


def ids(text: str) -> set[str]:
    """Return the ids of everything that is wrong with a file."""
    return {id_ for id_, _, _ in problems(text)}


def test_shipped_ceiling_has_every_bound_and_names_its_lines() -> None:
    """Each bound of the shipped file is read with its unit, and the line is the one it stands on."""
    text = shipped("policies", "default.toml").read_text()
    memory = default().bounds["memory"]
    line = int(memory.source.rpartition(":")[2])

    assert set(BOUNDS) == set(default().bounds)
    assert (memory.max, memory.default) == (4 * GIB, 512 * MIB)
    assert text.splitlines()[line - 1] == 'max = "4GiB"'


@pytest.mark.claim("P-PLAN-05")
def test_every_allow_of_the_shipped_files_has_a_reason() -> None:
    """No entry of a shipped policy is without a sentence that says why."""
    lists = (
        "read",
        "write",
        "never",
        "servers",
        "methods",
        "registries",
        "transports",
        "runtimes",
        "hosts",
        "env_pass",
    )
    for ceiling in (default(), strict()):
        entries = [entry for name in lists for entry in getattr(ceiling, name)]

        assert all(len(entry.reason) > 3 for entry in entries)
        assert all(":" in entry.source for entry in entries)


def test_shipped_ceilings_switch_on_no_weakening_and_no_private_network() -> None:
    """What weakens is off, and no private network can be reached, unless an operator writes it."""
    for ceiling in (default(), strict()):
        assert () == ceiling.unsafe == ceiling.private


@pytest.mark.parametrize(
    "path",
    [
        "/proc",
        "/sys",
        "/dev",
        "/run",
        "/var/run",
        "/boot",
        "/etc",
        "~/.ssh",
        "~/.aws",
        "~/.gnupg",
        "~/.config",
        "~/.kube",
        "~/.docker",
        "~/.mozilla",
        "~/.*history",
        "/var/lib/docker",
        "**/docker.sock",
    ],
)
def test_sensitive_places_are_never_mounted(path: str) -> None:
    """The shipped file names the places that no driver gets."""
    assert path in {entry.value for entry in default().never}


def test_strict_narrows_the_default() -> None:
    """The strict file is a valid narrowing one and keeps the never list."""
    assert strict().bounds["memory"].max < default().bounds["memory"].max
    assert default().never == strict().never
    assert (strict().pull, strict().raw_tcp, strict().host_ca) == (False, False, False)


def test_digest_depends_on_both_files() -> None:
    """A plan's policy digest changes with either file."""
    own = load_ceiling(HEAD.encode(), "own.toml", default())
    other = load_ceiling((HEAD + "\n").encode(), "own.toml", default())

    assert len({own.digest, other.digest, default().digest}) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[mounts]\nreed = []\n", {("PLAN-081", 5, "mounts.reed")}),
        ("surprise = 1\n", {("PLAN-081", 4, "surprise")}),
        ('[limits.memory]\nmax = "1GB"\ndefault = "1MiB"\nreason = "r"\n', {("PLAN-082", 5, "limits.memory.max")}),
        ('[limits.memory]\nmax = "0GiB"\ndefault = "0B"\nreason = "r"\n', {("PLAN-082", 6, "limits.memory.default")}),
        ('[limits.cpus]\nmax = nan\ndefault = inf\nreason = "r"\n', {("PLAN-082", 6, "limits.cpus.default")}),
        ("[limits.pids]\nmax = true\ndefault = 1\nreason = 'r'\n", {("PLAN-082", 5, "limits.pids.max")}),
        ('[limits.pids]\nmax = 4\ndefault = 8\nreason = "r"\n', {("PLAN-082", 6, "limits.pids.default")}),
        ('[[mounts.read]]\npath = "/srv/x"\n', {("PLAN-083", 4, "mounts.read[0].reason")}),
        ('[[mounts.read]]\npath = "/srv/x"\nreason = ""\n', {("PLAN-083", 6, "mounts.read[0].reason")}),
        (
            '[[mounts.read]]\npath = "srv"\nreason = "r"\n',
            {("PLAN-082", 5, "mounts.read[0].path"), ("PLAN-086", 4, "mounts.read[0]")},
        ),
        (
            '[mounts]\nnever = [\n  # note\n  { path = "/x/../y", reason = "r" },\n]\n',
            {("PLAN-082", 7, "mounts.never[0].path")},
        ),
        (
            '[[unsafe]]\nname = "unsafe_everything"\nreason = "r"\n',
            {("PLAN-082", 5, "unsafe[0].name"), ("PLAN-086", 4, "unsafe[0]")},
        ),
        ("[images]\npull = 1\n", {("PLAN-082", 5, "images.pull")}),
        ("[images]\npull = true\n", {("PLAN-083", 4, "images.reason")}),
        ('[[egress.hosts]]\npattern = "*"\nports = [0]\nreason = "r"\n', {("PLAN-082", 6, "egress.hosts[0].ports")}),
        ('[[egress.hosts]]\npattern = "*.*.com"\nreason = "r"\n', {("PLAN-082", 5, "egress.hosts[0].pattern")}),
        ("servers = 1\n", {("PLAN-082", 4, "servers")}),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, expected: set[tuple[str, int, str]]) -> None:
    """Unknown keys, wrong values and missing reasons are refused at their line."""
    assert expected <= problems(HEAD + text)


@pytest.mark.parametrize(
    ("data", "line"), [(b"\xff", 0), (b"a = 1\nb = !\n", 2), (b" " * (MAX_POLICY_BYTES + 1), 0), (b"a = 1\na = 2\n", 0)]
)
def test_unreadable_file_is_refused(data: bytes, line: int) -> None:
    """Bytes that are not UTF-8, not TOML, say a key twice, or are too many are refused."""
    with pytest.raises(CeilingError) as caught:
        load_ceiling(data, "own.toml", default())

    assert caught.value.id == "PLAN-080"
    assert line in {0, caught.value.problems[0].line}


@pytest.mark.parametrize(
    "head",
    ['version = 1\nname = "own"\n', HEAD + 'replaces = "default"\n', 'version = 1\nname = "own"\nnarrows = "strict"\n'],
)
def test_file_that_does_not_say_how_it_stands_is_refused(head: str) -> None:
    """An operator's file narrows or replaces the shipped one, and says which."""
    assert {"PLAN-085", "PLAN-082"} & ids(head)


def test_replacing_file_must_be_complete() -> None:
    """A file that stands alone inherits no bound."""
    assert "PLAN-084" in ids('version = 1\nname = "own"\nreplaces = "default"\n')


def test_replacing_file_allows_only_what_it_says() -> None:
    """A complete file without lists allows nothing."""
    bounds = "".join(
        f'[limits.{name}]\nmax = {value}\ndefault = {value}\nreason = "r"\n'
        for name, value in zip(BOUNDS, ['"1GiB"', 1.0, 8, 8, '"1MiB"', '"1MiB"', 8, '"1h"', '"1s"'], strict=True)
    )
    own = load_ceiling(f'version = 1\nname = "own"\nreplaces = "default"\n{bounds}'.encode(), "own.toml", default())

    assert () == own.read == own.write == own.servers == own.runtimes == own.hosts == own.env_pass


@pytest.mark.claim("P-PLAN-04")
@pytest.mark.parametrize(
    "text",
    [
        '[limits.memory]\nmax = "5GiB"\ndefault = "1MiB"\nreason = "r"\n',
        '[limits.memory]\nmax = "4GiB"\ndefault = "1GiB"\nreason = "r"\n',
        '[[mounts.read]]\npath = "/var/lib/x"\nreason = "r"\n',
        '[[mounts.read]]\npath = "/srvx"\nreason = "r"\n',
        '[[mounts.write]]\npath = "/opt"\nreason = "r"\n',
        '[[install.methods]]\nname = "brew"\nreason = "r"\n',
        '[[install.methods]]\nname = "np*"\nreason = "r"\n',
        '[[runtimes]]\nname = "runc"\nstrength = 3\nreason = "r"\n',
        '[[runtimes]]\nname = "*"\nstrength = 1\nreason = "r"\n',
        '[[egress.private]]\ncidr = "10.0.0.0/8"\nreason = "r"\n',
        '[[env.pass]]\nname = "*"\nreason = "r"\n',
        '[[env.pass]]\nname = "L*"\nreason = "r"\n',
        '[[unsafe]]\nname = "unsafe_unpinned_image"\nreason = "r"\n',
    ],
)
def test_narrowing_file_that_would_widen_is_refused(text: str) -> None:
    """Each way to allow more than the file below is an error, not a wider ceiling."""
    assert "PLAN-086" in ids(HEAD + text)


@pytest.mark.parametrize(
    ("below", "own", "wider"),
    [
        ('pattern = "*.example.com"', 'pattern = "a.example.com"', False),
        ('pattern = "*.example.com"', 'pattern = "*.a.example.com"', False),
        ('pattern = "*.example.com"', 'pattern = "example.com"', True),
        ('pattern = "*.example.com"', 'pattern = "*"', True),
        ('pattern = "*.example.com"', 'pattern = "badexample.com"', True),
        ('pattern = "*.example.com"\nports = [443]', 'pattern = "a.example.com"', True),
        ('pattern = "*.example.com"\nports = [443]', 'pattern = "a.example.com"\nports = [443, 80]', True),
        ('pattern = "*.example.com"\nports = [443, 80]', 'pattern = "a.example.com"\nports = [443]', False),
    ],
)
def test_hosts_narrow_by_name_and_port(below: str, own: str, wider: bool) -> None:
    """A host list narrows when names and ports are covered."""
    replaced = shipped("policies", "default.toml").read_text().replace('pattern = "*"', below)
    base = load_ceiling(replaced.encode(), "base.toml")
    text = f'{HEAD}[[egress.hosts]]\n{own}\nreason = "r"\n'

    if wider:
        with pytest.raises(CeilingError, match="PLAN-086"):
            load_ceiling(text.encode(), "own.toml", base)
    else:
        assert len(load_ceiling(text.encode(), "own.toml", base).hosts) == 1


def test_lists_that_are_not_written_are_inherited_and_empty_ones_allow_nothing() -> None:
    """Leaving a list out keeps it; writing it empty takes everything away."""
    own = load_ceiling((HEAD + "runtimes = []\n").encode(), "own.toml", default())

    assert own.runtimes == ()
    assert default().servers == own.servers


def test_lines_survive_comments_strings_and_lists() -> None:
    """Headers in strings and brackets in comments do not mislead the line numbers."""
    text = '# [a]\n[b] # ]\nk = "[c]" # [\nl = [\n "x",\n # "n"\n "y", ]\n[[d]]\nm = 1\n[[d]]\nm = 2\n'
    found = line_map(text)

    assert tomllib.loads(text)["b"]["l"] == ["x", "y"]
    assert tuple(found[key] for key in ("b", "b.k", "b.l[0]", "b.l[1]", "d[0].m", "d[1].m")) == (2, 3, 5, 7, 9, 11)
    assert "a" not in found
    assert "c" not in found


@pytest.mark.parametrize(
    ("bound", "amount", "text"),
    [
        ("memory", GIB, "1GiB"),
        ("memory", 3 * MIB, "3MiB"),
        ("tmp", 5, "5B"),
        ("lifetime", 86400, "24h"),
        ("lifetime", 0.5, "0.5s"),
        ("cpus", 1.5, "1.5"),
    ],
)
def test_amounts_are_shown_as_people_write_them(bound: str, amount: float, text: str) -> None:
    """A refusal shows sizes and times with their unit."""
    assert text == show(bound, amount)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a", "a", True),
        ("a*", "a", True),
        ("a*b", "ab", True),
        ("a*a", "a", False),
        ("*", "", True),
        ("[a]", "a", False),
        ("a?", "ab", False),
    ],
)
def test_only_the_star_is_a_wildcard(pattern: str, text: str, expected: bool) -> None:
    """Other glob characters stand for themselves."""
    assert expected == star(pattern, text)
