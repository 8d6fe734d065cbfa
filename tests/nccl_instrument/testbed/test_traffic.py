"""Traffic of a job that really runs: what the agents cut out of epochs is what the proxy threads did, and a slow NIC shows in it.

The truth is read from the plugin's rings beside the agents: when the first chunk of an op on a flow was posted, when the
last one was through, and their bytes. The agents see epochs of bytes alone when they cut, and volumes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.tables import (
    ALGOS,
    FUNCS,
    OP_P2P,
    PROTOS,
    TRAFFIC_CUT,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
    empty_rows,
)
from nccl_instrument.wire import Rows
from tests.nccl_instrument.simulate.live import LiveJob, live_job
from tests.nccl_instrument.testbed.jobs import wait_until

Flow = tuple[int, int, int, int, int, bool]
KEY = ("comm_id", "comm_rank", "op", "channel", "peer")
FEW_OPS = 100


def rows_of(job: LiveJob, table: str, first: int = 0) -> Rows:
    return np.concatenate([empty_rows(table), *(batch.rows(table) for batch in job.everything()[first:])])


def truth(job: LiveJob) -> dict[Flow, tuple[int, int, int]]:
    """Flow and op → first posted, last through, bytes, of all chunks that the rings still hold."""
    found: dict[Flow, tuple[int, int, int]] = {}
    for node in job.running.manifest()["nodes"]:
        for path in Path(node["segment_dir"]).glob("diogenes.*"):
            segment = Segment.open(path)
            ring = segment.transfer_ring(0)
            assert ring is not None
            for chunk in ring.drain()[0]:
                key = (*(int(chunk[name]) for name in KEY), bool(chunk["is_p2p"]))
                first, last, n_bytes = found.get(key, (2**62, 0, 0))  # type: ignore[arg-type]
                posted, done = int(chunk["posted_ns"]), int(chunk["done_ns"])
                found[key] = min(first, posted), max(last, done), n_bytes + int(chunk["bytes"])  # type: ignore[index]
            del ring
            segment.close()
    return found


def key_of(row: np.void) -> Flow:
    return (*(int(row[name]) for name in KEY), bool(row["flags"] & TRAFFIC_P2P))  # type: ignore[return-value]


def test_every_op_is_cut_within_an_epoch_of_what_the_proxy_did_and_to_the_byte(tmp_path: Path) -> None:
    with live_job(tmp_path / "run") as job:
        wait_until(lambda: len(rows_of(job, "traffic")) > FEW_OPS, "no traffic came", 50)
        known = truth(job)
        rows, ops = rows_of(job, "traffic"), rows_of(job, "op")
    finished = rows[(rows["flags"] & TRAFFIC_FINISHED) != 0]
    assert len(finished) > FEW_OPS and not (finished["flags"] & TRAFFIC_INCOMPLETE).any()
    assert any(row["flags"] & TRAFFIC_P2P for row in finished) and not all(
        row["flags"] & TRAFFIC_P2P for row in finished
    )
    for row in finished:
        first, last, n_bytes = known[key_of(row)]
        assert abs(int(row["start_ns"]) - first) < row["epoch_ns"]
        assert abs(int(row["end_ns"]) - last) < row["epoch_ns"]
        assert 0 < row["actual_ns"] <= row["end_ns"] - row["start_ns"]
        if not row["flags"] & TRAFFIC_CUT:
            assert row["n_bytes"] == n_bytes
    check_volumes(finished, ops)


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
    return {pair: float(np.median(values[[one == pair for one in of]])) for pair in sorted(set(of))}


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
