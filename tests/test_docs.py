"""What the pages quote is what the repository holds."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from snplan.cli.app import app


def squeezed(text: str) -> str:
    """Text without the blanks that layout decides."""
    return re.sub(r"\s+", " ", text).strip()


def test_quoted_code_is_in_the_file_that_it_names(checkout: Path) -> None:
    quotes = [
        (page.name, name, body)
        for page in sorted((checkout / "docs").glob("*.md"))
        for name, body in re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    assert len(quotes) >= 5
    stale = [
        (page, name, body)
        for page, name, body in quotes
        if squeezed(body) not in squeezed((checkout / name).read_text())
    ]
    assert stale == []


def test_links_between_pages(checkout: Path) -> None:
    pages = [checkout / "README.md", checkout / "CHANGELOG.md", *(checkout / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def options_by_command() -> dict[str, set[str]]:
    """Every option of every command that there is."""
    import typer

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group has commands
    return {
        name: {"--help"}.union(*(parameter.opts for parameter in command.params)) for name, command in commands.items()
    }


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/add-an-op.md", "CHANGELOG.md"])
def test_quoted_commands_exist(page: str, checkout: Path) -> None:
    known = options_by_command()
    text = (checkout / page).read_text()
    quoted = re.findall(r"(?:^|`|    |\$ )snplan ([a-z][a-z-]*)([^`\n]*)", text, re.MULTILINE)
    for command, rest in quoted:
        assert command in known, f"{page} quotes snplan {command}"
        words = {word.partition("=")[0] for word in shlex.split(rest, comments=True) if word.startswith("--")}
        assert command == "model" or words <= known[command], f"{page} quotes snplan {command} {rest}"


def test_exit_codes_are_on_the_page(checkout: Path) -> None:
    from snplan.errors import ExitCode

    page = (checkout / "docs" / "cli.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == sorted(ExitCode)


def test_every_error_code_is_on_its_page(checkout: Path) -> None:
    sources = [
        path for folder in ("snplan", "runtime", "models", "codegen") for path in (checkout / folder).rglob("*.py")
    ]
    used = {code for path in sources for code in re.findall(r"SNP-[A-Z]\d{3}", path.read_text())}
    told = re.findall(r"^\| (SNP-[A-Z]\d{3}) \|", (checkout / "docs" / "errors.md").read_text(), re.MULTILINE)
    assert len(told) == len(set(told))
    assert sorted(used - set(told)) == []


def test_what_the_readme_makes_is_ignored(checkout: Path) -> None:
    """Its commands are tried in a checkout; what they write is not for the next commit."""
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout")
    text = (checkout / "README.md").read_text()
    named = set(re.findall(r"(?:-o|--html|--svg|--csv|--export|--weights|--trace) ([\w.-]+)", text))
    assert {"resnet18.onnx", "resnet18.html", "resnet18.svg", "trained.onnx", "replay.py", "weights.npz"} <= named
    made = sorted(named | {"resnet18.plan.json", "resnet18.replay.py", "resnet18.plan.json.gz", "demo/x"})
    done = subprocess.run(["git", "check-ignore", *made], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.stdout.split() == made
