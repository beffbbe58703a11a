"""Questions to a trail, its index, proofs of single records, and the line of the draft."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.heads import as_note, dump, export_heads, load
from sandbox.audit.index import FILE, count, span_number, time_number
from sandbox.audit.lines import call_lines, record_line
from sandbox.audit.merkle import tree_head
from sandbox.audit.proofs import check_growth, check_proof, lines, prove, prove_growth
from sandbox.audit.query import Question, conversation, query
from sandbox.audit.record import leaf
from sandbox.audit.recorder import open_recorder
from sandbox.audit.tail import segments
from sandbox.errors import AuditUnavailable, UsageError
from sandbox.events import Scope, Trace
from tests.ledgers import STREAM, ledger, rewrite, segment, signer, written


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A trail of two tenants: calls, a refusal, a lookup and a connection made by a call."""
    recorder = open_recorder(tmp_path / "audit", "run")
    for tenant in ("ada", "bob"):
        session = Scope(recorder, Trace.new(), driver="files-mcp", tenant=tenant, instance="i-" + tenant)
        for tool in ("read", "fetch"):
            call = session.child()
            call.intent(
                "call.forward", tool=tool, client="inspector", decision="allow", arguments={"path": "string(4)"}
            )
            if tool == "fetch":
                connection = session.child()
                connection.intent(
                    "egress.connect", host="api.example.com", port=443, decision="allow", calls=[call.trace.span_id]
                )
                connection.outcome(
                    "egress.connect",
                    host="api.example.com",
                    port=443,
                    decision="allow",
                    calls=[call.trace.span_id],
                    bytes_up=10,
                )
            call.outcome("call.forward", tool=tool, status="ok", duration_us=1499, overhead_us=80)
        session.child().fact(
            "call.decide", tool="write", decision="deny", reason="POLICY-001", client="inspector", arguments={}
        )
        session.fact("egress.dns", host="evil.example", decision="deny", reason="EGR-101", calls=[], count=1)
    recorder.close()
    return tmp_path / "audit"


def found(folder: Path, **parts: Any) -> list[str]:
    """Return names and phases of what a question finds."""
    return [f"{record['name']}/{record['phase']}" for record in query(folder, Question(**parts))]


def test_questions_find_by_each_field(trail: Path) -> None:
    """Tenant, tool, decision, host, name, phase, status and their combinations select what they say."""
    assert len(found(trail)) == count(trail) == 19
    assert len(found(trail, tenant="ada")) == 8
    assert found(trail, tool="read", tenant="bob") == ["call.forward/intent", "call.forward/outcome"]
    assert found(trail, decision="deny", tenant="ada") == ["call.decide/fact", "egress.dns/fact"]
    assert len(found(trail, host="api.example.com")) == 4
    assert found(trail, name="audit.open") == ["audit.open/fact"]
    assert len(found(trail, phase="outcome", status="ok")) == 4
    assert found(trail, tenant="nobody") == found(trail, tool="x", decision="deny") == []


def test_questions_find_by_time_trace_and_span(trail: Path) -> None:
    """A session is one trace, a call one span; times may be given in part."""
    records = list(query(trail, Question(tenant="ada")))
    trace, span, year = records[0]["trace"], records[0]["span"], records[0]["time"][:4]

    assert len(found(trail, trace=trace)) == 8
    assert found(trail, span=span) == ["call.forward/intent", "call.forward/outcome"]
    assert len(found(trail, since=year, until=str(int(year) + 1))) == 19
    assert found(trail, until=year) == []
    assert len(found(trail, since=records[0]["time"], tenant="ada")) == 8
    assert len(found(trail, until=records[1]["time"], tenant="ada")) == 1


def test_which_call_opened_a_connection_is_one_question(trail: Path) -> None:
    """Everything that belongs to a call is found from its span, the connections it caused included."""
    call = next(query(trail, Question(tool="fetch", tenant="ada")))
    names = [f"{record['name']}/{record['phase']}" for record in conversation(trail, call["span"])]

    assert names == ["call.forward/intent", "egress.connect/intent", "egress.connect/outcome", "call.forward/outcome"]
    assert list(conversation(trail, "f" * 16)) == []


def test_newest_come_last_and_the_limit_keeps_them(trail: Path) -> None:
    """Records come in the order of time, and a limit keeps the newest."""
    everything = list(query(trail, Question()))
    last = list(query(trail, Question(limit=3)))

    assert last == everything[-3:]
    assert [record["time"] for record in everything] == sorted(record["time"] for record in everything)


@pytest.mark.parametrize(
    "parts",
    [{"limit": 0}, {"limit": -1}, {"limit": 10**9}, {"since": "yesterday"}, {"until": "20"}, {"since": "2026-1١"}],
)
def test_unusable_questions_are_refused(trail: Path, parts: dict[str, Any]) -> None:
    """Limits and times that cannot be meant are refused, not read as nothing or everything."""
    with pytest.raises(UsageError, match="AUD-033"):
        list(query(trail, Question(**parts)))


@pytest.mark.parametrize("text", ["' OR 1=1 --", 'x" UNION SELECT', "\0", "\ud800", "%"])
def test_hostile_questions_are_data(trail: Path, text: str) -> None:
    """What is asked for is a value, never part of the question."""
    assert found(trail, tool=text.encode("utf-8", "replace").decode()) == []


def test_index_grows_with_the_ledger_and_is_made_again_when_it_does_not_fit(trail: Path) -> None:
    """New streams are added; a damaged index, one of another version or of removed streams is replaced."""
    before = count(trail)
    open_recorder(trail, "next").close()
    assert count(trail) == before + 3
    (trail / FILE).write_bytes(b"SQLite format 3\0 garbage" * 100)
    assert count(trail) == before + 3
    next((trail / "segments").glob("*-run-*")).unlink()

    assert count(trail) == 3


def test_index_holds_only_what_is_a_record(tmp_path: Path) -> None:
    """Torn and foreign lines are passed over; an unfinished one waits for its end."""
    path = written(tmp_path, 5)
    rewrite(
        path,
        lambda found_lines: [
            b"garbage\n",
            b"[1]\n",
            b'{"after":"x"}\n',
            b'{"after":"x","seq":"1","time":1}\n',
            *found_lines,
        ],
    )
    with path.open("ab") as file:
        file.write(b'{"after":"half')

    assert count(tmp_path) == 7
    with path.open("ab") as file:
        file.write(b'","seq":9,"time":"2026-11-21T00:00:00.000000Z","name":"x"}\n')
    assert count(tmp_path) == 8


def test_numbers_sort_as_what_they_stand_for() -> None:
    """Times keep their order as numbers; spans fit SQLite's integers."""
    times = [
        "2026-11-21T08:15:00.000001Z",
        "2026-11-21T08:15:00.000002Z",
        "2026-11-21T08:15:01.000000Z",
        "2027-01-01T00:00:00.000000Z",
    ]
    numbers = [time_number(text) for text in times]

    assert numbers == sorted(numbers, key=lambda number: number or 0)
    assert time_number("2026-11") == time_number("2026-11-00T00:00:00.000000Z")
    assert [None, None, None] == [time_number("x"), time_number(5), time_number("20²6")]
    assert (-1, 1, None, None) == tuple(span_number(text) for text in ("f" * 16, "0" * 15 + "1", "f", "g" * 16))


# --- the line of the draft --------------------------------------------------------------------------------------------
def test_lines_have_the_form_of_the_draft(trail: Path) -> None:
    """Each call that ended is one line with client, tool, tokens, status and latency (S1-28)."""
    found_lines = list(call_lines(query(trail, Question(tenant="ada"))))
    form = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\dZ\] client=\S+ tool=\S+ tokens=\S+ status=\S+ latency=\S+")

    assert all(form.fullmatch(line) for line in found_lines)
    assert [line.partition(" ")[2] for line in found_lines] == [
        "client=inspector tool=read tokens=- status=success latency=1ms",
        "client=inspector tool=fetch tokens=- status=success latency=1ms",
        "client=inspector tool=write tokens=- status=denied latency=-",
    ]


def test_lines_print_tokens_and_errors() -> None:
    """What a record has is printed; what is unknown says so."""
    common = {"name": "call.forward", "time": "2025-11-10T08:15:00.1Z", "span": "s"}
    records = [
        {**common, "phase": "intent", "attrs": {"client": "claude-flow", "tool": "run_analysis"}},
        {
            **common,
            "phase": "outcome",
            "attrs": {"tool": "run_analysis", "tokens": 312, "status": "ok", "duration_us": 534_000},
        },
        {**common, "phase": "outcome", "attrs": {"tool": "x", "status": "error"}},
        {**common, "phase": "outcome", "attrs": {}},
    ]

    assert list(call_lines(records)) == [
        "[2025-11-10T08:15Z] client=claude-flow tool=run_analysis tokens=312 status=success latency=534ms",
        "[2025-11-10T08:15Z] client=- tool=x tokens=- status=error latency=-",
        "[2025-11-10T08:15Z] client=- tool=- tokens=- status=unknown latency=-",
    ]


@pytest.mark.parametrize("text", ["a b", "x\n[2025] client=root", "\x1b[2J", "é", "a=b status=success", "\ud800"])
def test_names_cannot_forge_fields_or_lines(text: str) -> None:
    """A client or tool with spaces, newlines or escapes in its name stays one word."""
    record = {
        "name": "call.decide",
        "phase": "fact",
        "time": "t",
        "attrs": {"decision": "deny", "tool": text, "client": text},
    }
    line = next(call_lines([record]))

    assert line.isascii()
    assert line.isprintable()
    assert len(line.split(" ")) == 6
    assert line.endswith(" status=denied latency=-")


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "a\nb", "\u202e", "\u2028", "\ud800", "\U000e0041"])
def test_any_record_is_one_harmless_line_for_a_terminal(text: str) -> None:
    """Whatever a server put into a record, its line moves no cursor and hides nothing."""
    record = {"time": text, "name": text, "phase": text, "driver": text, "attrs": {"tool": text, "status": text}}
    line = record_line(record)

    assert line.isprintable()
    assert record_line({"attrs": 5}) == " - - None/None"


# --- proofs -----------------------------------------------------------------------------------------------------------
def test_each_record_can_be_proved_to_somebody_without_the_rest(tmp_path: Path) -> None:
    """A proof holds for its record under the folder's key, and for nothing else."""
    written(tmp_path, 30, every=7)
    key = signer(tmp_path).public
    for seq in range(30):
        proof = prove(tmp_path, STREAM, seq)

        assert check_proof(proof, [key])
        assert not check_proof(proof, [])
        assert not check_proof({**proof, "seq": seq + 1}, [key])
        assert not check_proof({**proof, "record": proof["record"].replace('"v":1', '"v":2')}, [key])
        assert not check_proof({**proof, "stream": "other"}, [key])


@pytest.mark.parametrize(
    "change",
    [{}, {"head": {}}, {"head": None}, {"path": ["!"]}, {"path": 3}, {"record": 5}, {"record": "é"}, {"seq": "x"}],
)
def test_proof_of_any_form_is_refused_without_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    """What is no proof does not hold, and nothing else happens."""
    written(tmp_path, 3)
    proof = prove(tmp_path, STREAM, 1)
    broken = {**proof, **change} if change else {}

    assert not check_proof(broken, [signer(tmp_path).public])
    assert not check_growth(broken, "", [signer(tmp_path).public])


def test_growth_can_be_proved_from_any_earlier_state(tmp_path: Path) -> None:
    """Who kept an old head can be shown that today's stream begins with what it covered."""
    written(tmp_path, 20, every=6)
    key = signer(tmp_path).public
    leaves = [leaf(line) for _, _, line in lines(STREAM, segments(tmp_path)[STREAM])]
    for size in range(1, 20):
        proof, root = prove_growth(tmp_path, STREAM, size), tree_head(leaves[:size])

        assert check_growth(proof, base64.b64encode(root).decode(), [key])
        assert (
            not check_growth(proof, base64.b64encode(tree_head(leaves[:size][::-1] or leaves)).decode(), [key])
            or size == 1
        )


def test_what_is_not_there_or_not_signed_has_no_proof(tmp_path: Path) -> None:
    """A record that does not exist, or that no head covers yet, is refused with the reason."""
    found_ledger = ledger(tmp_path)
    found_ledger.append({"name": "x.y", "phase": "fact", "attrs": {}})
    for stream, seq in ((STREAM, 0), (STREAM, 1), (STREAM, -1), ("other", 0)):
        with pytest.raises(UsageError, match="AUD-032"):
            prove(tmp_path, stream, seq)
    found_ledger.close()

    assert prove(tmp_path, STREAM, 0)["seq"] == 0


# --- heads ------------------------------------------------------------------------------------------------------------
def test_heads_survive_a_file_and_a_note(tmp_path: Path) -> None:
    """Exported heads can be read again; the note has the text that was signed."""
    written(tmp_path, 3)
    heads = tuple(export_heads(tmp_path, signer(tmp_path)))

    assert load(dump(heads)) == heads
    assert as_note(heads[0]).startswith(f"mcp-sandbox-audit/{STREAM}\n5\n{heads[0].root}\n\n")
    assert tuple(export_heads(tmp_path, signer(tmp_path), ("other",))) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"stream":"s","size":0,"root":"","key":"","sig":""}',
        b'{"stream":"s","size":1,"root":"AA==","key":"","sig":""}',
    ],
)
def test_file_that_holds_no_heads_is_refused(data: bytes) -> None:
    """A line that is no head is refused with its number."""
    with pytest.raises(UsageError, match="AUD-031"):
        load(data)


def test_heads_of_an_altered_trail_are_not_signed(tmp_path: Path) -> None:
    """Nobody signs what does not verify."""
    rewrite(written(tmp_path, 5), lambda found_lines: found_lines[1:])

    with pytest.raises(AuditUnavailable, match="AUD-030"):
        list(export_heads(tmp_path, signer(tmp_path)))
    assert segment(tmp_path).exists()
