"""Changes of a DRIVER.md's text: the new entry, and every other byte as it was."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.spec.edit import Changes, NotEditable, changed
from sandbox.spec.frontmatter import parse


def edited(text: str, **changes: Any) -> str:
    """Return the front matter after a change, without its dashes."""
    result = changed(f"---\n{text}---\n# Body\n\n---\n".encode(), Changes(**changes)).decode()

    assert result.startswith("---\n")
    assert result.endswith("---\n# Body\n\n---\n")
    return result[4 : -len("---\n# Body\n\n---\n")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("network:\n  egress: []   # none\nid: a\n", 'network:\n  egress: ["a.test"]   # none\nid: a\n'),
        ("network: { egress: [] }\n", 'network: { egress: ["a.test"] }\n'),
        ('network:\n  egress: ["b.test"]\n', 'network:\n  egress: ["b.test", "a.test"]\n'),
        ("network:\n  egress: [b.test,\n    c.test,\n  ]\n", 'network:\n  egress: [b.test,\n    c.test,"a.test"]\n'),
        (
            "network:\n  egress:\n    - b.test  # why\n    # more\nid: a\n",
            'network:\n  egress:\n    - b.test  # why\n    - "a.test"\n    # more\nid: a\n',
        ),
        ("network:\n  egress:\n  - b.test\n\nid: a\n", 'network:\n  egress:\n  - b.test\n  - "a.test"\n\nid: a\n'),
        ("network:\n  egress:\nid: a\n", 'network:\n  egress: ["a.test"]\nid: a\n'),
        ("network:\nid: a\n", 'network: { egress: ["a.test"] }\nid: a\n'),
        ("network:\n  ingress: []\nid: a\n", 'network:\n  ingress: []\n  egress:\n    - "a.test"\nid: a\n'),
        ("id: a\n", 'id: a\nnetwork:\n  egress:\n    - "a.test"\n'),
        ("id: |\n  text\n  more\n", 'id: |\n  text\n  more\nnetwork:\n  egress:\n    - "a.test"\n'),
        ('{"id": "a", "network": {}}\n', '{"id": "a", "network": {"egress": ["a.test"]}}\n'),
    ],
)
def test_an_entry_is_written_where_its_list_is(before: str, after: str) -> None:
    """Flow and block lists, empty, missing and commented ones; the rest of the text does not move."""
    assert edited(before, added={"network.egress": ["a.test"]}) == after


def test_windows_line_ends_stay() -> None:
    """A file with CRLF keeps them where it had them."""
    result = changed(b"---\r\nid: a\r\nlimits: { pids: 5 }\r\n---\r\n", Changes(set={"limits.pids": 9}))

    assert result == b"---\r\nid: a\r\nlimits: { pids: 9 }\r\n---\r\n"


def test_values_and_mappings_are_written_too() -> None:
    """A limit is replaced in place or added; a grant is an entry of a new list."""
    text = edited(
        "limits:\n  memory_mb: 256  # small\nid: a\n",
        set={"limits.memory_mb": 512, "limits.pids": 64},
        added={"sandbox.fs.read": [{"path": "/data", "at": "/data"}]},
    )

    assert parse(f"---\n{text}---\n".encode()).values == {
        "limits": {"memory_mb": 512, "pids": 64},
        "id": "a",
        "sandbox": {"fs": {"read": [{"path": "/data", "at": "/data"}]}},
    }
    assert "memory_mb: 512  # small\n" in text


@pytest.mark.parametrize("text", ["network: text\n", "network:\n  egress: { a: b }\n", "network: [a]\n"])
def test_what_has_another_form_is_left_to_a_person(text: str) -> None:
    """Nothing is guessed where the text does not have the form that it should."""
    with pytest.raises(NotEditable):
        edited(text, added={"network.egress": ["a.test"]})


def test_no_change_is_no_change() -> None:
    """Empty changes are false and give the same bytes."""
    data = b"---\nid: a\n---\n"

    assert not Changes(added={"network.egress": []})
    assert changed(data, Changes()) == data
