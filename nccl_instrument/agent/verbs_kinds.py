"""How NCCL may run an op of which only bytes and call are seen: algorithm and protocol, told by the volume (Pulse §5.1).

NCCL chooses both by function and size, so ops that are alike in these, a kind, are run alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_instrument.flows.expected import Algorithm, OpShape, moved_to
from nccl_instrument.flows.segmentation import DELTA_NS, SLACK
from nccl_instrument.tables import FUNCS

SURPLUS: Final = 1.1
"""Headers and resent packets come on top of an op's volume; a tenth more is another volume."""
SURPLUS_BYTES: Final = 4_096
BEYOND_ALL_RANKS: Final = 2**20

Ints = npt.NDArray[np.int64]
Kind = tuple[int, int]
"""Function and bytes of a call."""


class Choice(NamedTuple):
    """How NCCL runs a kind of op."""

    algorithm: Algorithm
    proto: str


CHOICES: Final = tuple(
    Choice(algorithm, proto) for algorithm in (Algorithm.RING, Algorithm.TREE) for proto in ("SIMPLE", "LL128", "LL")
)


@dataclass(frozen=True, slots=True)
class Wired:
    """A communicator at one rank. connections: destination → how many lead there; n_channels: that were seen to carry bytes."""

    n_ranks: int
    comm_rank: int
    connections: Mapping[bytes, int]
    n_channels: int

    def volumes(self, row: np.void, choice: Choice) -> dict[bytes, float]:
        """Destination → bytes of the call in this OP row; empty where the algorithm has no such op."""
        if choice.algorithm is Algorithm.TREE and FUNCS[row["func"]] != "AllReduce":
            return {}
        shape = OpShape(
            FUNCS[row["func"]], int(row["bytes"]), self.n_ranks, proto=choice.proto, comm_rank=self.comm_rank,
            root=int(row["peer"]),
        )  # fmt: skip
        # Places stand for ranks that are not known: beyond all ranks, so that none is taken for the root.
        places = {BEYOND_ALL_RANKS + place: destination for place, destination in enumerate(self.connections)}
        peers = {place: self.connections[destination] for place, destination in places.items()}
        moved = moved_to(shape, peers, self.n_channels, choice.algorithm)
        return {places[place]: volume for place, volume in moved.items()}

    def fitting(self, row: np.void, moved: Mapping[bytes, int]) -> Choice | None:
        """By which choice the op would move so much to these destinations; of several the one that moves most."""
        found: list[tuple[float, Choice]] = []
        for choice in CHOICES:
            volumes = self.volumes(row, choice)
            wanted = [(volumes.get(destination, 0.0), n_bytes) for destination, n_bytes in moved.items()]
            if all(0 < volume * (1 - SLACK) <= n_bytes <= most(volume) for volume, n_bytes in wanted):
                found.append((sum(volume for volume, _ in wanted), choice))
        return max(found, key=lambda one: one[0])[1] if found else None


def kind_of(row: np.void) -> Kind:
    """Of the call in an OP row."""
    return int(row["func"]), int(row["bytes"])


def bursts(epochs: Ints, n_bytes: Ints, epoch_ns: int, now_ns: int = 2**62) -> list[int]:
    """Bytes between silences of δ; the last ones only where δ has passed since."""
    if not len(epochs):
        return []
    gaps = np.flatnonzero((np.diff(epochs) - 1) * epoch_ns >= DELTA_NS) + 1
    found: list[int] = np.add.reduceat(n_bytes, np.concatenate([[0], gaps])).tolist()
    is_over = now_ns - (int(epochs[-1]) + 1) * epoch_ns >= DELTA_NS
    return found if is_over else found[:-1]


def most(volume: float) -> float:
    """Beyond it, bytes are not those of an op of this volume."""
    return volume * SURPLUS + SURPLUS_BYTES
