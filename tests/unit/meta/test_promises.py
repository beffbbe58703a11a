"""SECURITY.md and the tests say the same: no promise without a test, no mark without a promise."""

from __future__ import annotations

from tests.promises import MEND, SECURITY, claims, differences, rows, written


def test_table_and_marks_agree() -> None:
    """Every promise names the tests that claim it, or says visibly that its test is pending; no test claims another."""
    found = differences()

    assert [] == found, f"{'; '.join(found)} — {MEND}"


def test_what_is_written_agrees() -> None:
    """The mend mends: what the tool writes agrees with the marks, and writing twice changes nothing more."""
    text = written(SECURITY.read_text("utf-8"))

    assert [] == [one for one in differences(text) if "pending" not in one]
    assert text == written(text)


def test_row_of_a_new_claim_is_made_from_its_test() -> None:
    """A claim without a row gets one with the words of its test, in the place of its family."""
    text = SECURITY.read_text("utf-8")
    row = rows(text)["P-AUDIT-09"]
    made = rows(written(text.replace(f"{row}\n", "")))["P-AUDIT-09"]

    assert claims()["P-AUDIT-09"][0].says in made
    assert list(rows(text)) == list(rows(written(text.replace(f"{row}\n", ""))))


def test_a_row_that_names_another_test_is_found() -> None:
    """The check sees a test that was renamed, a claim that is not promised, and a promise that nobody tests."""
    text = SECURITY.read_text("utf-8")
    row = rows(text)["P-AUDIT-09"]

    assert "P-AUDIT-09 names other tests than those that claim it" in differences(text.replace(row, f"{row[:-8]} |"))
    assert "P-AUDIT-09 is claimed by" in " ".join(differences(text.replace(f"{row}\n", "")))
    assert "P-NONE-01 has no test" in " ".join(differences(f"{text}\n| P-NONE-01 | a | b | c | d |\n"))
