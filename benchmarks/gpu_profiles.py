"""Profiles of the zoo as one file of the package: python benchmarks/gpu_profiles.py -o OUT.json PROFILE.json ..."""

from __future__ import annotations

import argparse
from pathlib import Path

from snplan.cost.profile import load_profile, merged, save_profile


def main() -> None:
    """Merge, write, and say what is in it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    found = [load_profile(path) for path in given.profiles]
    whole = merged(found)
    save_profile(whole, given.output)
    engines = sum(len(op.engines) for op in whole.ops)
    print(f"{given.output}: {len(whole.ops)} ops with {engines} engines, {given.output.stat().st_size:,} B")
    for path, profile in zip(given.profiles, found, strict=True):
        print(f"  {path.name}: {len(profile.ops)} ops, {sum(len(op.engines) for op in profile.ops)} engines")


if __name__ == "__main__":
    main()
