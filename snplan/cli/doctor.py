"""`snplan doctor`: what is installed, and what the host and the GPU allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snplan.cli import options, output


def doctor(json: options.Json = False) -> int:
    """Show what is installed, and what the host and the GPU allow."""
    from snplan.cli.system import examine

    found = examine()
    if "cuda" in found["backends"]:
        found["measured"] = _measured()
    if json:
        output.write_object(found)
    else:
        output.write_text("".join(f"{line}\n" for line in doctor_lines(found)))
    return 0


def _measured() -> dict[str, Any]:
    """What only the GPU itself tells: memory, copy speeds, pinned memory; or why it does not."""
    from snplan.errors import RunError
    from snplan.runtime.cuda.doctor import examine_gpu

    try:
        return dict(examine_gpu())
    except RunError as error:
        return {"error": str(error)}


def doctor_lines(found: Mapping[str, Any]) -> list[str]:
    """One line a fact: names in a column, values beside them, parts of a group indented under it."""
    lines: list[str] = []
    for group, facts in found.items():
        if not isinstance(facts, Mapping):
            lines.append(f"{group:<12}{_value(group, facts)}")
            continue
        lines.append(group)
        lines += [f"  {name:<24}{_value(name, value)}" for name, value in facts.items()]
    return lines


def _value(name: str, value: object) -> str:
    from snplan.units import format_bytes

    if value is None:
        return "unlimited" if name.endswith("limit_bytes") else "not found"
    if isinstance(value, int) and name.endswith("_bytes_per_s"):
        return f"{value / 1e9:.1f} GB/s"
    if isinstance(value, int) and name.endswith("_us"):
        return f"{value} us"
    if isinstance(value, int) and name.endswith("_bytes"):
        return format_bytes(value)
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return str(value)
