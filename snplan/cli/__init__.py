"""The command line: `snplan COMMAND ...` (docs/cli.md).

Start-up time counts: nothing here loads onnx, ortools, networkx or NumPy before a command needs it. Nothing at all is
loaded before `main` runs, so that Ctrl-C while modules load ends as it does later.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would have to be loaded first
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of `snplan ARGUMENTS` (docs/cli.md, "Exit codes"); `sys.argv` without arguments."""
    try:
        from snplan.cli.entry import run

        return run(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED  # too early, or too late, for a message
