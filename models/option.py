"""What a model of the zoo can be asked for: named options with a default, a help line and a smallest value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", tuple: "integers separated by commas"}

OptionValue = bool | int | float | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a model. The type of `default` is the type of the option."""

    default: OptionValue
    help: str
    minimum: float = 1
    below: float | None = None

    def read(self, name: str, value: object) -> OptionValue:
        """The value as this option's type; text is parsed. Raises ValueError on another type or out of range."""
        parsed = _parse(type(self.default), value)
        if parsed is None:
            raise ValueError(f"option {name} is {value!r}; it takes {TYPE_NAMES[type(self.default)]}")
        if not isinstance(parsed, bool):
            self._check_range(name, parsed)
        return parsed

    def _check_range(self, name: str, value: int | float | tuple[int, ...]) -> None:
        for part in value if isinstance(value, tuple) else (value,):
            if not part >= self.minimum:
                raise ValueError(f"option {name} is {value}; the smallest value is {self.minimum:g}")
            if self.below is not None and not part < self.below:
                raise ValueError(f"option {name} is {value}; it must be below {self.below:g}")


def read_all(model: str, declared: Mapping[str, Option], given: Mapping[str, object]) -> dict[str, OptionValue]:
    """Every declared option with its given value or its default. Raises ValueError on an unknown name."""
    for name in given:
        if name not in declared:
            raise ValueError(f"model {model} has no option {name!r}; its options are {', '.join(declared) or 'none'}")
    return {
        name: option.read(name, given[name]) if name in given else option.default for name, option in declared.items()
    }


def _parse(kind: type, value: object) -> OptionValue | None:
    try:
        if kind is bool:
            return _parse_bool(value)
        if kind is tuple:
            return _parse_integers(value)
        if kind is float:
            return float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        return _parse_integer(value)
    except ValueError:
        return None


def _parse_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _parse_integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return int(value)


def _parse_integers(value: object) -> tuple[int, ...] | None:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        return None
    integers = [_parse_integer(part) for part in parts]
    return tuple(part for part in integers if part is not None) if None not in integers else None


def image_option(side: int) -> Option:
    """The option for the side of a square input image, in pixels."""
    return Option(default=side, help="side of the square input image, in pixels")


CLASSES = Option(default=1000, help="number of classes")
CHANNELS = Option(default=3, help="channels of the input image")
WIDTH = Option(default=1.0, help="factor on every hidden channel count", minimum=0.001)


def dropout_option(ratio: float) -> Option:
    """The option for the share of elements a Dropout drops; 0 leaves the op out."""
    return Option(default=ratio, help="dropout ratio (0: no dropout)", minimum=0.0, below=1.0)


def scaled(channels: int, width: float) -> int:
    """A channel count times the width factor, rounded, at least 1."""
    return max(1, round(channels * width))
