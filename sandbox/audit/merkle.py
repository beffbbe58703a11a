"""Merkle trees as in RFC 6962 §2.1, verified as in RFC 9162 §2.1: heads, inclusion and consistency proofs.

Leaves and inner nodes have different prefixes, so no inner node can be passed off as a leaf. Everything works on
hashes and sizes; nothing here reads files or knows what a record is.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

HASH_BYTES: Final = 32
"""SHA-256."""

EMPTY: Final = sha256(b"").digest()
"""Head of the tree without leaves (RFC 6962 §2.1)."""

MAX_TREE_SIZE: Final = 1 << 62
"""Leaves; proofs for larger trees are not read."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of one leaf: ``SHA-256(0x00 || data)``."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node: ``SHA-256(0x01 || left || right)``."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """A growing tree, kept as the heads of its perfect subtrees: at most one for each bit of its size.

    Attributes:
        size: number of leaves.
    """

    __slots__ = ("_levels", "size")

    def __init__(self) -> None:
        self.size = 0
        self._levels: list[bytes | None] = []

    def add(self, leaf: bytes) -> None:
        """Append one leaf hash: a binary counter whose digits are subtree heads."""
        levels, node, level = self._levels, leaf, 0
        self.size += 1
        while level < len(levels):
            left = levels[level]
            if left is None:
                levels[level] = node
                return
            node = sha256(b"\x01" + left + node).digest()
            levels[level] = None
            level += 1
        levels.append(node)

    def extend(self, leaves: list[bytes]) -> None:
        """Append many leaf hashes, level by level: several times faster than one by one."""
        levels, nodes, level = self._levels, leaves, 0
        self.size += len(leaves)
        while nodes:
            if level == len(levels):
                levels.append(None)
            held = levels[level]
            if held is not None:
                nodes = [held, *nodes]
                levels[level] = None
            if len(nodes) & 1:
                levels[level] = nodes[-1]
            pairs = iter(nodes)
            nodes = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]
            level += 1

    def root(self) -> bytes:
        """Return the tree head."""
        head: bytes | None = None
        for node in self._levels:
            if node is not None:
                head = node if head is None else node_hash(node, head)
        return EMPTY if head is None else head


def _split(size: int) -> int:
    """Return the largest power of two below ``size``, which is more than one."""
    return 1 << ((size - 1).bit_length() - 1)


def tree_head(leaves: Sequence[bytes]) -> bytes:
    """Return the head over leaf hashes (RFC 6962 §2.1)."""
    tree = Frontier()
    tree.extend(list(leaves))
    return tree.root()


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the audit path of one leaf, nearest sibling first (RFC 6962 §2.1.1).

    Raises:
        ValueError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise ValueError("no such leaf")
    path: list[bytes] = []
    start, end = 0, len(leaves)
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(tree_head(leaves[middle:end]))
            end = middle
        else:
            path.append(tree_head(leaves[start:middle]))
            start = middle
    return tuple(reversed(path))


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> tuple[bytes, ...]:
    """Return the proof that the tree over the first ``old_size`` leaves grew into the one over all (RFC 6962 §2.1.2).

    Raises:
        ValueError: ``old_size`` is not from 1 to the number of leaves.
    """
    if not 0 < old_size <= len(leaves):
        raise ValueError("no such tree")
    path: list[bytes] = []
    start, end, size, whole = 0, len(leaves), old_size, True
    while size != end - start:
        middle = _split(end - start)
        if size <= middle:
            path.append(tree_head(leaves[start + middle : end]))
            end = start + middle
        else:
            path.append(tree_head(leaves[start : start + middle]))
            start, size, whole = start + middle, size - middle, False
    if not whole:
        path.append(tree_head(leaves[start:end]))
    return tuple(reversed(path))


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether ``leaf`` is the leaf at ``index`` of the tree with this size and head (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size <= MAX_TREE_SIZE or not _hashes(leaf, root, *proof):
        return False
    node, last, head = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            head = node_hash(sibling, head)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            head = node_hash(head, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and head == root


def verify_consistency(old_size: int, size: int, old_root: bytes, root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether the tree with ``size`` leaves begins with the one that had ``old_size`` (RFC 9162 §2.1.4.2).

    A proof from the empty tree says nothing and is refused, as in the certificate transparency implementations.
    """
    return old_size > 0 and verify_subtree_consistency(0, old_size, size, old_root, root, proof)


def valid_subtree(start: int, end: int) -> bool:
    """Return whether ``[start, end)`` is a subtree: it begins at a multiple of its size rounded up to a power of two.

    Source: draft-ietf-plants-merkle-tree-certs, §Subtrees.
    """
    return 0 <= start < end <= MAX_TREE_SIZE and start % (1 << (end - start - 1).bit_length()) == 0


def verify_subtree_inclusion(
    index: int, start: int, end: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> bool:
    """Return whether ``leaf`` is the leaf at ``index`` of the subtree ``[start, end)`` with this head."""
    return valid_subtree(start, end) and verify_inclusion(index - start, end - start, leaf, proof, root)


def verify_subtree_consistency(  # noqa: C901 - one procedure, its steps as in the source
    start: int, end: int, size: int, subtree_root: bytes, root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether the tree with ``size`` leaves contains the subtree ``[start, end)`` with this head.

    Steps as numbered in draft-ietf-plants-merkle-tree-certs, §Verifying a Subtree Consistency Proof.
    """
    if start == end:
        return 0 <= start <= size and not proof and subtree_root == EMPTY
    # 1. a valid subtree of this tree
    if not valid_subtree(start, end) or not end <= size <= MAX_TREE_SIZE:
        return False
    if (start, end) == (0, size):
        return not proof and subtree_root == root
    if not _hashes(subtree_root, root, *proof):
        return False
    # 2., 3. climb to where the subtree and the rest of the tree part
    first, last, end_of_tree = start, end - 1, size - 1
    while first != last and (last == end_of_tree or last & 1):
        first, last, end_of_tree = first >> 1, last >> 1, end_of_tree >> 1
    # 4. the head to climb with
    path = iter(proof)
    old_head = head = subtree_root if first == last else next(path, b"")
    # 5. both heads, sibling by sibling
    for sibling in path:
        if end_of_tree == 0:
            return False
        if last & 1 or last == end_of_tree:
            if first < last:
                old_head = node_hash(sibling, old_head)
            head = node_hash(sibling, head)
            while not last & 1:
                first, last, end_of_tree = first >> 1, last >> 1, end_of_tree >> 1
        else:
            head = node_hash(head, sibling)
        first, last, end_of_tree = first >> 1, last >> 1, end_of_tree >> 1
    # 6. both arrive
    return end_of_tree == 0 and old_head == subtree_root and head == root


def _hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
