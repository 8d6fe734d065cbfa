"""A capture reduced in memory, for tests."""

from __future__ import annotations

import io
from collections import defaultdict
from typing import Any

import numpy as np

from nccl_instrument.captures.epochs import CELL, Reducer
from nccl_instrument.captures.files import Input
from nccl_instrument.captures.packets import packets_of
from nccl_instrument.captures.reader import batches
from nccl_instrument.captures.written import saved_flows

US = 1_000


class Reduced:
    """flows: as saved. cells: all of them."""

    def __init__(self, *captures: bytes, **settings: Any) -> None:
        taken = [np.zeros(0, CELL)]
        self.reducer = Reducer(taken.append, **settings)
        self.counts = self.reducer.counts
        for capture in captures:
            for batch in batches(Input(io.BytesIO(capture), self.counts)):
                self.reducer.add(packets_of(batch, self.counts))
        self.reducer.finish()
        self.flows, self.cells = saved_flows(self.reducer.flows), np.concatenate(taken)

    @property
    def by_epoch(self) -> dict[tuple[int, int], int]:
        """(queue pair, epoch) → bytes."""
        found: dict[tuple[int, int], int] = defaultdict(int)
        for cell in self.cells:
            found[int(self.flows[cell["flow"]]["qpn"]), int(cell["epoch"])] += int(cell["bytes"])
        return dict(found)

    @property
    def one(self) -> np.void:
        (flow,) = self.flows
        return flow
