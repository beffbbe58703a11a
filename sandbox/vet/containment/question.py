"""One question about two schemas, answered in every reading and confirmed by the reference.

Numbered steps of one decision:

1. both schemas are scanned and bounded; the dialects they may be in are told (:mod:`document`, :mod:`dialect`);
2. for each pair of dialects both are read into one algebra (:mod:`reader`, :mod:`keywords`);
3. the goal "in *a* and not in *b*" is decided as ECMA-262 reads patterns, then, where it is empty and a pattern
   mattered, as Python reads them (:mod:`solve`);
4. *empty* everywhere is a *yes*;
5. a value is a *no* only when the reference implementation accepts it under *a* and refuses it under *b*;
6. anything else (bounds, unsupported keywords, readings that differ, a value that is not confirmed) is *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from sandbox import jsontext
from sandbox.vet.containment.algebra import Algebra
from sandbox.vet.containment.budget import Budget, UndecidedError
from sandbox.vet.containment.dialect import Dialect, readings
from sandbox.vet.containment.document import Document, Library
from sandbox.vet.containment.explain import explain
from sandbox.vet.containment.nodes import Node
from sandbox.vet.containment.outcome import EMPTY, NOTHING, Found, Open, value_in
from sandbox.vet.containment.reader import Reader
from sandbox.vet.containment.reference import Reference
from sandbox.vet.containment.regex import Reading
from sandbox.vet.containment.result import Answer, No, Options, Unknown, Yes
from sandbox.vet.containment.solve import Solver
from sandbox.vet.containment.strings import Lexicon


@dataclass(frozen=True, slots=True)
class Question:
    """Whether "in ``a`` and not in ``b``" (with ``both``: "in ``a`` and in ``b``") has no values."""

    a: Any
    b: Any
    options: Options
    both: bool

    def answer(self) -> Answer:
        """Return the answer that holds in every dialect the schemas may be in."""
        budget = self._budget()
        try:
            jsontext.canonical((self.a, self.b))
        except (TypeError, ValueError, RecursionError):
            return Unknown("a schema holds something that strict JSON cannot carry")
        try:
            documents = [Document(schema, budget) for schema in (self.a, self.b)]  # 1
            answers = [self._in_dialects(documents, pair, budget) for pair in self._dialects(documents)]
        except UndecidedError as error:
            return Unknown(error.reason)
        except RecursionError:
            return Unknown("the schemas nest too deeply")
        undecided = next((answer for answer in answers if isinstance(answer, Unknown)), None)
        if undecided is not None:
            return undecided
        if len({type(answer) for answer in answers}) > 1:
            return Unknown("a schema without `$schema` means different things in draft-07 and in 2020-12")
        return answers[0]

    def _budget(self) -> Budget:
        clock = self.options.clock
        if clock is None:
            return Budget(self.options.steps)
        deadline = clock() + self.options.seconds
        return Budget(self.options.steps, lambda: clock() > deadline)

    def _dialects(self, documents: list[Document]) -> Iterator[tuple[Dialect, Dialect]]:
        first, second = (readings(document.schema, document.traits, self.options.dialect) for document in documents)
        yield from product(first, second)

    def _in_dialects(self, documents: list[Document], dialects: tuple[Dialect, Dialect], budget: Budget) -> Answer:
        algebra = Algebra(budget)
        reader = Reader(algebra, Library(budget), self.options.formats)
        nodes: list[Node] = []
        for document, dialect in zip(documents, dialects, strict=True):  # 2
            document.settle(dialect)
            nodes.append(reader.read(document))
        goal = (nodes[0], nodes[1] if self.both else algebra.negate(nodes[1]))
        solver = Solver(algebra, Lexicon(Reading.ECMA, budget))
        outcome = solver.solve(goal)  # 3
        if outcome is not EMPTY:
            return self._confirm(dialects, outcome)
        vacuous = solver.solve(nodes[:1]) is EMPTY
        if solver.lexicon.consulted and Solver(algebra, Lexicon(Reading.PYTHON, budget)).solve(goal) is not EMPTY:
            return Unknown("a pattern means different things in ECMA-262 and in Python")
        return Yes(vacuous)  # 4

    def _confirm(self, dialects: tuple[Dialect, Dialect], outcome: Found | Open) -> No | Unknown:
        """Hold a value against the reference implementation (steps 5 and 6)."""
        reason = outcome.reason if isinstance(outcome, Open) else ""
        value = value_in(outcome)
        if value is NOTHING:
            return Unknown(reason)
        try:
            accepted = not Reference(self.a, dialects[0]).errors(value)
            errors = Reference(self.b, dialects[1]).errors(value)
        except UndecidedError as error:
            return Unknown(reason or error.reason)
        if accepted and bool(errors) is not self.both:
            return explain(value, errors)
        return Unknown(reason or "a counterexample was not confirmed by the reference implementation")
