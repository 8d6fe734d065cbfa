"""Sizes and speeds of the modelled job, and the text file that hands them to the ranks.

Links are the bottleneck, never the machine: a step takes 100 to 200 ms, nearly all of it waiting for links and
modelled engines, so that a fault of 20 % shows above the noise on two busy cores. Copies run a little faster than the
link, as PCIe 5 does against 400 Gb/s: were they much faster, slow copies would stay invisible.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import KINDS, Layout

NS_PER_MS = 1_000_000
KIB = 1024
NODE_COPY_RATIO = 200  # inside a node: so fast that a slice is not waited for


class PhysicsError(ValueError):
    """A size or speed that the engine cannot run; the message is one sentence."""


@dataclass(frozen=True)
class Physics:
    link_mbit: float = 200.0
    copy_to_link_ratio: float = 1.6
    n_channels: int = 2
    n_microbatches: int = 2
    n_buckets: int = 2
    forward_ms: float = 6.0
    backward_ms: float = 12.0
    optimizer_ms: float = 4.0
    jitter: float = 0.005
    tp_kib: int = 256
    pp_kib: int = 256
    dp_kib: int = 1024
    world_kib: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.n_channels <= 4:
            raise PhysicsError("--channels must lie between 1 and 4.")
        if not 1 <= self.link_mbit <= 10_000:
            raise PhysicsError("--link-mbit must lie between 1 and 10000.")
        if not 0 <= self.jitter < 0.5:
            raise PhysicsError("--jitter must lie between 0 and 0.5 (a share of each compute time).")
        if max(self.tp_kib, self.pp_kib, self.dp_kib, self.world_kib) > 16 * KIB:
            raise PhysicsError("Ops of more than 16 MiB are more than the engine's buffers hold.")

    @property
    def link_bytes_per_s(self) -> int:
        return int(self.link_mbit * 1e6 / 8)

    def lines(self) -> list[str]:
        copy = int(self.link_bytes_per_s * self.copy_to_link_ratio)
        return [
            f"n_channels {self.n_channels}",
            f"n_microbatches {self.n_microbatches}",
            f"n_buckets {self.n_buckets}",
            f"forward_ns {int(self.forward_ms * NS_PER_MS)}",
            f"backward_ns {int(self.backward_ms * NS_PER_MS)}",
            f"optimizer_ns {int(self.optimizer_ms * NS_PER_MS)}",
            f"jitter_ppm {int(self.jitter * 1e6)}",
            f"tp_bytes {self.tp_kib * KIB}",
            f"pp_bytes {self.pp_kib * KIB}",
            f"dp_bytes {self.dp_kib * KIB}",
            f"world_bytes {self.world_kib * KIB}",
            f"copy_bytes_per_s {copy}",
            f"node_copy_bytes_per_s {copy * NODE_COPY_RATIO}",
        ]


def job_file(
    name: str,
    seed: int,
    transport: str,
    layout: Layout,
    physics: Physics,
    places: list[tuple[str, str]],
    is_paced: bool,
) -> str:
    """The engine's job.conf; places[rank] = (address, device or "-")."""
    lines = [f"job {name}", f"seed {seed}", f"n_ranks {layout.n_ranks}", f"n_nics {len(layout.nics)}"]
    lines += [f"is_paced {int(is_paced)}", f"is_ib {int(transport == 'IB')}", *physics.lines()]
    for rank, (address, device) in enumerate(places):
        lines.append(f"rank {rank} {layout.node_of(rank)} {layout.nic_of(rank).number} {address} {device}")
    for comm in layout.communicators:
        members = " ".join(map(str, comm.members))
        lines.append(
            f"comm {KINDS.index(comm.kind)} {comm.name} {comm.hash_in(name, seed):x} {len(comm.members)} {members}"
        )
    return "\n".join(lines) + "\n"
