"""Decisions of a plan that its inputs alone make: the steps that are skipped, and the items of a `foreach`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from typing import Any, NamedTuple

from windlass.plan.model import Step
from windlass.plan.prepare import Prepared
from windlass.plan.template import TemplateProblem, references

__all__ = ["SkippedAhead", "foresee", "items_before"]


class SkippedAhead(NamedTuple):
    """The steps of a plan that may not run, before any of them has run."""

    skipped: Set[str]
    """Their `when` is false by the inputs, or they need such a step."""
    undecided: Set[str]
    """Results of other steps decide on them."""


def foresee(prepared: Prepared, inputs: Mapping[str, Any]) -> SkippedAhead:
    """Follow the conditions through the plan. `core.decide` has the rules: a skipped step takes those that need it
    along, except one whose own `when` reads its status."""
    skipped: set[str] = set()
    undecided: set[str] = set()
    if all(step.spec.when is None for step in prepared.steps.values()):
        return SkippedAhead(skipped, undecided)
    graph = prepared.graph
    for name in graph.order:
        handled = graph.in_charge.get(name, frozenset())
        needs = [need for need in graph.needs[name] if need not in handled]
        runs = _condition_before(prepared, prepared.steps[name].spec, inputs)
        if runs is False or not skipped.isdisjoint(needs):
            skipped.add(name)
        elif runs is None or not undecided.isdisjoint(needs):
            undecided.add(name)
    return SkippedAhead(skipped, undecided)


def items_before(prepared: Prepared, spec: Step, inputs: Mapping[str, Any]) -> int | None:
    """Number of items of a `foreach` whose list is in the plan or its inputs; None where it is the result of a step."""
    if not isinstance(spec.foreach, str):
        return len(spec.foreach or ())
    if not _reads_inputs_only(spec.foreach):
        return None
    try:
        return len(prepared.items(spec, {"inputs": inputs}))
    except TemplateProblem:  # the step will fail with it
        return None


def _condition_before(prepared: Prepared, spec: Step, inputs: Mapping[str, Any]) -> bool | None:
    """The value of a step's `when`; None where it is not known before other steps have run."""
    if isinstance(spec.when, str) and not _reads_inputs_only(spec.when):
        return None
    try:
        return prepared.condition(spec, {"inputs": inputs})
    except TemplateProblem:  # the step will fail with it
        return None


@lru_cache(maxsize=512)
def _reads_inputs_only(expression: str) -> bool:
    return {seen.root for seen in references(expression, expression=True)} <= {"inputs", "range"}
