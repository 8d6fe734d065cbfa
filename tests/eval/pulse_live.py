"""Whether ops of jobs that really run are cut as the engine sent them, and their algorithm told: the live part of `exact`.

Testbed jobs with the real plugin and the agents' own sweeps, healthy and with a slow NIC. The truth is the engine's log of what
it handed to its links (tests/nccl_instrument/testbed/sent.py). Twice: as the agents told it, whose volumes are the plugin's; and
cut out of the engine's bytes by epoch with the paper's volumes alone, as from a network card.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ingest.window import TRACE_TABLES, TRAFFIC_TABLES
from nccl_instrument.agent.traffic.sampling import EPOCH_NS
from nccl_instrument.flows.expected import Algorithm
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.tables import TRAFFIC_FINISHED, TRAFFIC_P2P, empty_rows
from nccl_instrument.wire import TraceBatch, decode_batch
from rca.flows.algorithms import algorithms_in
from tests.nccl_instrument.simulate.live import LiveJob, live_job
from tests.nccl_instrument.testbed.sent import Rows, cut_by_formulas, judged, of_told, ops_of, read_sent
from tests.replay import replayed

SECONDS: Final = 15.0
ROWS_PER_S: Final = 10**6  # every iteration
MANY: Final = 10**4  # seconds: all that the job did
JOBS: Final = (
    ((), ""), ((), "nic_limit"), (("--tp", "1", "--pp", "1", "--dp", "4", "--ranks-per-node", "1"), ""),
    (("--tp", "1", "--pp", "1", "--dp", "4", "--ranks-per-node", "1"), "nic_limit"), (("--transport", "Socket"), ""),
)  # fmt: skip
"""Words for the testbed, and what is injected after a third of the time."""


@dataclass(slots=True)
class Live:
    """Sums over jobs. by_formulas: ops cut with the paper's volumes alone, and of them exact. inferred: collectives of
    communicators on more than two nodes, and of how many the algorithm is told right: the testbed runs rings.
    """

    ops: int = 0
    exact: int = 0
    flows: int = 0
    exact_flows: int = 0
    by_formulas: int = 0
    by_formulas_exact: int = 0
    inferred: int = 0
    right: int = 0

    def add(self, other: Live) -> Live:
        return Live(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def live_judged() -> Live:
    """All jobs, one after the other."""
    found, bar = Live(), Bar(len(JOBS), "live jobs")
    for done, (words, fault) in enumerate(JOBS):
        bar.tell(done, f"{' '.join(words) or '2 × 2 × 2'} {fault}")
        found = found.add(_judged(words, fault))
    bar.end()
    print(f"live: {found}", flush=True)
    return found


def _judged(words: tuple[str, ...], fault: str) -> Live:
    with tempfile.TemporaryDirectory() as folder:
        sent = Path(folder) / "sent"
        sent.mkdir()
        with live_job(Path(folder) / "run", *words, rows_per_s=ROWS_PER_S, DIOGENES_TESTBED_SENT=str(sent)) as job:
            time.sleep(SECONDS / 3)
            if fault:
                job.inject(fault, rank=2, amount=0.3)
            time.sleep(2 * SECONDS / 3)
            arrived = list(job.arrived)
            return judged_batches(arrived, read_sent(sent), job)


def judged_batches(arrived: list[tuple[int, bytes]], sent: Rows, job: LiveJob) -> Live:
    """arrived: as LiveJob has them; sent: read later than they came."""
    batches = [decode_batch(encoded) for _, encoded in arrived]
    traffic, ops = _rows(batches, "traffic"), _rows(batches, "op")
    told, mine = judged(traffic, ops_of(sent)), of_told(sent, ops)
    cut = judged(cut_by_formulas(mine, ops, EPOCH_NS), ops_of(mine))
    for sentence in (*told.wrong[:3], *cut.wrong[:3]):
        print(sentence, flush=True)
    inferred, right = _inferred(arrived, traffic, job)
    return Live(told.ops, told.exact, told.flows, told.exact_flows, cut.ops, cut.exact, inferred, right)


def _rows(batches: list[TraceBatch], table: str) -> Rows:
    return np.concatenate([empty_rows(table), *(batch.rows(table) for batch in batches)])


def _inferred(arrived: list[tuple[int, bytes]], traffic: Rows, job: LiveJob) -> tuple[int, int]:
    window = replayed(arrived).window(MANY, tables=(*TRACE_TABLES, *TRAFFIC_TABLES))
    said = {(one.comm_id, one.func): one.inferred for one in algorithms_in(window)}
    node_of = {rank["rank"]: node["name"] for node in job.running.manifest()["nodes"] for rank in node["ranks"]}
    wide = {
        int(one["hash"]) for one in job.running.manifest()["communicators"] if len({node_of[rank] for rank in one["ranks"]}) > 2
    }  # fmt: skip
    ops = window.rows("op")
    func_of = {(int(op["comm_id"]), int(op["op"])): int(op["func"]) for op in ops}
    finished = traffic[((traffic["flags"] & TRAFFIC_FINISHED) != 0) & ((traffic["flags"] & TRAFFIC_P2P) == 0)]
    keys = {(int(row["comm_id"]), int(row["op"])) for row in finished}
    known = {key for key in keys if key[0] in wide and key in func_of}
    right = sum(said.get((key[0], func_of[key])) is Algorithm.RING for key in known)
    return len(known), right
