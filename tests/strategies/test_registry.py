"""Strategies by name: what `--strategy` takes, and what it refuses."""

from __future__ import annotations

import pytest
from conftest import CHECKOUT

from snplan.cli.options import STRATEGIES as OFFERED
from snplan.errors import UsageError
from snplan.strategies.registry import AUTO, STRATEGIES, parse_strategy
from snplan.strategies.superneurons import Superneurons


def test_the_command_line_offers_exactly_the_registry() -> None:
    assert (AUTO, *STRATEGIES) == OFFERED


def test_every_strategy_has_its_file_and_its_line_in_the_docs() -> None:
    page = (CHECKOUT / "docs" / "strategies.md").read_text(encoding="utf-8")
    for name, strategy in STRATEGIES.items():
        assert strategy.__module__ == f"snplan.strategies.{name.replace('-', '_')}"
        assert strategy.summary
        assert f"| `{name}` |" in page


def test_auto_is_no_rule() -> None:
    assert parse_strategy("auto") is None


@pytest.mark.parametrize("name", STRATEGIES)
def test_names_round_trip(name: str) -> None:
    strategy = parse_strategy(name)
    assert strategy is not None
    assert strategy.spec == name


@pytest.mark.parametrize("part", ["offload", "cache", "recompute", "algorithms"])
def test_parts_of_superneurons_can_be_switched_off_one_by_one(part: str) -> None:
    strategy = parse_strategy(f"superneurons:-{part}")
    assert isinstance(strategy, Superneurons)
    assert {name: getattr(strategy, name) for name in strategy.parts()} == {
        name: name != part for name in ("offload", "cache", "recompute", "algorithms")
    }


def test_parts_are_written_in_one_order() -> None:
    strategy = parse_strategy("superneurons:-recompute-cache")
    assert strategy is not None
    assert strategy.spec == "superneurons:-cache-recompute"


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "",
        "auto:-cache",
        "superneurons:",
        "superneurons:cache",
        "superneurons:-",
        "superneurons:-cash",
        "superneurons:-cache-cache",
        "superneurons:-cache,-recompute",
        "liveness:-cache",
        "vdnn",
    ],
)
def test_other_texts_are_refused_and_the_message_says_what_there_is(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_strategy(text)
    assert refused.value.code == "SNP-U003"
    assert "superneurons" in refused.value.message
