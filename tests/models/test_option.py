"""Options read values of their own type, from Python or from text, and say what is wrong with others."""

import pytest

from snplan.models.option import Option, dropout_option, read_all, scaled

COUNT = Option(default=3, help="a count")
FACTOR = Option(default=1.0, help="a factor", minimum=0.5)
FLAG = Option(default=True, help="a flag")
LIST = Option(default=(1, 2), help="a list")


@pytest.mark.parametrize(
    ("option", "given", "read"),
    [
        (COUNT, 7, 7),
        (COUNT, "7", 7),
        (FACTOR, 2, 2.0),
        (FACTOR, "0.5", 0.5),
        (FLAG, False, False),
        (FLAG, "False", False),
        (FLAG, "true", True),
        (LIST, (4, 5, 6), (4, 5, 6)),
        (LIST, [4], (4,)),
        (LIST, "4,5", (4, 5)),
        (LIST, "4, 5", (4, 5)),
    ],
)
def test_reads_its_type(option: Option, given: object, read: object) -> None:
    value = option.read("x", given)
    assert value == read
    assert type(value) is type(option.default)


@pytest.mark.parametrize(
    ("option", "given", "wanted"),
    [
        (COUNT, 2.0, "an integer"),
        (COUNT, True, "an integer"),
        (COUNT, "2.5", "an integer"),
        (COUNT, None, "an integer"),
        (FACTOR, "wide", "a number"),
        (FACTOR, False, "a number"),
        (FLAG, 1, "true or false"),
        (FLAG, "yes", "true or false"),
        (LIST, "", "integers separated by commas"),
        (LIST, (), "integers separated by commas"),
        (LIST, (1, "a"), "integers separated by commas"),
        (LIST, 3, "integers separated by commas"),
    ],
)
def test_refuses_other_types(option: Option, given: object, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"option x is .*; it takes {wanted}"):
        option.read("x", given)


@pytest.mark.parametrize(
    ("option", "given", "smallest"),
    [(COUNT, 0, "1"), (FACTOR, 0.25, "0.5"), (FACTOR, "nan", "0.5"), (LIST, (2, 0), "1")],
)
def test_refuses_values_below_the_smallest(option: Option, given: object, smallest: str) -> None:
    with pytest.raises(ValueError, match=f"the smallest value is {smallest}"):
        option.read("x", given)


def test_dropout_ratio_is_below_one() -> None:
    ratio = dropout_option(0.5)
    assert ratio.read("dropout", 0) == 0.0
    with pytest.raises(ValueError, match="must be below 1"):
        ratio.read("dropout", 1.0)


def test_defaults_fill_in_what_is_not_given() -> None:
    assert read_all("m", {"count": COUNT, "flag": FLAG}, {"count": "9"}) == {"count": 9, "flag": True}


def test_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"model m has no option 'depth'; its options are count, flag"):
        read_all("m", {"count": COUNT, "flag": FLAG}, {"depth": 1})
    with pytest.raises(ValueError, match="its options are none"):
        read_all("m", {}, {"depth": 1})


def test_scaled_rounds_and_stays_positive() -> None:
    assert [scaled(64, 1.0), scaled(64, 0.25), scaled(96, 0.26), scaled(3, 0.01)] == [64, 16, 25, 1]
