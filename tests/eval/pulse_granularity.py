"""Figure 9 and §6.1: the same congestion measured by epochs of 32 µs, 64 µs and 1 ms.

Coarser epochs fold the pauses that a straggler makes others keep into those others' actual time: at 1 ms they look like the
straggler. Compared are flows between two normal ranks of the victims' data-parallel group, and the victims' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.tables import TRAFFIC_FINISHED
from nccl_instrument.wire import Rows, decode_batch
from rca.flows.granularity import hidden_above, slice_ns
from tests.eval.pulse_cases import SETTINGS

EPOCHS_US: Final = (32, 64, 1000)
LEFT: Final = 0.5
SECONDS, FAULT_S = 4.0, 1.0
Numbers = dict[str, float]


def inflation(seed: int) -> dict[str, Numbers]:
    """Epoch in µs → ms of an op, actual time of normal and of slow flows, and what normal ones took before the fault."""
    return {str(epoch_us): _measured(seed, epoch_us) for epoch_us in EPOCHS_US}


def _measured(seed: int, epoch_us: int) -> Numbers:
    setting = SETTINGS["GPT-2 70B"]
    layout, physics = setting.layout, replace(setting.physics, epoch_us=epoch_us, traffic_every=3)
    fault = make_fault("background_traffic", layout, FAULT_S, None, 17, 1 - LEFT, seed)
    job = SimulatedJob(JobSettings(layout, physics, Scenario((fault,), seed), records_stages=False))
    try:
        rows = np.concatenate(
            [decode_batch(one.encoded).rows("traffic") for cut in job.batches(SECONDS) for one in cut]
        )
    finally:
        job.close()
    number = next(
        at for at, name in enumerate(layout.names) if name.startswith("dp") and fault.ranks[0] in layout.members_of(at)
    )
    members = layout.members_of(number)
    rows = rows[(rows["comm_id"] == job.agents.roster.comm_ids[number]) & (rows["flags"] & TRAFFIC_FINISHED != 0)]
    is_slow = np.isin(members[rows["comm_rank"]], fault.ranks) | np.isin(members[rows["peer"]], fault.ranks)
    span = rows["end_ns"] - rows["start_ns"]
    late = _since(rows, job, layout.node_of[members[rows["comm_rank"]]])
    n_channels, rate = physics.n_channels, float(physics.link_bytes_per_s)
    return {
        "op_ms": _ms(span[late]), "normal_ms": _ms(rows["actual_ns"][late & ~is_slow]),
        "slow_ms": _ms(rows["actual_ns"][late & is_slow]), "before_ms": _ms(rows["actual_ns"][~late]),
        "hidden_above": round(hidden_above(epoch_us * 1000, slice_ns(2**20, n_channels, rate)), 2),
    }  # fmt: skip


def _since(
    rows: Rows, job: SimulatedJob, nodes: np.ndarray[Any, np.dtype[np.int32]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(n,) ops that began after the fault had."""
    began = job.agents.roster.clocks.mono_ns(nodes.astype(np.int64), np.full(len(nodes), int((FAULT_S + 0.2) * 1e9)))
    after: np.ndarray[Any, np.dtype[np.bool_]] = rows["start_ns"] > began
    return after


def _ms(ns: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    return round(float(np.median(ns)) / 1e6, 2) if len(ns) else float("nan")


def told_inflation(found: Mapping[str, Numbers]) -> str:
    """A line per epoch."""
    lines = ["actual time of flows at half of a path's rate (ms):  epoch  op  slow  normal  before the fault"]
    for epoch, one in found.items():
        lines.append(
            f"{epoch + ' µs':>58}  {one['op_ms']:g}  {one['slow_ms']:g}  {one['normal_ms']:g}  {one['before_ms']:g}"
            f"   gaps hidden above {one['hidden_above']:.0%} of the rate"
        )
    return "\n".join(lines)
