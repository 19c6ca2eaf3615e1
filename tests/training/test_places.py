"""Places of readers while groups merge, beside a list that is looked through from end to end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from snplan.training.places import NOWHERE, Places


class Groups:
    """Places that take one another in, counted: `looks` says how often one was led to its group."""

    def __init__(self, count: int) -> None:
        self.owner = [*range(count)]
        self.looks = 0

    def root(self, place: int) -> int:
        """The place of the group that holds `place`."""
        self.looks += 1
        while self.owner[place] != place:
            place = self.owner[place]
        return place

    def merge(self, first: int, second: int, place: int) -> None:
        """Let two groups run at the place of one of them."""
        self.owner[first] = self.owner[second] = place


@given(data=st.data(), count=st.integers(2, 12))
@settings(max_examples=200, deadline=None)
def test_any_merges(data: st.DataObject, count: int) -> None:
    groups = Groups(count)
    readers = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    places = Places(readers, groups.root)
    for _ in range(data.draw(st.integers(0, count - 1))):
        live = [place for place in range(count) if groups.owner[place] == place]
        if len(live) < 2:
            break
        pair = data.draw(st.lists(st.sampled_from(live), min_size=2, max_size=2, unique=True))
        reads = any(groups.root(reader) in pair for reader in readers)
        place = data.draw(st.sampled_from(pair))
        groups.merge(pair[0], pair[1], place)
        if reads:
            places.add(place)
        now = {groups.root(reader) for reader in readers}
        besides = data.draw(st.lists(st.integers(0, count - 1), max_size=2))
        assert places.last() == max(now)
        assert places.first(besides=besides) == min(now - {*besides}, default=NOWHERE)
        assert places.first(besides=()) == min(now)


def test_the_work_does_not_grow_with_the_readers() -> None:
    """100,000 readers that merge one after another: a few looks at each, not at all of them each time."""
    count = 100_000
    groups = Groups(count)
    places = Places(range(count), groups.root)
    for place in range(1, count - 1):
        groups.owner[place - 1] = place
        places.add(place)
        assert places.last() == count - 1
        assert places.first(besides=(place,)) == place + 1
    assert groups.looks < 12 * count
