"""Containment of JSON Schema: is every instance of one schema an instance of another?

:func:`contained` answers *yes*, *no* with a counterexample, or *unknown* with a reason, for 2020-12 and the drafts
before it. A *yes* is a proof; a *no* has been confirmed by the reference implementation; everything else is
*unknown*, which callers treat as a refusal. The package is pure: no file, no network, no clock; work is counted and
bounded.

Theory
    A schema denotes a set of JSON values. *a* is contained in *b* exactly when the goal "in *a*, not in *b*" is empty.

    1. *Reading.* Schemas become formulas over facts, closed under negation: bounds, patterns, "every member whose
       name is in N is in S", "at least k elements are in S", and so on. Keywords that interact
       (``additionalProperties``, ``unevaluated*``, ``if``) are translated away; ``not`` is pushed down to facts.
       Equal formulas are the same object.
    2. *By type.* A goal is split by the six types. For null, booleans, numbers and strings the formula is computed as
       a set: finite unions of boxes, where emptiness is arithmetic on exact rationals, or reachability in a product
       of finite automata.
    3. *Arrays and objects* are decided by a tableau: conjunctions of facts, reached by branching over disjunctions,
       ask for members or elements whose values are smaller goals. What a fact forbids is universal, what a negated
       fact demands is existential; the search over ways to serve the demands is exhaustive, so that failure
       everywhere is emptiness.
    4. *Recursion.* Goals are sets over finitely many formulas. A goal met again inside itself is answered *empty*: a
       value of least height for it would not contain another value for it (see :mod:`solve` for the argument and for
       how answers found under this assumption are kept).
    5. *Witnesses.* Every non-empty answer carries a value, built from the values of the smaller goals: short strings,
       small numbers, required members and no others. It is shown only after the reference implementation has accepted
       it under *a* and refused it under *b*.

What makes a *yes* safe
    - Where validators disagree, a *yes* holds for each of them: regular expressions are decided as ECMA-262 and again
      as Python read them; ``format`` is an unknown predicate, asserted or not; ``multipleOf`` with a divisor that
      binary floats cannot express is an unknown predicate; a schema without ``$schema`` that drafts read differently
      is decided in each.
    - Numbers are rationals, a superset of what any parser delivers; strings are sequences of Unicode scalar values.
    - What is not understood (look-behind, word boundaries, remote references, malformed keywords, bounds exceeded) is a
      predicate that is only equal to itself, or makes the answer *unknown*.

Known limits
    Validators that compute with binary floats beyond 2**53, count UTF-16 units instead of code points, or match without
    the ``u`` flag are outside this guarantee.
"""

from __future__ import annotations

from sandbox.vet.containment.api import compare, contained, disjoint, equivalent, example, inhabited
from sandbox.vet.containment.dialect import Dialect
from sandbox.vet.containment.explain import describe, place_name, shown
from sandbox.vet.containment.result import Answer, No, Options, Relation, Unknown, Yes

__all__ = [
    "Answer",
    "Dialect",
    "No",
    "Options",
    "Relation",
    "Unknown",
    "Yes",
    "compare",
    "contained",
    "describe",
    "disjoint",
    "equivalent",
    "example",
    "inhabited",
    "place_name",
    "shown",
]
