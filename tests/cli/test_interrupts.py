"""Ctrl-C while modules still load: exit code 130, and never a traceback."""

from __future__ import annotations

import subprocess
import sys

EVERY_IMPORT = """
import builtins, os, sys
from snplan.cli import main

real = builtins.__import__

def interrupted_at(count):
    def interrupting(*given, **named):
        nonlocal count
        count -= 1
        if count == 0:
            raise KeyboardInterrupt
        return real(*given, **named)

    child = os.fork()  # an interrupted import leaves modules in pieces
    if child == 0:
        builtins.__import__ = interrupting
        code = main(["--version"])
        sys.stdout.flush()
        os._exit(code if count <= 0 else 99 - code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

at, codes = 1, []
while not codes or codes[-1] == 130:
    codes.append(interrupted_at(at))
    at += 1 + at // 8
print(at, *sorted(set(codes)), file=sys.stderr)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, to its end."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_at_any_import() -> None:
    done = run(EVERY_IMPORT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    *told, last = done.stderr.splitlines()
    at, *codes = map(int, last.split())
    assert at > 100
    assert codes == [99, 130]  # 99: no import was left to interrupt
    assert set(told) <= {"snplan: SNP-X130: interrupted; nothing was written"}
    assert done.stdout.startswith("snplan ")


def test_nothing_is_loaded_before_the_command_begins() -> None:
    done = run("import sys\nbefore = set(sys.modules)\nimport snplan.cli\nprint(*sorted(set(sys.modules) - before))")
    assert set(done.stdout.split()) <= {"__future__", "snplan", "snplan.cli"}
