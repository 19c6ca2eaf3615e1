"""`snplan verify`: the independent checker."""

from __future__ import annotations

from dataclasses import asdict

from snplan.cli import options, output
from snplan.errors import ExitCode
from snplan.units import printable


def verify(path: options.Plan, json: options.Json = False) -> int:
    """Check a plan with rules that share nothing with the planner."""
    from snplan.plan.file import read_plan
    from snplan.verify import verify as check

    plan = read_plan(path)
    findings = check(plan)
    if json:
        code, message = ("SNP-V010", f"the plan breaks {len(findings)} rules") if findings else (None, None)
        status = "rejected" if findings else "verified"
        rows = [asdict(finding) for finding in findings]
        output.write_object(
            {"status": status, "code": code, "message": message, "actions": len(plan.actions), "findings": rows}
        )
    else:
        output.write_text("".join(f"{printable(str(finding))}\n" for finding in findings))
    found = f"{len(findings)} findings" if findings else "no finding"
    output.note(f"{path}: {len(plan.actions):,} actions, {found}")
    return int(ExitCode.UNVERIFIED if findings else ExitCode.DONE)
