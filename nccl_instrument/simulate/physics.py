"""Sizes and speeds of the modelled job. Two presets: `testbed`, to compare with the live one, and `cluster`.

Links are the bottleneck and copies run a little faster than they do, as PCIe 5 does against 400 Gb/s. A slot is larger
at cluster scale than NCCL's, so that a transfer takes tenths of a millisecond instead of tens of microseconds: what an
agent samples ten times a second looks the same, and 10,000 ranks have a hundred times fewer transfers to compute.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from nccl_instrument.simulate.layout import Layout

MS: Final = 1_000_000
KIB: Final = 1024
MIB: Final = 1024 * KIB
LARGE_RING: Final = 64
UNLIMITED: Final = 1_000_000
SCHEDULES: Final = ("1f1b", "gpipe", "full", "neighbours", "all_to_one", "one_to_all")
"""Training steps of two kinds; the others are a custom collective over and over, of the expert group (--ep), without compute."""


class PhysicsError(ValueError):
    """A size or speed that cannot be; the message is one sentence."""


@dataclass(frozen=True)
class Physics:
    """All that can be set about the machines and the model; times of compute are those of one microbatch."""

    link_mbit: float = 400_000.0
    copy_to_link_ratio: float = 1.6
    node_gbyte_per_s: float = 300.0
    latency_us: float = 10.0
    node_latency_us: float = 5.0
    flush_us: float = 0.0
    host_call_us: float = 20.0
    poll_us: float = 1.0
    step_gap_ms: float = 5.0
    slot_kib: int = 16 * KIB
    slices: int = 2
    n_channels: int = 2
    n_microbatches: int = 8
    n_layers: int = 2
    n_buckets: int = 2
    forward_ms: float = 60.0
    backward_ms: float = 120.0
    optimizer_ms: float = 30.0
    jitter: float = 0.005
    tp_kib: int = 64 * KIB
    pp_kib: int = 64 * KIB
    dp_kib: int = 4 * MIB
    ep_kib: int = 256 * KIB
    world_kib: int = 64
    moe_spread: float = 0.1
    overlap_compute: float = 0.0
    overlap_copy: float = 0.0
    ahead: int = 12
    schedule: str = "1f1b"
    dp_reduce: str = "sharded"
    tree_from: int = 64
    warmup_steps: int = 0
    warmup_factor: float = 3.0
    gpu_dies_with_process: bool = False
    credits_queue: bool = True
    wait_tick_ns: float = 4.0  # of what ports count as port_xmit_wait; 0: they do not
    wait_share: float = 0.001  # of the time a port's bytes take on the link: how long it waits, whoever takes them
    kernels: bool = False  # whether the plugin asks NCCL to report kernels (DIOGENES_KERNELS)
    traffic_rows: int = (
        0  # of `traffic` a second that the agent of a node may send (a real one: 150); 0: none is measured
    )
    epoch_us: int = 32
    slices_every: int = 0  # what left a NIC is recorded for comparison, in every so manieth step; 0: in none

    def __post_init__(self) -> None:
        if not 1 <= self.n_channels <= 8:
            raise PhysicsError("--channels must lie between 1 and 8.")
        if not 0 <= self.jitter < 0.5:
            raise PhysicsError("--jitter must lie between 0 and 0.5 (a share of each compute time).")
        if self.schedule not in SCHEDULES:
            raise PhysicsError(f"--schedule must be one of {', '.join(SCHEDULES)}.")
        if min(self.traffic_rows, self.slices_every) < 0 or not 8 <= self.epoch_us <= 1000:
            raise PhysicsError(
                "--traffic-rows and --slices-every must not be negative, --epoch-us lie between 8 and 1000."
            )
        if self.wait_tick_ns < 0 or not 0 <= self.wait_share < 1:
            raise PhysicsError("--wait-tick-ns must not be negative, --wait-share lie between 0 and 1.")
        if self.dp_reduce not in ("sharded", "ring", "tree"):
            raise PhysicsError("--dp-reduce must be sharded (ReduceScatter and AllGather), ring or tree (AllReduce).")
        if self.slices not in (1, 2):
            raise PhysicsError("--slices must be 1 or 2.")
        for name in ("link_mbit", "copy_to_link_ratio", "node_gbyte_per_s", "slot_kib", "n_microbatches", "n_buckets",
                     "n_layers", "ahead",
            "poll_us"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise PhysicsError(f"--{name.replace('n_', '').replace('_', '-')} must be more than 0.")

    @property
    def link_bytes_per_s(self) -> int:
        return int(self.link_mbit * 1e6 / 8)

    @property
    def slot_ns(self) -> int:
        """How long a full slot occupies the link."""
        return int(self.slot_kib * KIB * 1e9 / self.link_bytes_per_s)


TESTBED: Final = Physics(
    link_mbit=200.0, copy_to_link_ratio=1.6, node_gbyte_per_s=8.0, latency_us=400.0, node_latency_us=250.0,
    host_call_us=20.0,
    poll_us=5000.0, step_gap_ms=0.2, slot_kib=64, n_channels=2, n_microbatches=2, n_layers=1, n_buckets=2,
    forward_ms=6.0, backward_ms=12.0, optimizer_ms=4.0, tp_kib=256, pp_kib=256, dp_kib=1024, world_kib=64,
    ep_kib=512, ahead=UNLIMITED, schedule="gpipe", tree_from=UNLIMITED, gpu_dies_with_process=True,
)  # fmt: skip
CLUSTER: Final = Physics()


def cluster_physics(layout: Layout) -> Physics:
    """`cluster` with slots so large that a ring's chunk is one slice: transfers then grow with the ring, not with the
    bytes; small rings get at least 16 rounds of chunks."""
    part, slices = CLUSTER.dp_kib // CLUSTER.n_channels // max(layout.dp, 2), 1 if layout.dp >= LARGE_RING else 2
    slot = max(min(part // slices, CLUSTER.slot_kib), 256)
    return dataclasses.replace(
        CLUSTER, slot_kib=slot, slices=slices, n_microbatches=max(CLUSTER.n_microbatches, layout.pp)
    )
