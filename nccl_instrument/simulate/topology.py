"""Rings, trees and pairs: the links of every communicator and the lanes that move data through them.

Rings run forwards on even channels and backwards on odd ones, so that each NIC sends and receives in every op. Trees
are NCCL's: a chain inside each node, and over the nodes a binary tree for even channels and its mirror image for odd
ones, so that a leaf of one is an inner node of the other. Arrays only: 100,000 ranks take a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.engine import FAN, GROUP, LANE, LINK, MEMBER, RANK
from nccl_instrument.simulate.layout import KINDS, Layout
from nccl_instrument.simulate.physics import Physics

STREAMS: Final = {"world": 0, "tp": 0, "dp": 1, "edp": 1, "pp": 2, "ep": 3}
NONE: Final = -1
Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


@dataclass
class Topology:
    """The engine's tables of who is connected to whom."""

    ranks: Rows
    groups: Rows
    members: Rows
    links: Rows
    lanes: Rows


def build_topology(layout: Layout, physics: Physics) -> Topology:
    """Every communicator of the layout with its links and lanes."""
    made = _Maker(layout, physics)
    for kind, members in layout.groups.items():
        made.add_kind(kind, members.astype(np.int64))
    return made.topology()


@dataclass
class _Maker:
    layout: Layout
    physics: Physics
    n_groups: int = 0
    n_members: int = 0
    n_links: int = 0
    n_lanes: int = 0
    parts: dict[str, list[Rows]] = field(
        default_factory=lambda: {"groups": [], "members": [], "links": [], "lanes": []}
    )

    def __post_init__(self) -> None:
        self.ranks = np.zeros(self.layout.n_ranks, RANK)
        self.ranks["node"], self.ranks["nic"] = self.layout.node_of, self.layout.nic_of
        self.ranks["class"] = self.layout.places["pp"]
        self.ranks["groups"] = self.ranks["places"] = NONE

    def topology(self) -> Topology:
        parts = {name: np.concatenate(rows) for name, rows in self.parts.items() if rows}
        return Topology(
            self.ranks, parts["groups"], parts["members"],
            parts.get("links", np.zeros(0, LINK)), parts.get("lanes", np.zeros(0, LANE)),
        )  # fmt: skip

    def add_kind(self, kind: str, ranks: Ints) -> None:
        """All groups of one kind at once: ranks is (groups, members)."""
        n, size = ranks.shape
        nodes = self.layout.node_of[ranks]
        groups, members = np.zeros(n, GROUP), np.zeros(ranks.size, MEMBER)
        groups["first_member"] = self.n_members + np.arange(n) * size
        groups["n_ranks"], groups["stream"] = size, STREAMS[kind]
        groups["n_nodes"] = 1 + (np.diff(np.sort(nodes, axis=1), axis=1) > 0).sum(axis=1)
        groups["is_tree"] = size >= self.physics.tree_from if kind == "world" else self._reduces_by_tree(kind)
        groups["is_barrier"] = (groups["n_nodes"] == 1) & (kind != "pp")
        groups["n_channels"] = 1 if kind == "ep" else self.physics.n_channels
        members["rank"], members["place"] = ranks.ravel(), np.tile(np.arange(size), n)
        members["group"] = np.repeat(self.n_groups + np.arange(n), size)
        for name in ("first_ring", "first_up", "first_down", "first_p2p"):
            members[name] = NONE
        slot = KINDS.index(kind)
        self.ranks["groups"][members["rank"], slot] = members["group"]
        self.ranks["places"][members["rank"], slot] = members["place"]
        for index in np.flatnonzero(~groups["is_barrier"].astype(bool)):
            group = np.arange(index * size, (index + 1) * size)
            self._add_lanes(kind, int(index), groups, members, group, ranks[index])
        self.parts["groups"].append(groups)
        self.parts["members"].append(members)
        self.n_groups += n
        self.n_members += ranks.size

    def _reduces_by_tree(self, kind: str) -> bool:
        return kind in ("dp", "edp") and self.physics.dp_reduce == "tree"

    def _add_lanes(self, kind: str, index: int, groups: Rows, members: Rows, at: Ints, ranks: Ints) -> None:
        number, n_channels = self.n_groups + index, int(groups["n_channels"][index])
        if kind == "pp":
            self._add_pairs(number, n_channels, members, at, ranks, _next_stage(len(ranks)), 2)
        elif kind == "ep":
            self._add_pairs(number, n_channels, members, at, ranks, _everybody(len(ranks)), len(ranks))
        else:
            if not groups["is_tree"][index]:
                self._add_rings(number, n_channels, members, at, ranks)
            else:
                self._add_trees(number, n_channels, members, at, ranks)

    def _new_lanes(self, ranks: Ints) -> tuple[int, Rows]:
        lanes = np.zeros(len(ranks), LANE)
        lanes["rank"], lanes["in"], lanes["out"] = ranks, NONE, NONE
        first = self.n_lanes
        self.n_lanes += len(ranks)
        self.parts["lanes"].append(lanes)
        return first, lanes

    def _new_links(
        self, number: int, channel: Ints, ranks: Ints, source: Ints, target: Ints, lanes: tuple[Ints, Ints]
    ) -> Ints:
        links = np.zeros(len(source), LINK)
        links["group"], links["channel"], links["from"], links["to"] = number, channel, source, target
        links["from_rank"], links["to_rank"] = ranks[source], ranks[target]
        links["from_lane"], links["to_lane"] = lanes
        node = self.layout.node_of
        links["is_network"] = node[ranks[source]] != node[ranks[target]]
        self.parts["links"].append(links)
        self.n_links += len(links)
        return np.arange(self.n_links - len(links), self.n_links)

    def _add_rings(self, number: int, n_channels: int, members: Rows, at: Ints, ranks: Ints) -> None:
        n = len(ranks)
        place, channel = np.repeat(np.arange(n), n_channels), np.tile(np.arange(n_channels), n)
        first, lanes = self._new_lanes(ranks[place])
        members["first_ring"][at] = first + np.arange(n) * n_channels
        following = (place + np.where(channel % 2, -1, 1)) % n
        target = following * n_channels + channel
        ids = self._new_links(number, channel, ranks, place, following, (first + np.arange(len(place)), first + target))
        lanes["out"][:, 0] = ids
        lanes["in"][target, 0] = ids

    def _add_pairs(
        self, number: int, n_channels: int, members: Rows, at: Ints, ranks: Ints, pairs: tuple[Ints, Ints, Ints, Ints],
        n_neighbours: int,
    ) -> None:  # fmt: skip
        """pairs: source and target place, which neighbour the target is to the source, and the source to the target."""
        n, per_member = len(ranks), n_neighbours * 2 * n_channels
        first, lanes = self._new_lanes(np.repeat(ranks, per_member))
        members["first_p2p"][at] = first + np.arange(n) * per_member
        source, target, of_source, of_target = (np.repeat(part, n_channels) for part in pairs)
        channel = np.tile(np.arange(n_channels), len(pairs[0]))
        sending = source * per_member + of_source * 2 * n_channels + channel
        receiving = target * per_member + (of_target * 2 + 1) * n_channels + channel
        ids = self._new_links(number, channel, ranks, source, target, (first + sending, first + receiving))
        lanes["out"][sending, 0] = ids
        lanes["in"][receiving, 0] = ids

    def _add_trees(self, number: int, n_channels: int, members: Rows, at: Ints, ranks: Ints) -> None:
        n = len(ranks)
        up, lanes_up = self._new_lanes(np.tile(ranks, n_channels))
        down, lanes_down = self._new_lanes(np.tile(ranks, n_channels))
        # A member's lanes must lie side by side by channel.
        members["first_up"][at], members["first_down"][at] = (
            up + np.arange(n) * n_channels,
            down + np.arange(n) * n_channels,
        )
        lanes_up["rank"] = lanes_down["rank"] = np.repeat(ranks, n_channels)
        for channel in range(n_channels):
            parent = tree_parents(self.layout.node_of[ranks].astype(np.int64), channel)
            child = np.flatnonzero(parent >= 0)
            here = np.full(len(child), channel)
            mine, theirs = child * n_channels + channel, parent[child] * n_channels + channel
            rising = self._new_links(number, here, ranks, child, parent[child], (up + mine, up + theirs))
            is_root = parent[parent[child]] < 0
            falling_from = np.where(is_root, up + theirs, down + theirs)
            falling = self._new_links(number, here, ranks, parent[child], child, (falling_from, down + mine))
            lanes_up["out"][mine, 0] = rising
            lanes_down["in"][mine, 0] = falling
            nth = _nth_child(parent[child])
            lanes_up["in"][theirs, nth] = rising
            lanes_up["out"][theirs[is_root], nth[is_root]] = falling[is_root]
            lanes_down["out"][theirs[~is_root], nth[~is_root]] = falling[~is_root]


def _next_stage(n: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Both directions between neighbouring stages; neighbour 0 is the stage before, 1 the one after."""
    low, one = np.arange(n - 1), np.ones(n - 1, np.int64)
    return (
        np.concatenate([low, low + 1]), np.concatenate([low + 1, low]),
        np.concatenate([one, one - 1]), np.concatenate([one - 1, one]),
    )  # fmt: skip


def _everybody(n: int) -> tuple[Ints, Ints, Ints, Ints]:
    source, target = np.divmod(np.arange(n * n), n)
    source, target = source[source != target], target[source != target]
    return source, target, target, source


def _nth_child(parents: Ints) -> Ints:
    """Which child of its parent each one is, 0 to FAN - 1."""
    order = np.argsort(parents, kind="stable")
    starts = np.r_[True, np.diff(parents[order]) > 0]
    nth = np.arange(len(parents)) - np.maximum.accumulate(np.where(starts, np.arange(len(parents)), 0))
    found = np.empty(len(parents), np.int64)
    found[order] = nth
    assert not len(found) or found.max() < FAN
    return found


def tree_parents(nodes: Ints, channel: int) -> Ints:
    """(n,) place of each member's parent, -1 for the root. nodes: the node of each place, those of a node side by side.

    Inside a node a chain; its head (another one per channel, so that all NICs are used) is in the tree over the nodes.
    """
    n = len(nodes)
    first = np.flatnonzero(np.r_[True, nodes[1:] != nodes[:-1]])
    size = np.diff(np.r_[first, n])
    of_node = np.repeat(np.arange(len(first)), size)
    turn = channel % size
    along = (np.arange(n) - first[of_node] - turn[of_node]) % size[of_node]  # place in the chain
    parent = first[of_node] + (turn[of_node] + along - 1) % size[of_node]
    heads = first + turn
    over = node_tree(len(first), is_mirrored=channel % 2 == 1)
    parent[heads] = np.where(over >= 0, heads[over], NONE)
    return parent


def node_tree(n: int, is_mirrored: bool) -> Ints:
    """(n,) parent of each node in a binary tree whose leaves are the odd numbers; mirrored, the even ones (or nearly)."""
    node = np.arange(n)
    bit = node & -node
    parent = (node ^ bit) | (bit << 1)
    parent = np.where(parent >= n, node ^ bit, parent)
    parent[0] = NONE
    if not is_mirrored:
        return parent
    if n % 2 == 0:
        back = n - 1 - node
        return np.where(parent[back] < 0, NONE, n - 1 - parent[back])
    before = (node - 1) % n
    return np.where(parent[before] < 0, NONE, (parent[before] + 1) % n)
