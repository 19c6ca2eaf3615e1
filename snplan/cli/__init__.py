"""The command line: `snplan COMMAND ...` (docs/cli.md).

Start-up time counts: nothing here loads onnx, ortools, networkx or NumPy before a command needs it.
"""

from snplan.cli.entry import main

__all__ = ["main"]
