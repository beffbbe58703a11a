"""Containment of JSON Schema: decided share by keyword group, wrong answers, and time, on the shared sets.

    python benchmarks/containment.py [--data ../shared/data] [--json benchmarks/results/containment.json]

Time is CPU time of this thread, so that other work on the machine does not count; the first question of a process,
which loads the reference implementation, is asked before the measurement and reported apart. Goals: 0 unsound, 90 %
of the pairs without ``format`` or ``content*`` decided, median 5 ms, every pair within 1 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox.vet.containment import Options, Unknown, contained  # noqa: E402
from tests.containment_sets import Pair, library_pairs, refuted_label, suite, tool_schemas  # noqa: E402
from tests.unit.vet.test_containment_bounds import BOMBS  # noqa: E402


def clocked(a: Any, b: Any, options: Options) -> tuple[Any, float]:
    """Return an answer and its time in milliseconds."""
    start = time.thread_time()
    answer = contained(a, b, options=options)
    return answer, (time.thread_time() - start) * 1e3


def judged(pair: Pair, answer: Any) -> str:
    """Return how an answer compares with the label."""
    if isinstance(answer, Unknown):
        return "unknown"
    if bool(answer) == pair.label:
        return "right"
    if refuted_label(pair, answer):
        return "label refuted"
    return "UNSOUND" if answer else "wrong no"


def quantiles(times: list[float]) -> dict[str, float]:
    """Return the quantiles that are quoted, in milliseconds."""
    ordered = sorted(times)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    }


def measure(pairs: list[Pair]) -> dict[str, Any]:
    """Return counts by set and by keyword group, and times."""
    sets: dict[str, Counter[str]] = defaultdict(Counter)
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    times: list[float] = []
    for pair in pairs:
        answer, took = clocked(pair.a, pair.b, Options(dialect=pair.dialect))
        times.append(took)
        outcome = judged(pair, answer)
        sets[f"{pair.source} {'plain' if pair.plain else 'with format'}"][outcome] += 1
        groups[pair.group][outcome] += pair.plain
        if isinstance(answer, Unknown) and pair.plain:
            reasons[answer.reason[:90]] += 1
    return {"sets": sets, "groups": groups, "reasons": reasons, "ms": quantiles(times)}


def share(counts: Counter[str]) -> float:
    """Return the decided share of some counts, in percent."""
    return 100 * (1 - counts["unknown"] / max(1, counts.total()))


def main() -> int:
    """Measure and print; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    first = clocked({"type": "integer"}, {"type": "string"}, Options())[1]
    schema = arguments.data / "schema"
    found = measure([*suite(schema), *library_pairs(schema / "jsonsubschema_pairs.jsonl")])
    print(f"{'set':42s} {'decided':>8s}  outcomes")
    for name, counts in sorted(found["sets"].items()):
        print(f"{name:42s} {share(counts):7.1f}%  {dict(counts)}")
    print(f"\n{'keyword group (without format)':42s} {'decided':>8s}")
    for name, counts in sorted(found["groups"].items()):
        if counts.total():
            print(f"{name:42s} {share(counts):7.1f}%  {dict(+counts)}")
    for reason, count in found["reasons"].most_common():
        print(f"  undecided {count:4d}  {reason}")
    tools = [clocked(one, one, Options())[1] for _, one in tool_schemas(arguments.data / "tools")]
    bombs = {name: round(clocked(a, b, Options())[1], 1) for name, (a, b) in BOMBS.items()}
    print(
        f"\nms per pair {found['ms']}; first question {first:.0f} ms\n"
        f"ms per real tool schema in itself {quantiles(tools)}"
    )
    print(f"hostile schemas, ms: {bombs}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({**found, "tools_ms": quantiles(tools), "bombs_ms": bombs}, indent=2) + "\n"
        )
    unsound = sum(counts["UNSOUND"] for counts in found["sets"].values())
    plain = sum((counts for name, counts in found["sets"].items() if name.endswith("plain")), Counter())
    return int(unsound > 0 or share(plain) < 90 or found["ms"]["p50"] > 5 or max(bombs.values()) > 1000)


if __name__ == "__main__":
    sys.exit(main())
