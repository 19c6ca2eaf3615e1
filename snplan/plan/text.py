"""The text form of a plan: one line for each action and each row of a table; it reads back as exactly the same plan.

    snplan plan, format 1
    snplan_version "0.1.0"
    ...
    actions
      0: alloc b2
      1: run conv1 (x@b0, w@b1) -> (y@b2)
      2: offload y b2 -> s0 after 1
      3: algorithm conv1 engine 2 workspace b3
      4: prefetch y s0 -> b2 after 2

`b` and `s` number buffers and slots. Names with blanks or with any of `"(),@` are written as JSON strings.
"""

from __future__ import annotations

from snplan.plan.text_reader import from_text
from snplan.plan.text_writer import action_text, name_text, to_text

__all__ = ["action_text", "from_text", "name_text", "to_text"]
