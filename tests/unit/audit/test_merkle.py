"""Merkle trees against the published vectors, the definition, and each other."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.audit import merkle
from tests.shared import shared_data


def vectors(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Return name and content of every vector of a kind."""
    folder = shared_data("audit", "merkle-proof-vectors", "testdata", kind)
    return [(str(path.relative_to(folder)), json.loads(path.read_bytes())) for path in sorted(folder.rglob("*.json"))]


def raw(text: str | None) -> bytes:
    """Return the bytes of a base64 member."""
    return base64.b64decode(text or "")


def proof(vector: dict[str, Any]) -> list[bytes]:
    """Return the proof of a vector."""
    return [raw(item) for item in vector["proof"] or []]


@pytest.mark.data
@pytest.mark.parametrize(
    ("kind", "count"), [("inclusion", 98), ("subtreeinclusion", 204), ("consistency", 98), ("subtreeconsistency", 118)]
)
def test_published_vectors_agree_exactly(kind: str, count: int) -> None:
    """Every published proof is accepted or refused as its vector says (probe A04)."""
    verdicts = {
        "inclusion": lambda v: merkle.verify_inclusion(
            v["leafIdx"], v["treeSize"], raw(v["leafHash"]), proof(v), raw(v["root"])
        ),
        "subtreeinclusion": lambda v: merkle.verify_subtree_inclusion(
            v["leafIdx"], v["start"], v["end"], raw(v["leafHash"]), proof(v), raw(v["root"])
        ),
        "consistency": lambda v: merkle.verify_consistency(
            v["size1"], v["size2"], raw(v["root1"]), raw(v["root2"]), proof(v)
        ),
        "subtreeconsistency": lambda v: merkle.verify_subtree_consistency(
            v["start"], v["end"], v["size"], raw(v["root1"]), raw(v["root2"]), proof(v)
        ),
    }
    found = vectors(kind)
    wrong = [name for name, vector in found if verdicts[kind](vector) == vector["wantErr"]]

    assert (count, []) == (len(found), wrong)


def defined(leaves: list[bytes]) -> bytes:
    """Return the head by the recursive definition of RFC 6962 §2.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\x01" + defined(leaves[:split]) + defined(leaves[split:])).digest()


LEAVES = st.lists(st.integers(0, 255).map(lambda byte: merkle.leaf_hash(bytes([byte]))), max_size=70)


@given(LEAVES, st.lists(st.integers(0, 20), max_size=8))
def test_frontier_has_the_defined_head_however_it_grew(leaves: list[bytes], batches: list[int]) -> None:
    """Leaves added one by one, in batches of any size, or at once give the head of the definition."""
    one, many, rest = merkle.Frontier(), merkle.Frontier(), list(leaves)
    for leaf in leaves:
        one.add(leaf)
    for size in batches:
        many.extend(rest[:size])
        del rest[:size]
    many.extend(rest)

    assert one.root() == many.root() == merkle.tree_head(leaves) == defined(leaves)
    assert one.size == many.size == len(leaves)


@given(LEAVES.filter(bool), st.data())
def test_every_leaf_can_be_proved_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    """The proof of a leaf verifies for it, and for no other leaf, place, size or head."""
    index = data.draw(st.integers(0, len(leaves) - 1))
    path, root = merkle.inclusion_proof(leaves, index), merkle.tree_head(leaves)

    assert merkle.verify_inclusion(index, len(leaves), leaves[index], path, root)
    assert not merkle.verify_inclusion(index, len(leaves), merkle.leaf_hash(b"other"), path, root)
    assert not merkle.verify_inclusion(index, len(leaves), leaves[index], (*path, root), root)
    assert not merkle.verify_inclusion(index, len(leaves), leaves[index], path, merkle.leaf_hash(root))


@given(LEAVES.filter(bool), st.data())
def test_growth_can_be_proved_and_rewriting_cannot(leaves: list[bytes], data: st.DataObject) -> None:
    """The proof from an earlier size verifies; with a leaf changed in the earlier tree it does not."""
    old = data.draw(st.integers(1, len(leaves)))
    path, root = merkle.consistency_proof(leaves, old), merkle.tree_head(leaves)
    changed = data.draw(st.integers(0, old - 1))
    other = [*leaves[:changed], merkle.leaf_hash(b"other"), *leaves[changed + 1 : old]]

    assert merkle.verify_consistency(old, len(leaves), merkle.tree_head(leaves[:old]), root, path)
    assert not merkle.verify_consistency(old, len(leaves), merkle.tree_head(other), root, path)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_proof_of_a_leaf_that_is_not_there_is_refused(index: int, size: int) -> None:
    """A place outside the tree has no proof."""
    with pytest.raises(ValueError, match="no such leaf"):
        merkle.inclusion_proof([merkle.leaf_hash(b"")] * size, index)
    with pytest.raises(ValueError, match="no such tree"):
        merkle.consistency_proof([merkle.leaf_hash(b"")] * size, size + 1)
