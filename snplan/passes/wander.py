"""Random changes of a draft where the ones that its timeline suggests lead nowhere: threshold accepting.

What saves time together may cost time one by one: a weight leaves, an engine makes room for it, something else stays.
So changes that make a draft slower are made as well, by no more than a threshold that falls to nothing (Dueck and
Scheuer, Journal of Computational Physics 90, 1990). The numbers are pseudo-random with a fixed seed, and the work is
counted in actions: the same step gives the same drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from snplan.analysis.schedule import saved_tensors
from snplan.passes.improve import Draft
from snplan.passes.trials import Trials

SEED = 1
HOTTEST = 50  # the first threshold, as one in so many parts of the step's time
LEAST_PART = 100  # of the target: tensors that are smaller stay as they are
MOST_CHANGES = 3  # made at once
KEPT = 8  # of the best drafts

T = TypeVar("T")


def wander(trials: Trials, actions: int) -> None:
    """Enter in `trials` the best drafts that random changes of its best one lead to; some `actions` are sketched.

    A draft that was sketched before counts as one action an op, so that small steps come to an end.
    """
    walk = Walk(trials)
    draft = trials.ranked()[0]
    us = trials.measured(draft)
    hottest = us // HOTTEST
    done = 0
    while done < actions and not trials.interrupted():
        near, before = walk.changed(draft), trials.work
        found = trials.measured(near)
        done += max(trials.work - before, len(trials.step.ops))
        if found < us + hottest * (actions - done) // actions:
            draft, us = near, found


@dataclass(kw_only=False)
class Walk:
    """Random changes of drafts for a step."""

    trials: Trials
    random: Random = field(default_factory=lambda: Random(SEED))
    saved: list[int] = field(init=False)
    tensors: list[int] = field(init=False)
    persistent: list[int] = field(init=False)
    choosers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        step, least = self.trials.step, self.trials.target // LEAST_PART
        self.saved = [t for t in saved_tensors(step) if step.size[t] >= least]
        self.tensors = [t for t, size in enumerate(step.size) if size >= least]
        self.persistent = [t for t in step.becomes if step.size[t] >= least]
        self.choosers = [op for op, engines in enumerate(step.engines) if len(engines) > 1]

    def changed(self, draft: Draft) -> Draft:
        """The draft with one to three changes."""
        kinds: list[tuple[int, Sequence[int], Callable[[Draft, int], Draft]]] = [
            (5, self.saved, _drop_or_keep),
            (6, self.choosers, self._other_engine),
            (3, self.tensors, _stay_or_not),
            (3, self.tensors, _leave_or_not),
            (2, self.choosers, Draft.turned),
            (1, sorted(draft.dropped), _fresh_or_not),
            (1, self.persistent, _come_or_not),
        ]
        weighted = [kind for kind in kinds for _ in range(kind[0]) if kind[1]]
        for _ in range(1 + self._below(MOST_CHANGES) if weighted else 0):
            _, items, change = self._one(weighted)
            draft = change(draft, self._one(items))
        return draft

    def _below(self, count: int) -> int:
        return int(self.random.random() * count)

    def _one(self, items: Sequence[T]) -> T:
        return items[self._below(len(items))]

    def _other_engine(self, draft: Draft, op: int) -> Draft:
        """The op with any of its engines as the fastest that it may take."""
        others = {slowed for slowed in draft.leanings.slowed if slowed[0] != op}
        fastest = len(self.trials.step.engines[op]) - 1
        engine = self._below(fastest + 1)
        return draft.leaning(slowed=frozenset(others | ({(op, engine)} if engine < fastest else set())))


def _drop_or_keep(draft: Draft, tensor: int) -> Draft:
    return draft.keeping((tensor,)) if tensor in draft.dropped else draft.dropping((tensor,))


def _fresh_or_not(draft: Draft, tensor: int) -> Draft:
    known = tensor in draft.dropped
    return replace(draft, transient=draft.transient ^ {tensor}) if known else draft


def _stay_or_not(draft: Draft, tensor: int) -> Draft:
    leanings = draft.leanings
    return draft.leaning(staying=leanings.staying ^ {tensor}, leaving=leanings.leaving - {tensor})


def _leave_or_not(draft: Draft, tensor: int) -> Draft:
    leanings = draft.leanings
    return draft.leaning(staying=leanings.staying - {tensor}, leaving=leanings.leaving ^ {tensor})


def _come_or_not(draft: Draft, tensor: int) -> Draft:
    return draft.leaning(coming=draft.leanings.coming ^ {tensor})
