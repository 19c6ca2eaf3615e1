"""Measured costs of one device: the file that `snplan profile` writes and `--device PROFILE.json` reads.

Ops are found by signature: kind, precision, element types and shapes as the op reads them, attributes. Two ops with one
signature do the same work, so one measurement serves all repeated blocks of a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from snplan.cost.device import Device, Precision, device_from
from snplan.cost.pools import MOST, MOST_US
from snplan.errors import UsageError
from snplan.ir import Attr, Attrs, Spec
from snplan.plan.pieces import PIECES, pieces_of

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Engine:
    """A way to run an op: scratch bytes, and microseconds; an `algorithm` action names its `id`.

    One that is not `deterministic` may give other bits in another run. The id of one that runs in pieces of the batch
    has their number in it (`snplan.plan.pieces`); its workspace and time are those of all of them.
    """

    workspace_bytes: int
    us: int
    id: int
    deterministic: bool = True


class MeasuredOp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All engines measured for one signature; an op without a choice has one, of id 0 and without workspace."""

    signature: str
    engines: list[Engine]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A device's fields (copies, launches and memory measured, the rest published), and measured ops.

    `versions` names driver and libraries: times and engine ids hold for these only.
    """

    format: int
    device: dict[str, int | str]
    versions: dict[str, str]
    ops: list[MeasuredOp]

    @cached_property
    def measured(self) -> dict[str, list[Engine]]:
        """Signature -> all engines measured."""
        return {op.signature: op.engines for op in self.ops}

    @cached_property
    def _found(self) -> dict[tuple[str, bool, int], tuple[Engine, ...]]:
        """Answers of `find` so far; without engines where there are none."""
        return {}

    def find(self, signature: str, *, deterministic: bool = False, pieces: int = 1) -> tuple[Engine, ...] | None:
        """Engines worth having of the op with this signature: by workspace, each faster than all before it.

        With `deterministic` only those that are; in at most `pieces` pieces of the batch. None where it was not
        measured, or has none of these.
        """
        key = signature, deterministic, pieces
        if key not in self._found:
            self._found[key] = _wanted(self.measured.get(signature, ()), deterministic=deterministic, pieces=pieces)
        return self._found[key] or None


def _wanted(engines: Sequence[Engine], *, deterministic: bool, pieces: int) -> tuple[Engine, ...]:
    return pareto([e for e in engines if pieces_of(e.id)[1] <= pieces and (e.deterministic or not deterministic)])


def pareto(engines: Sequence[Engine]) -> tuple[Engine, ...]:
    """The engines that no other one beats in both workspace and time: by workspace, each faster than all before it."""
    kept: list[Engine] = []
    for engine in sorted(engines):
        if not kept or engine.us < kept[-1].us:
            kept.append(engine)
    return tuple(kept)


def signature(kind: str, specs: Sequence[Spec], attrs: Attrs, precision: Precision) -> str:
    """Text that is equal for ops that do the same work; `specs` are the inputs as the op reads them."""
    inputs = ",".join(f"{spec.dtype}{list(spec.shape)}" for spec in specs)
    kept: dict[str, Attr] = {key: value for key, value in attrs.items() if key != "in_shapes"}
    return f"{kind}({inputs}){msgspec.json.encode(kept, order='sorted').decode()}/{precision}"


def load_profile(path: Path) -> Profile:
    """The profile in a file. Raises UsageError (SNP-U047) where it is none, or of another format."""
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise UsageError("SNP-U047", f"profile {path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError("SNP-U047", f"{path} is not a profile that `snplan profile` wrote: {error}") from error
    if profile.format != FORMAT:
        raise UsageError("SNP-U047", f"profile {path} has format {profile.format}, this snplan reads {FORMAT}")
    _check(profile, path)
    return profile


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile as JSON, an op a line in order of signature, keys sorted: equal profiles give equal bytes."""
    lines = [msgspec.json.encode(op, order="sorted") for op in sorted(profile.ops, key=lambda op: op.signature)]
    head = msgspec.json.encode({"device": profile.device, "format": profile.format}, order="sorted")[:-1]
    tail = msgspec.json.encode(profile.versions, order="sorted")
    path.write_bytes(head + b',"ops":[\n' + b",\n".join(lines) + b'\n],"versions":' + tail + b"}\n")


def merged(profiles: Sequence[Profile]) -> Profile:
    """One profile of the ops of all, each op's engines that are worth having; device and versions of the first.

    Of an op in several the first stands; the reserve is the largest. Raises UsageError (SNP-U047) for profiles of
    different devices or versions: their engines are not the same.
    """
    first = profiles[0]
    for other in profiles[1:]:
        if other.device.get("name") != first.device.get("name") or other.versions != first.versions:
            raise UsageError(
                "SNP-U047",
                f"profiles of {first.device.get('name')} with {first.versions} and of {other.device.get('name')} with "
                f"{other.versions} are not one profile",
            )
    ops: dict[str, MeasuredOp] = {}
    for op in (op for profile in profiles for op in profile.ops):
        ops.setdefault(op.signature, MeasuredOp(signature=op.signature, engines=_worthwhile(op.engines)))
    reserve = max(int(profile.device["reserve_bytes"]) for profile in profiles)
    device = {**first.device, "reserve_bytes": reserve}
    return Profile(format=FORMAT, device=device, versions=first.versions, ops=list(ops.values()))


def _worthwhile(engines: Sequence[Engine]) -> list[Engine]:
    """Engines that some plan would take, with or without those that are not deterministic, or in pieces."""
    kinds = [(deterministic, pieces) for deterministic in (False, True) for pieces in (1, *PIECES)]
    return sorted({e for d, pieces in kinds for e in _wanted(engines, deterministic=d, pieces=pieces)})


def profiled_device(profile: Profile) -> Device:
    """The profile's device, with the profile as its source of op times. Raises UsageError (SNP-U046)."""
    return replace(device_from(profile.device, "the profile's device"), profile=profile)


def _check(profile: Profile, path: Path) -> None:
    for op in profile.ops:
        if not op.engines or not all(map(_sound, op.engines)):
            raise UsageError(
                "SNP-U047",
                f"profile {path}: {op.signature} needs engines of 1 to {MOST_US:,} us and 0 workspace bytes or more",
            )


def _sound(engine: Engine) -> bool:
    return 1 <= engine.us <= MOST_US and 0 <= engine.workspace_bytes <= MOST and engine.id >= 0
