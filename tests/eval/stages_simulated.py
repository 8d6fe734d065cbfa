"""Rows of the discrete-event simulator, whose recorder and plugin report side by side: which rank, by stages alone and fused.

A rank's data comes late, or its GPU is slow; half of the jobs have two pipeline stages, so that each role has a frontier of its
own. Stages alone name a rank where one leads clearly; with op traces also where all ranks are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ingest.window import STAGE_TABLES, TRACE_TABLES, Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.stage_schema import DATA
from rca.frontier.moved import is_normal
from rca.settings import DEFAULT
from tests.eval.stages_rows import Judged, judged_windows
from tests.nccl_instrument.simulate.jobs import run
from tests.replay import replayed

LAYOUTS: Final = (Layout(tp=1, pp=1, dp=8, ranks_per_node=2), Layout())
FAULTS: Final = ("data_slow", "gpu_slow")
ONSET_S, SECONDS = 60.0, 150.0
"""So that the shipped windows hold two as usual before the fault, and one at least under it."""


def simulated_rows(seed: int, seeds: int, tell: Callable[[float, str], None]) -> list[dict[str, Any]]:
    """Every fault on every layout so many times."""
    found, n = list[dict[str, Any]](), seeds * len(LAYOUTS) * len(FAULTS)
    for number in range(seeds):
        for layout in LAYOUTS:
            for fault in FAULTS:
                victim = int(np.random.default_rng([seed, number, len(found)]).integers(8))
                found.append(_row(layout, fault, victim, seed + number))
                tell(len(found) / n, f"simulated {fault}, pp {layout.pp}")
    return found


def _row(layout: Layout, name: str, victim: int, seed: int) -> dict[str, Any]:
    sent = run(layout, make_fault(name, layout, ONSET_S, victim=victim, seed=seed), seconds=SECONDS, seed=seed)
    batches = ((one.arrives_ns, one.encoded) for one in sent)
    window = replayed(batches, keep_s=SECONDS + 5).window(SECONDS, tables=(*TRACE_TABLES, *STAGE_TABLES))
    found = _newest(window)
    leaders = [one.packet.report.leader for one in found if one.moved.verdict == "routed"]
    fused = [one.packet.report.leader if one.packet.report.leader is not None else one.last for one in found]
    is_data = any(one.packet.report.stage == DATA and one.packet.report.leader == victim for one in found)
    return {
        "fault": name, "pp": layout.pp, "victim": victim, "moved": bool(found),
        "stage_rank": victim in leaders and set(leaders) <= {victim, None},
        "fused_rank": victim in fused and set(fused) <= {victim, None},
        "stage": is_data if name == "data_slow" else None,
    }  # fmt: skip


def _newest(window: Window) -> list[Judged]:
    """Of every role the newest window that moved."""
    newest = {one.packet.role: one for one in judged_windows(window, DEFAULT)}
    return [one for one in newest.values() if not is_normal(one.moved)]


def simulated_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Keys of the suite's last line."""
    data = [row for row in rows if row["fault"] == "data_slow"]
    return {
        "simulated_rows": len(rows), "simulated_stage_rank": sum(row["stage_rank"] for row in rows),
        "simulated_fused_rank": sum(row["fused_rank"] for row in rows), "simulated_data_rows": len(data),
        "simulated_data_stage": sum(bool(row["stage"]) for row in data),
    }  # fmt: skip
