"""Figure 9 and §6.1: the same congestion measured by epochs of 32 µs, 64 µs and 1 ms.

Coarser epochs fold the pauses that a straggler makes others keep into those others' actual time: at 1 ms they look like the
straggler. Compared are flows between two normal ranks of the victims' data-parallel group, and the victims' own. Victims and
severities are drawn; a case is as in Figure 9 when what normal flows take grows with the epoch and at 1 ms is the straggler's,
which is the longest at every epoch and the same at all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.tables import TRAFFIC_FINISHED
from nccl_instrument.wire import Rows, decode_batch
from rca.flows.granularity import hidden_above, slice_ns
from tests.eval.pulse_cases import PATH_RATES, SETTINGS

EPOCHS_US: Final = (32, 64, 1000)
SETTING: Final = "GPT-2 70B"
SECONDS, FAULT_S = 5.0, 2.0
ROWS_PER_S: Final = 1_000  # of a node: several iterations a second
LIKE: Final = 0.1  # times are the same that differ by less
Numbers = dict[str, float]
Row = dict[str, Any]


def inflation(seed: int, n: int) -> Row:
    """{"cases", "as_figure_9", "seen": of each case its victim, the share that is left, and its numbers by epoch}."""
    made, seen = random.Random(f"{seed}/granularity"), list[Row]()
    for _ in range(n):
        victim, left = made.randrange(SETTINGS[SETTING].layout.n_ranks), made.choice(PATH_RATES)
        epochs = {str(epoch_us): _measured(seed, epoch_us, victim, left) for epoch_us in EPOCHS_US}
        seen.append({"victim": victim, "left": left, "as_figure_9": is_as_figure_9(epochs), "epochs": epochs})
    return {"cases": n, "as_figure_9": sum(one["as_figure_9"] for one in seen), "seen": seen}


def is_as_figure_9(epochs: Mapping[str, Numbers]) -> bool:
    """Of numbers by epoch, the finest first."""
    slow, normal = ([one[name] for one in epochs.values()] for name in ("slow_ms", "normal_ms"))
    is_same = max(slow) <= (1 + LIKE) * min(slow)
    is_longest = all(a >= (1 - LIKE) * b for a, b in zip(slow, normal, strict=True))
    return is_same and is_longest and normal[0] < normal[1] < normal[2] and normal[2] >= (1 - LIKE) * slow[2]


def _measured(seed: int, epoch_us: int, victim: int, left: float) -> Numbers:
    setting = SETTINGS[SETTING]
    layout, physics = setting.layout, replace(setting.physics, epoch_us=epoch_us, traffic_rows=ROWS_PER_S)
    fault = make_fault("background_traffic", layout, FAULT_S, None, victim, 1 - left, seed)
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
    nodes = layout.node_of[members[rows["comm_rank"]]]
    late, early = _since(rows, job, nodes, FAULT_S + 0.2), ~_since(rows, job, nodes, FAULT_S - 0.1)
    n_channels, rate = physics.n_channels, float(physics.link_bytes_per_s)
    return {
        "op_ms": _ms(span[late]), "normal_ms": _ms(rows["actual_ns"][late & ~is_slow]),
        "slow_ms": _ms(rows["actual_ns"][late & is_slow]), "before_ms": _ms(rows["actual_ns"][early]),
        "hidden_above": round(hidden_above(epoch_us * 1000, slice_ns(2**20, n_channels, rate)), 2),
    }  # fmt: skip


def _since(
    rows: Rows, job: SimulatedJob, nodes: np.ndarray[Any, np.dtype[np.int32]], at_s: float
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(n,) ops that began later."""
    at = job.agents.roster.clocks.mono_ns(nodes.astype(np.int64), np.full(len(nodes), int(at_s * 1e9)))
    after: np.ndarray[Any, np.dtype[np.bool_]] = rows["start_ns"] > at
    return after


def _ms(ns: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    return round(float(np.median(ns)) / 1e6, 2) if len(ns) else float("nan")


def told_inflation(found: Row) -> str:
    """A line per case and epoch."""
    lines = [f"Figure 9: {found['as_figure_9']} of {found['cases']}; actual times in ms:"]
    for case in found["seen"]:
        lines.append(f"  rank {case['victim']}, {case['left']:.0%} left: as in Figure 9: {case['as_figure_9']}")
        for epoch, one in case["epochs"].items():
            lines.append(
                f"    {epoch:>5} µs: op {one['op_ms']:g}, slow {one['slow_ms']:g}, normal {one['normal_ms']:g}, before the fault "
                f"{one['before_ms']:g}; gaps hidden above {one['hidden_above']:.0%} of the rate"
            )
    return "\n".join(lines)
