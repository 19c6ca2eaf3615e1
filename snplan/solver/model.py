"""The CP-SAT model of a space of plans: every plan of the space satisfies it, in no more time than the plan takes.

Booleans say which tensors are dropped and which gaps evicted; for each position that is modelled, which recomputes have
run by then and which evicted values are gone. Memory at each position is counted as the planner counts it, but for what
is live only between recomputes. Time is bounded from below by the ops and recomputes that precede a position, by the
copies that must be done before values are gone, and by the copies that bring them back. So its optimum is a lower
bound, and a decision that it forbids is not worth realising. (Retention intervals as decision variables: Bartan et al.,
Moccasin, ICML 2023; dropping and offloading in one model: Patil et al., POET, ICML 2022.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from snplan.analysis.schedule import build_schedule
from snplan.solver.space import Decisions, Saved, Space, SpaceGap, upcoming

PAIRS_UP_TO = 48  # positions: with more, copies back are bounded for the end of the step alone

Term = Any  # an int, a Boolean variable or a linear expression of them


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is open: decisions on the `free` tensors (None: all), seen at `positions` (op indices, ascending).

    All other decisions are as in `current`.
    """

    current: Decisions = field(default_factory=Decisions)
    free: frozenset[int] | None = None
    positions: Sequence[int]

    def is_free(self, tensor: int) -> bool:
        """Whether decisions on `tensor` are open."""
        return self.free is None or tensor in self.free


@dataclass(kw_only=True)
class Model:
    """A built model: its variables by tensor and gap."""

    cp: cp_model.CpModel
    drop: dict[int, cp_model.IntVar]
    evict: dict[int, cp_model.IntVar]
    time: cp_model.IntVar
    frame: Frame

    def hint(self, decisions: Decisions) -> None:
        """Start the search at `decisions`."""
        for tensor, variable in self.drop.items():
            self.cp.add_hint(variable, tensor in decisions.dropped)
        for gap, variable in self.evict.items():
            self.cp.add_hint(variable, gap in decisions.evicted)

    def forbid(self, decisions: Decisions) -> None:
        """Exclude exactly `decisions`."""
        same: list[Any] = [v if t in decisions.dropped else v.negated() for t, v in self.drop.items()]
        same += [v if g in decisions.evicted else v.negated() for g, v in self.evict.items()]
        self.cp.add_bool_or([literal.negated() for literal in same])

    def decisions(self, solver: cp_model.CpSolver) -> Decisions:
        """The decisions of a solution."""
        current = self.frame.current
        dropped = {t for t in current.dropped if t not in self.drop}
        evicted = {g for g in current.evicted if g not in self.evict}
        dropped.update(t for t, v in self.drop.items() if solver.boolean_value(v))
        evicted.update(g for g, v in self.evict.items() if solver.boolean_value(v))
        return Decisions(dropped=frozenset(dropped), evicted=frozenset(evicted))


class _Builder:
    """State of `build_model`."""

    def __init__(self, space: Space, frame: Frame, budget: int, below_us: int) -> None:
        self.space, self.frame, self.budget, self.below = space, frame, budget, below_us
        self.positions = list(frame.positions)
        self.cp = cp_model.CpModel()
        self.drop = {s.tensor: self._bool() for s in space.saved if frame.is_free(s.tensor)}
        self.evict = {i: self._bool() for i, gap in enumerate(space.gaps) if frame.is_free(gap.tensor)}
        self.saved = {s.tensor: s for s in space.saved}
        self.need = _fixed_needs(space, frame)
        self.again: dict[int, list[Term]] = {}  # op -> by position: has been recomputed before it runs
        self.gone: dict[int, list[Term]] = {}  # gap -> by position: not on the device while it runs
        self.time = self.cp.new_int_var(0, max(0, below_us - 1), "time")

    def _bool(self) -> cp_model.IntVar:
        return self.cp.new_bool_var("")

    def dropped(self, tensor: int) -> Term:
        """Whether `tensor` is dropped: a variable or 0 or 1."""
        return self.drop.get(tensor, int(tensor in self.frame.current.dropped))

    def build(self) -> Model:
        """The model."""
        for number, variable in self.evict.items():
            for needed in self.space.gaps[number].needs:
                if needed in self.evict:
                    self.cp.add_implication(variable, self.evict[needed])
        for saved in self.saved.values():
            if saved.gap is not None and saved.tensor in self.drop and saved.gap in self.evict:
                self.cp.add_at_most_one(self.drop[saved.tensor], self.evict[saved.gap])
        self._recomputes()
        self._absences()
        self._memory()
        self._times()
        self.cp.minimize(self.time)
        return Model(cp=self.cp, drop=self.drop, evict=self.evict, time=self.time, frame=self.frame)

    def _open_ops(self) -> list[int]:
        """Ops whose recompute depends on open decisions: what they write or what reads it may be recomputed."""
        found: dict[int, None] = {}
        stack = [self.saved[tensor].op for tensor in self.drop]
        while stack:
            op = stack.pop()
            if op in found:
                continue
            found[op] = None
            for tensor, producer in self.space.feeding[op]:
                if tensor in self.drop or tensor not in self.saved or tensor in self.frame.current.dropped:
                    stack.append(producer)
        return sorted(found)

    def _recomputes(self) -> None:
        """An op is recomputed by the time that something needs what it writes."""
        ops = self._open_ops()
        backward = self.space.step.backward
        for op in ops:
            self.again[op] = [0 if p < backward else self._bool() for p in self.positions]
            for before, after in zip(self.again[op], self.again[op][1:], strict=False):
                self.cp.add(after >= before)
        for saved in self.saved.values():
            if saved.op in self.again:
                self._needed(self.again[saved.op], saved.first_backward, self.dropped(saved.tensor))
        for reader, inputs in self.space.feeding.items():
            for tensor, op in inputs:
                if op in self.again:
                    self._feeds(reader, tensor, op)

    def _feeds(self, reader: int, tensor: int, op: int) -> None:
        """When `reader` is recomputed, so is `op` where its `tensor` is not kept."""
        missing: Term = self.dropped(tensor) if tensor in self.saved else 1
        if reader in self.again:
            for mine, other in zip(self.again[op], self.again[reader], strict=True):
                self.cp.add(mine >= other + missing - 1)
        elif reader in self.need:
            self._needed(self.again[op], self.need[reader], missing)

    def _needed(self, again: list[Term], position: int, missing: Term) -> None:
        for k, p in enumerate(self.positions):
            if p >= position:
                self.cp.add(again[k] >= missing)

    def _absences(self) -> None:
        """Values can be gone only where their gap is evicted."""
        for number, variable in self.evict.items():
            gap = self.space.gaps[number]
            absent = [self._bool() if gap.start < p < gap.stop else 0 for p in self.positions]
            for literal in absent:
                if not isinstance(literal, int):
                    self.cp.add_implication(literal, variable)
            self.gone[number] = absent

    def _memory(self) -> None:
        """Live bytes at each position are within the budget."""
        size = self.space.step.size
        constant = _fixed_live(self.space, self.frame, self.need)
        for k, p in enumerate(self.positions):
            terms: list[Term] = [-size[self.space.gaps[n].tensor] * absent[k] for n, absent in self.gone.items()]
            terms += [-amount * self.drop[t] for t, amount in self.space.joinable.get(p, ()) if t in self.drop]
            for tensor, variable in self.drop.items():
                saved = self.saved[tensor]
                if saved.last_forward < p < saved.first_backward:
                    terms.append(-size[tensor] * self._away(saved, k, variable))
            bound = self.cp.add(sum(terms) + constant[k] <= self.budget)
            if constant[k] - sum(size[g.tensor] for _, g in self._crossing(p)) > self.budget:
                bound.only_enforce_if(self._isolated(p).negated())

    def _isolated(self, p: int) -> cp_model.IntVar:
        """Whether position `p` is isolated: what its op does not touch is away, what it overwrites is on the host."""
        isolated = self._bool()
        for number, variable in self.evict.items():
            gap = self.space.gaps[number]
            if gap.start <= p <= gap.stop:
                crossing = self.saved.get(gap.tensor)
                dropped = crossing is not None and crossing.gap == number and gap.tensor in self.drop
                instead = [self.drop[gap.tensor]] if dropped else []
                self.cp.add_bool_or([isolated.negated(), variable, *instead])
        return isolated

    def _away(self, saved: Saved, k: int, dropped: cp_model.IntVar) -> Term:
        """Whether `saved` is dropped and not recomputed yet."""
        again = self.again[saved.op][k]
        if isinstance(again, int):
            return dropped
        away = self._bool()
        self.cp.add_implication(away, dropped)
        self.cp.add_implication(away, again.negated())
        return away

    def _times(self) -> None:
        """Lower bounds on the time of the step."""
        cost, end = self.space.step.cost, self.space.end
        fixed = {op: p for op, p in self.need.items() if op not in self.again}
        start: list[Any] = [self.cp.new_int_var(0, max(0, self.below - 1), "") for _ in self.positions]
        elapsed = _prefix([cost[op] for op in range(end)])
        extra = _prefix_at(fixed, cost, end)
        for k, p in enumerate(self.positions):
            ran = sum((cost[op] * again[k] for op, again in self.again.items()), 0)
            self.cp.add(start[k] >= elapsed[p] + extra[p] + ran)
            if k:
                before = self.positions[k - 1]
                between = elapsed[p] - elapsed[before] + extra[p] - extra[before]
                more = sum((cost[op] * (again[k] - again[k - 1]) for op, again in self.again.items()), 0)
                self.cp.add(start[k] >= start[k - 1] + between + more)
        ran = sum((cost[op] * again[-1] for op, again in self.again.items()), 0)
        self.cp.add(self.time >= elapsed[end] + extra[end] + ran)
        self.cp.add(self.time >= start[-1] + elapsed[end] - elapsed[self.positions[-1]])
        self._copies(start)

    def _copies(self, start: list[Any]) -> None:
        space, device = self.space, self.space.device
        out, back = self._copied()
        self.cp.add(self.time >= sum(us * v for us, v, _ in out))
        self.cp.add(self.time >= sum(us * v for us, v, _ in back))
        both_ways = device.h2d_both_bytes_per_s + device.d2h_both_bytes_per_s
        if both_ways >= max(device.h2d_bytes_per_s, device.d2h_bytes_per_s):
            units = sum((size * 10**6 // both_ways) * v for _, v, size in (*out, *back))
            self.cp.add(self.time >= units)
        for k, p in enumerate(self.positions):
            leaving = [space.out_us(g.tensor) * self.gone[n][k] for n, g in self._crossing(p) if g.out]
            self.cp.add(start[k] >= sum(leaving))
            returning = [(g.stop, space.back_us(g.tensor) * self.gone[n][k]) for n, g in self._crossing(p) if g.back]
            done = start[k] + space.step.cost[p]
            self.cp.add(self.time >= done + sum(term for _, term in returning))
            self._in_time(start, k, done, returning)

    def _in_time(self, start: list[Any], k: int, done: Term, returning: list[tuple[int, Term]]) -> None:
        """What is gone at position k and used at a later one is fetched in between."""
        if len(self.positions) > PAIRS_UP_TO:
            return
        for later in range(k + 1, len(self.positions)):
            before = [term for stop, term in returning if stop <= self.positions[later]]
            if before:
                self.cp.add(start[later] >= done + sum(before))

    def _crossing(self, p: int) -> list[tuple[int, SpaceGap]]:
        """Open gaps across position `p`."""
        return [(n, self.space.gaps[n]) for n in self.gone if self.space.gaps[n].start < p < self.space.gaps[n].stop]

    def _copied(self) -> tuple[list[tuple[int, Term, int]], list[tuple[int, Term, int]]]:
        """(microseconds, whether, bytes) of the copies out (one a tensor) and back (one a gap)."""
        space = self.space
        out: dict[int, list[Term]] = {}
        back: list[tuple[int, Term, int]] = []
        for number, gap in enumerate(space.gaps):
            chosen: Term = self.evict.get(number, int(number in self.frame.current.evicted))
            size = space.bytes_of(gap.tensor)
            if gap.back:
                back.append((space.back_us(gap.tensor), chosen, size))
            if gap.out:
                out.setdefault(gap.tensor, []).append(chosen)
        copies = []
        for tensor, chosen in out.items():
            size = space.bytes_of(tensor)
            copies.append((space.out_us(tensor), self._any(chosen), size))
        return copies, back

    def _any(self, terms: list[Term]) -> Term:
        if all(isinstance(term, int) for term in terms):
            return max(terms)
        if len(terms) == 1:
            return terms[0]
        found = self._bool()
        for term in terms:
            self.cp.add(found >= term)
        return found


def build_model(space: Space, frame: Frame, budget: int, below_us: int) -> Model:
    """The model of plans within `budget` bytes that take less than `below_us` microseconds, under `frame`."""
    return _Builder(space, frame, budget, below_us).build()


def _fixed_needs(space: Space, frame: Frame) -> dict[int, int]:
    """Op -> the op before which it is recomputed, with the decisions that are not open."""
    dropped = frozenset(t for t in frame.current.dropped if not frame.is_free(t))
    if not dropped:
        return {}
    schedule = build_schedule(space.step, frozenset(s.tensor for s in space.saved) - dropped)
    found: dict[int, int] = {}
    for position, op in enumerate(upcoming(schedule, space.end)):
        if not schedule.first[position]:
            found.setdefault(schedule.runs[position], op)
    return found


def _fixed_live(space: Space, frame: Frame, need: dict[int, int]) -> list[int]:
    """Live bytes at each position with the decisions that are not open, and open tensors kept."""
    change = [0] * (space.end + 2)
    size, current = space.step.size, frame.current

    def away(start: int, stop: int, amount: int) -> None:
        if stop > start:
            change[start] -= amount
            change[stop] += amount

    for number in current.evicted:
        gap = space.gaps[number]
        if not frame.is_free(gap.tensor):
            away(gap.start + 1, gap.stop, size[gap.tensor])
    for saved in space.saved:
        if saved.tensor in current.dropped and not frame.is_free(saved.tensor):
            again = min(need.get(saved.op, saved.first_backward), saved.first_backward)
            away(saved.last_forward + 1, again, size[saved.tensor])
    live = [base + moved for base, moved in zip(space.live, _prefix(change)[1:], strict=False)]
    for op, pairs in space.joinable.items():
        live[op] -= sum(n for t, n in pairs if t in current.dropped and not frame.is_free(t))
    return [live[p] for p in frame.positions]


def _prefix(amounts: Iterable[int]) -> list[int]:
    total, found = 0, [0]
    for amount in amounts:
        total += amount
        found.append(total)
    return found


def _prefix_at(need: dict[int, int], cost: Sequence[int], end: int) -> list[int]:
    """Microseconds of the recomputes `need` (op -> op before which it runs) by the start of each op."""
    at = [0] * (end + 1)
    for op, position in need.items():
        at[min(position, end)] += cost[op]
    return _prefix(at)[1:]
