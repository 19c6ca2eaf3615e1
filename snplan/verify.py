"""All rules of step plans in one place: those of the independent checker, and rule K, which asks the op table.

`snplan.plan.verify` shares nothing with the planner and follows every byte. Rule K holds each op's kind, attributes and
shapes against the op table, which says what executors do with them.
"""

from __future__ import annotations

from itertools import islice

from snplan.errors import PlanError
from snplan.ops.check import op_findings
from snplan.plan import verify as bytewise
from snplan.plan.model import StepPlan
from snplan.plan.verifier.findings import Finding

_FORM = frozenset("FS")


def verify(plan: StepPlan, *, budget: int | None = None, limit: int = 1000) -> list[Finding]:
    """What is wrong with `plan`, at most `limit` findings; empty for a sound plan.

    `budget` in bytes replaces the plan's own. Ops are held against the op table where names and sizes are sound.
    """
    found = bytewise.verify(plan, budget=budget, limit=limit)
    if _FORM.isdisjoint(finding.rule for finding in found):
        found += islice(op_findings(plan), limit - len(found))
    return found


def ensure_verified(plan: StepPlan, *, budget: int | None = None) -> None:
    """Raises PlanError (SNP-V010) with the first findings where `plan` is not sound."""
    findings = verify(plan, budget=budget)
    if not findings:
        return
    shown = "; ".join(str(finding) for finding in findings[:3])
    details = {"findings": [{"rule": f.rule, "where": f.where, "message": f.message} for f in findings[:100]]}
    raise PlanError("SNP-V010", f"the plan breaks {len(findings)} rules: {shown}; compile it again", details)
