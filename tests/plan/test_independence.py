"""The verifier knows nothing of the planner, and agrees with the op table where both say something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from snplan.ir import Role
from snplan.ops import KINDS
from snplan.plan.model import StepPlan
from snplan.plan.timeline import _GROUP, BREAKDOWN
from snplan.plan.verifier.inplace import _MIXES_ELEMENTS


def test_verifier_loads_no_other_part() -> None:
    code = "import sys, snplan.plan.verify, snplan.plan.file; print(*sorted(m for m in sys.modules if 'snplan' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    parts = {name.split(".")[1] for name in done.stdout.split() if "." in name}
    assert parts == {"errors", "ir", "plan", "units"}


def test_kinds_that_are_never_in_place_are_kinds() -> None:
    assert sorted(_MIXES_ELEMENTS - set(KINDS)) == []


def test_op_table_has_none_of_them_in_place() -> None:
    assert [name for name in sorted(_MIXES_ELEMENTS) if KINDS[name].inplace] == []


def test_groups_cover_the_roles() -> None:
    assert set(_GROUP.values()) <= set(BREAKDOWN)
    assert set(Role) - set(_GROUP) == {Role.STATE, Role.CONSTANT, Role.LOSS}


def test_rules_and_keys_are_on_the_page(checkout: Path) -> None:
    page = (checkout / "docs" / "plan-file.md").read_text()
    assert re.findall(r"^\| ([A-Z]) \|", page, re.MULTILINE) == list("FSALVORPEK")
    quoted = set(re.findall(r"`(\w+)`", page))
    assert set(StepPlan.__struct_fields__) - quoted == set()
