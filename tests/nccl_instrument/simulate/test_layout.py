"""Layouts: the same groups as the testbed's, experts as Megatron cuts them, and refusals with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_instrument.simulate.layout import Layout
from nccl_instrument.sizes import LayoutError
from nccl_instrument.testbed.layout import Layout as LiveLayout


def test_groups_are_those_of_the_testbed() -> None:
    ours, theirs = Layout(tp=2, pp=2, dp=3), LiveLayout(tp=2, pp=2, dp=3)
    found = {(name, tuple(members)) for name, members in _named(ours) if not name.startswith("e")}
    assert found == {(comm.name, comm.members) for comm in theirs.communicators}


def test_coordinates_are_those_of_the_testbed() -> None:
    ours, theirs = Layout(tp=2, pp=3, dp=2), LiveLayout(tp=2, pp=3, dp=2)
    places = ours.places
    found = [(int(places["tp"][r]), int(places["pp"][r]), int(places["dp"][r])) for r in range(ours.n_ranks)]
    assert found == [theirs.coordinates_of(rank) for rank in range(theirs.n_ranks)]


def test_experts_are_spread_over_neighbouring_data_parallel_ranks() -> None:
    layout = Layout(tp=2, pp=1, dp=4, ep=2, ranks_per_node=2)
    assert layout.groups["ep"].tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert layout.groups["edp"].tolist() == [[0, 4], [2, 6], [1, 5], [3, 7]]


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"tp": 0}, "--tp must be at least 1"),
        ({"tp": 1, "pp": 1, "dp": 1}, "nobody to talk to"),
        ({"dp": 3, "ranks_per_node": 8}, "do not fill nodes of 8"),
        ({"dp": 6, "ep": 4}, "--ep 4 does not divide --dp 6"),
        ({"tp": 4, "ranks_per_node": 2, "nics_per_node": 3}, "must lie between 1 and the 2 ranks"),
        ({"tp": 3, "dp": 2, "ranks_per_node": 4}, "cut tensor groups"),
        ({"tp": 6, "ranks_per_node": 4, "pp": 1}, "end inside a node"),
        ({"tp": 8, "ranks_per_node": 8, "nics_per_node": 3}, "cannot share 3 NICs"),
        ({"dp": 100_000}, "too many for the simulator: the limit is"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Layout(**sizes)


def _named(layout: Layout) -> list[tuple[str, list[int]]]:
    groups = [members.tolist() for kind in layout.groups.values() for members in kind]
    return list(zip(layout.names, groups, strict=True))
