"""The text of one translation unit with all kernels of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from snplan.codegen.launch import TICKETS, Source

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parent / "templates"


@cache
def environment() -> Environment:
    """The jinja2 environment over the templates; a name that a template misses is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def kernel_text(source: Source) -> str:
    """One kernel."""
    return environment().get_template(f"{source.template}.cu.j2").render(name=source.name, **dict(source.params))


def intrinsics() -> str:
    """The part of every unit that only a CUDA compiler understands."""
    return environment().get_template("intrinsics.cu.j2").render()


def prelude() -> str:
    """What kernels share, after the intrinsics."""
    return environment().get_template("prelude.cu.j2").render(tickets=TICKETS)


def render(sources: Iterable[Source]) -> str:
    """One .cu file with each distinct kernel once, by name: the same kernels give the same text."""
    distinct = {source.name: source for source in sources}
    return "\n".join([intrinsics(), prelude(), *(kernel_text(distinct[name]) for name in sorted(distinct))])
