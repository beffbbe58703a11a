"""Releases of the dialect: which are releases, how far they are apart, and what two sides agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.versions import CAPABILITIES, DIALECT, RELEASES, checked, common, distance, negotiate, settle

NOT_VERSIONS = (
    "2025-13", "2025-00", "2025-1", "25-11", "2025-11-25", "2025/11", " 2025-11", "2025-11\n", "", "٢٠٢٥-١١", "2023-11",
)  # fmt: skip


@pytest.mark.parametrize("text", NOT_VERSIONS)
def test_what_is_no_month_of_a_year_is_no_version(text: str) -> None:
    """The form is checked and the calendar too."""
    with pytest.raises(DialectRefused) as refused:
        checked(text)

    assert "DIA-001" == refused.value.id


@pytest.mark.parametrize("text", ["2025-07", "2026-03", "2024-09"])
def test_a_month_without_a_release_has_no_distance(text: str) -> None:
    """A month that is no release is refused, and the releases are named."""
    with pytest.raises(DialectRefused) as refused:
        negotiate(text)

    assert ("DIA-002", [*RELEASES]) == (refused.value.id, refused.value.data["supported"])


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [("2025-11", "2025-11 same"), ("2025-06", "2025-06 downgraded"), ("2025-03", "DIA-003"), ("2024-11", "DIA-003"),
     ("2024-10", "DIA-003")],
)  # fmt: skip
def test_a_server_takes_what_is_at_most_one_release_away(theirs: str, outcome: str) -> None:
    """Five months between two releases are one cycle, not five."""
    try:
        agreed = negotiate(theirs)
        said = f"{agreed.version} {agreed.how}"
    except DialectRefused as refused:
        said = refused.id if refused.data["supported"] == ["2025-06", "2025-11"] else "nothing is supported"

    assert outcome == said


@pytest.mark.parametrize(
    ("theirs", "speaks", "on_mismatch", "outcome"),
    [
        ("2024-11", RELEASES, "downgrade", "2024-11"),
        ("2024-11", RELEASES, "reject", "DIA-003"),
        ("2024-11", ("2025-06", "2025-11"), "downgrade", "DIA-003"),
        ("2025-06", ("2025-11",), "reject", "2025-06"),
    ],
)
def test_a_client_further_away_downgrades_or_rejects(
    theirs: str, speaks: tuple[str, ...], on_mismatch: str, outcome: str
) -> None:
    """Beyond one release a client steps down to what it still speaks, or ends it there, as it was told."""
    try:
        said = settle(theirs, speaks=speaks, on_mismatch=on_mismatch).version  # type: ignore[arg-type]
    except DialectRefused as refused:
        said = refused.id

    assert outcome == said


@given(st.sampled_from(RELEASES), st.sampled_from(RELEASES))
def test_both_sides_agree_on_one_release_that_is_never_newer_than_either(one: str, other: str) -> None:
    """Agreement is symmetric, never beyond the older side, and exists exactly within one cycle."""
    try:
        agreed = negotiate(one, other).version
    except DialectRefused:
        assert distance(one, other) > 1
        with pytest.raises(DialectRefused):
            negotiate(other, one)
        return
    assert distance(one, other) <= 1
    assert agreed == negotiate(other, one).version == min(one, other)


@given(st.text(max_size=12) | st.from_regex(r"[0-9]{4}-[0-9]{2}", fullmatch=True))
def test_only_releases_are_ever_agreed(text: str) -> None:
    """Whatever a client says, what is agreed is a release within one cycle of ours, or a refusal of ours."""
    try:
        agreed = negotiate(text)
    except DialectRefused:
        assert text not in RELEASES[-2:]
        return
    assert agreed.version in RELEASES[-2:]
    assert distance(text, DIALECT) <= 1


@given(st.lists(st.text(max_size=8) | st.sampled_from(CAPABILITIES)), st.lists(st.sampled_from(CAPABILITIES)))
def test_only_what_both_sides_have_is_agreed(theirs: list[str], ours: list[str]) -> None:
    """No capability comes from one side alone, and none that nobody defined."""
    assert set(common(theirs, ours)) == set(theirs) & set(ours)
