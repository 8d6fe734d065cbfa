"""Which op records the roll-ups have not counted yet: an agent that starts again sends some it sent before.

Its new life reads the rings of the trainers once more, and its batches have a boot id and numbers of their own, so the
store rightly takes them for new. Ops of one communicator, rank, kind and peer are numbered upwards, so the highest
number counted when a new boot appears tells what that boot repeats. Records that replace an earlier one of the same op
(OP_REOPENED) were counted with that one. Numpy only; the memory is bounded, and what it had to forget is counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import OP_REOPENED
from nccl_instrument.wire import Rows

SERIES_MAX: Final = 1_000_000
"""Remembered of all nodes together: 10,000 ranks with a hundred communicators, kinds and peers each."""

Keys = npt.NDArray[np.uint64]


def _no_series() -> Keys:
    return np.zeros(0, np.uint64)


@dataclass(slots=True)
class _Node:
    """Of one node in one attempt. keys: sorted. highest: of each series. floor: what `highest` was when boot_pk came."""

    boot_pk: int
    keys: Keys = field(default_factory=_no_series)
    highest: Keys = field(default_factory=_no_series)
    floor: Keys = field(default_factory=_no_series)


class CountedOps:
    """What one ingest process has counted."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[int, _Node] = OrderedDict()
        self._n_series = 0
        self.series_forgotten = 0
        self.ops_repeated = 0

    def take_new(self, node_id: int, boot_pk: int, ops: Rows) -> Rows:
        """The rows not counted before, which count from now on. node_id is a node of one attempt.

        Boots are numbered as they appear: a late batch of an earlier boot is taken as it is.
        """
        new = ops[(ops["flags"] & OP_REOPENED) == 0]
        node = self._nodes.setdefault(node_id, _Node(boot_pk))
        self._nodes.move_to_end(node_id)
        if len(new) and boot_pk >= node.boot_pk:
            if boot_pk > node.boot_pk:
                node.boot_pk, node.floor = boot_pk, node.highest.copy()
            new = self._above_floor(node, new)
        self.ops_repeated += len(ops) - len(new)
        self._forget()
        return new

    def _above_floor(self, node: _Node, ops: Rows) -> Rows:
        series = _series_of(ops)
        keys = np.unique(series)
        missing = np.setdiff1d(keys, node.keys, assume_unique=True)
        if len(missing):
            self._n_series += len(missing)
            at = np.searchsorted(node.keys, missing)
            node.keys = np.insert(node.keys, at, missing)
            node.highest, node.floor = np.insert(node.highest, at, 0), np.insert(node.floor, at, 0)
        place = np.searchsorted(node.keys, series)
        np.maximum.at(node.highest, place, ops["op"])
        return ops[ops["op"] > node.floor[place]] if node.floor.any() else ops

    def _forget(self) -> None:
        """The nodes not heard from for longest go first."""
        while self._n_series > SERIES_MAX and self._nodes:
            _, node = self._nodes.popitem(last=False)
            self._n_series -= len(node.keys)
            self.series_forgotten += len(node.keys)


def _series_of(ops: Rows) -> Keys:
    """(n,) one number for (comm_id, comm_rank, func, peer)."""
    place = ops["comm_rank"].astype(np.uint64) << np.uint64(32) | ops["peer"].astype(np.uint32)
    mixed = (place ^ ops["func"].astype(np.uint64) << np.uint64(56)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= ops["comm_id"] * np.uint64(0xC2B2AE3D27D4EB4F)
    return (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
