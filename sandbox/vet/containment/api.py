"""The public functions: questions about schemas.

What answers them (:mod:`question`) is loaded with the first one: most starts ask none, since what was proved about the
same bytes before stands.
"""

from __future__ import annotations

from typing import Any

from sandbox.vet.containment.result import Answer, No, Options, Relation, Unknown, Yes

DEFAULT: Options = Options()


def contained(a: Any, b: Any, *, options: Options = DEFAULT) -> Answer:
    """Decide whether every instance that is valid under ``a`` is valid under ``b``.

    Args:
        a: a JSON Schema, 2020-12 or older.
        b: another.
        options: how formats and schemas without ``$schema`` are meant, and how much work may be spent.

    Returns:
        :class:`Yes` when it is proved; :class:`No` with a confirmed counterexample; :class:`Unknown` with the reason
        otherwise. Never raises, whatever JSON values ``a`` and ``b`` are.
    """
    return _asked(a, b, options, both=False)


def disjoint(a: Any, b: Any, *, options: Options = DEFAULT) -> Answer:
    """Decide whether no instance is valid under both schemas; the witness of a *no* is valid under both."""
    return _asked(a, b, options, both=True)


def inhabited(a: Any, *, options: Options = DEFAULT) -> Answer:
    """Decide whether some instance is valid under a schema; a *no* has no witness, :func:`example` gives one."""
    answer = disjoint(a, True, options=options)
    if isinstance(answer, Yes):
        return No(None, message="no instance is valid")
    return Yes() if isinstance(answer, No) else answer


def example(a: Any, *, options: Options = DEFAULT) -> Any:
    """Return a small instance that is valid under a schema.

    Raises:
        LookupError: there is none, or none was found; the text says which.
    """
    answer = disjoint(a, True, options=options)
    if isinstance(answer, No):
        return answer.witness
    raise LookupError("no instance is valid" if isinstance(answer, Yes) else answer.reason)


def equivalent(a: Any, b: Any, *, options: Options = DEFAULT) -> Answer:
    """Decide whether two schemas have the same instances; the witness of a *no* is valid under exactly one of them."""
    forth = contained(a, b, options=options)
    return contained(b, a, options=options) if isinstance(forth, Yes) else forth


def compare(a: Any, b: Any, *, options: Options = DEFAULT) -> Relation:
    """Return how the instances of ``a`` relate to those of ``b``: *narrower* means that ``b`` accepts more."""
    forth, back = contained(a, b, options=options), contained(b, a, options=options)
    if isinstance(forth, Unknown) or isinstance(back, Unknown):
        return Relation.UNKNOWN
    if isinstance(forth, Yes):
        return Relation.EQUAL if isinstance(back, Yes) else Relation.NARROWER
    return Relation.WIDER if isinstance(back, Yes) else Relation.INCOMPARABLE


def _asked(a: Any, b: Any, options: Options, *, both: bool) -> Answer:
    from sandbox.vet.containment.question import Question  # noqa: PLC0415 - heavy, and often not needed

    return Question(a, b, options, both).answer()
