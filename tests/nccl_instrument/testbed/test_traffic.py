"""Traffic of a job that really runs: what the agents cut out of epochs is what the proxy threads did, and a slow NIC shows in it.

The truth is the engine's own log of what it handed to its links and when that was acknowledged (sent.py): neither plugin nor
agent has a part in it. Every op that was sent counts, without a row as missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument.agent.traffic.sampling import EPOCH_NS
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.tables import ALGOS, FUNCS, OP_P2P, PROTOS, TRAFFIC_FINISHED, TRAFFIC_P2P, empty_rows
from nccl_instrument.wire import Rows
from tests.nccl_instrument.simulate.live import LiveJob, live_job
from tests.nccl_instrument.testbed.jobs import wait_until
from tests.nccl_instrument.testbed.sent import Recorded, cut_by_formulas, judged, key_of, of_told, ops_of, read_sent

FEW_OPS = 100
MANY_ROWS = 500


def rows_of(job: LiveJob, table: str, first: int = 0) -> Rows:
    return np.concatenate([empty_rows(table), *(batch.rows(table) for batch in job.everything()[first:])])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("live")
    with live_job(folder / "run", **logged(folder)) as job:
        wait_until(lambda: len(rows_of(job, "traffic")) > MANY_ROWS, "no traffic came", 50)
        traffic, ops = rows_of(job, "traffic"), rows_of(job, "op")
        yield Recorded(traffic, ops, read_sent(folder / "sent"))


def test_every_op_is_cut_where_and_as_the_engine_sent_it(recorded: Recorded) -> None:
    told = judged(recorded.traffic, ops_of(recorded.sent))
    assert told.wrong == ()
    assert told.ops > FEW_OPS
    finished = recorded.traffic[(recorded.traffic["flags"] & TRAFFIC_FINISHED) != 0]
    assert {0, TRAFFIC_P2P} == set((finished["flags"] & TRAFFIC_P2P).tolist())
    check_volumes(finished, recorded.ops)


def test_the_formulas_volumes_alone_cut_what_the_engine_sent_into_its_ops(recorded: Recorded) -> None:
    """Algorithm 1 on bytes by epoch that no op is written on, as a network card counts them; volumes are those of the calls."""
    sent = of_told(recorded.sent, recorded.ops)
    told = judged(cut_by_formulas(sent, recorded.ops, EPOCH_NS), ops_of(sent))
    assert told.wrong == ()
    assert told.ops > FEW_OPS


def test_a_row_that_is_epochs_off_invented_or_missing_is_noticed(recorded: Recorded) -> None:
    """The judge's own test, on rows as they came."""
    sent = ops_of(recorded.sent)
    rows = recorded.traffic[(recorded.traffic["flags"] & TRAFFIC_FINISHED) != 0]
    middle = len(rows) // 2
    one = sent[key_of(rows[middle])]
    vague = max(before - after for after, before in (one.began, one.ended))  # the thread was not scheduled for so long
    for name, by in (
        ("start_ns", -vague - 3 * EPOCH_NS), ("end_ns", vague + 3 * EPOCH_NS), ("n_bytes", one.n_bytes), ("op", 10**6)
    ):  # fmt: skip
        changed = rows.copy()
        changed[name][middle] += by
        assert judged(changed, sent).wrong, name
    assert judged(np.delete(rows, middle), sent).wrong


def logged(folder: Path) -> dict[str, Any]:
    """Every iteration is measured, and the engine keeps a log of what it sends."""
    (folder / "sent").mkdir()
    return {"rows_per_s": 10**6, "DIOGENES_TESTBED_SENT": str(folder / "sent")}


def check_volumes(rows: Rows, ops: Rows) -> None:
    """What a rank sent in an op, all flows together, is what the paper's formula says of the call (Appendix B)."""
    sent: dict[tuple[int, int, int, bool], dict[int, int]] = {}
    channels: dict[tuple[int, int, int, bool], dict[int, int]] = {}
    for row in rows:
        op = (int(row["comm_id"]), int(row["comm_rank"]), int(row["op"]), bool(row["flags"] & TRAFFIC_P2P))
        peer = int(row["peer"])
        sent.setdefault(op, {})[peer] = sent.get(op, {}).get(peer, 0) + int(row["n_bytes"])
        channels.setdefault(op, {})[peer] = channels.get(op, {}).get(peer, 0) + 1
    sizes = {
        comm_id: 1 + max(int(op["comm_rank"]) for op in ops if op["comm_id"] == comm_id)
        for comm_id in set(ops["comm_id"].tolist())
    }
    n_checked = 0
    for op in ops[(ops["flags"] & OP_P2P) == 0]:
        key = (int(op["comm_id"]), int(op["comm_rank"]), int(op["op"]), False)
        if key not in sent or op["bytes"] < 2**17:
            continue
        names = FUNCS[op["func"]], ALGOS[op["algo"]], PROTOS[op["proto"]]
        shape = OpShape(
            names[0], int(op["bytes"]), sizes[key[0]], names[1], names[2], comm_rank=key[1], root=int(op["peer"])
        )
        expected = moved_to(shape, channels[key], int(op["channels"]))
        if len(channels[key]) == len(expected) and sum(channels[key].values()) == op["channels"]:
            assert sum(sent[key].values()) == pytest.approx(sum(expected.values()), rel=0.01)
            n_checked += 1
    assert n_checked > 10


def medians(values: Rows, of: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    return {pair: float(np.median(values[[one == pair for one in of]].astype(np.float64))) for pair in sorted(set(of))}


def test_a_limited_nic_shows_in_the_actual_time_of_its_flows_and_not_in_how_long_its_rank_takes(tmp_path: Path) -> None:
    """What timing of ops alone cannot tell: every rank of the group is as slow as its slowest link."""
    with live_job(tmp_path / "run", "--tp", "1", "--pp", "1", "--dp", "4", "--ranks-per-node", "1") as job:
        job.inject("nic_limit", rank=2, amount=0.3)
        job.running.trains()
        first = len(job.arrived)
        wait_until(lambda: len(gathers(job, first)[0]) > 40, "no traffic of the slow job came", 50)
        traffic, ops = gathers(job, first)
    pairs = list(zip(traffic["comm_rank"].tolist(), traffic["peer"].tolist(), strict=True))
    actual = medians(traffic["actual_ns"], pairs)
    slow = {pair for pair, took in actual.items() if 2 in pair}
    assert slow and slow != set(actual)
    assert min(actual[pair] for pair in slow) > 1.4 * max(took for pair, took in actual.items() if pair not in slow)
    spans = ops["last_transfer_ns"] - ops["first_transfer_ns"]
    took = {rank: float(np.median(spans[ops["comm_rank"] == rank])) for rank in range(4)}
    assert took[2] < 1.1 * max(took[0], took[1], took[3])  # how long ops take names nobody
    assert min(took.values()) > 0.5 * max(took.values())


def gathers(job: LiveJob, first: int) -> tuple[Rows, Rows]:
    """Rows of traffic and op of the AllGathers that both speak of, since that batch: nothing overlaps with these."""
    traffic, ops = rows_of(job, "traffic", first), rows_of(job, "op", first)
    wanted = ops[(ops["func"] == FUNCS.index("AllGather")) & (ops["bytes"] > 2**17)]
    wanted = wanted[np.isin(wanted["op"], traffic["op"][np.isin(traffic["comm_id"], wanted["comm_id"])])]
    is_of = np.isin(traffic["comm_id"], wanted["comm_id"]) & np.isin(traffic["op"], wanted["op"])
    return traffic[is_of & ((traffic["flags"] & TRAFFIC_P2P) == 0)], wanted
