"""Tables for terminals, from plain rows. Names in cells are neither markup nor able to steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from snplan.plan.timeline import Held
from snplan.units import format_bytes, printable


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns without a header: what, and its value."""
    table = _table(title)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in rows:
        table.add_row(Text(what), Text(printable(value)))
    return table


def shares(title: str, sizes: Mapping[str, int]) -> Table:
    """Sizes with their share of the sum, which closes the table; groups of no bytes are left out."""
    total = sum(sizes.values())
    table = _table(title)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, size in [*sizes.items(), ("sum", total)]:
        if size or name == "sum":
            table.add_row(Text(name), format_bytes(size), f"{size / total:.1%}" if total else "")
    return table


def live_tensors(title: str, held: Sequence[Held], limit: int) -> Table:
    """The first `limit` live buffers, and one row for all others."""
    table = _table(title)
    table.add_column(style="bold", overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for row in held[:limit]:
        table.add_row(Text(printable(row.tensor or f"buffer {row.buffer}")), row.group, format_bytes(row.bytes))
    rest = held[limit:]
    if rest:
        table.add_row(f"{len(rest):,} others", "", format_bytes(sum(row.bytes for row in rest)))
    return table


def columns(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with a header; all columns but the first are set flush right."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 2, 0, 2))
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title, style="bold"), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 2)
    )
