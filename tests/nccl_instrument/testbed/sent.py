"""What the testbed's engine says that it sent: the log that dgrank keeps beside the profiler's callbacks (sent_log.h), as ops.

Nothing of it comes from the plugin or the agent, so it is what their rows are held against. A time is known as the two moments
of the proxy thread that it lies between; they are microseconds apart, more where the thread was not scheduled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.flows.association import PeerStream
from nccl_instrument.flows.epochs import cells_of
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.flows.segmentation import DELTA_NS
from nccl_instrument.tables import (
    ALGOS,
    FUNC_RECV,
    FUNCS,
    OP_P2P,
    PROTOS,
    TRAFFIC_CUT,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
)

Rows = npt.NDArray[np.void]
Flow = tuple[int, int, int, int, int, int]
"""Communicator, rank in it, op, whether a send, peer, channel."""
TIMES: Final = ("began_after_ns", "began_before_ns", "ended_after_ns", "ended_before_ns")
STREAM: Final = ("comm_id", "comm_rank", "is_p2p", "peer")
NAMES: Final = ("comm_id", "comm_rank", "number", "is_p2p", "peer", "channel")
ROW: Final = np.dtype([
    ("comm_id", "<u8"), ("number", "<u8"), ("ordinal", "<u8"), *((name, "<u8") for name in TIMES), ("bytes", "<u8"),
    ("comm_rank", "<i4"), ("peer", "<i4"), ("channel", "<i4"), ("is_p2p", "<i4"),
])  # fmt: skip
HEADERS: Final = 0.02
HEADER: Final = np.dtype([("n_rows", "<u8"), ("n_refused", "<u8")])
SENT: Final = np.dtype([*ROW.descr, ("rank", "<i4")])


@dataclass(frozen=True, slots=True)
class Moved:
    """What a flow of an op carried. began, ended: (after, before), ns; rank: global; ordinal: of the op, among all
    that the rank enqueued."""

    began: tuple[int, int]
    ended: tuple[int, int]
    n_bytes: int
    rank: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A live job: its agents' rows, and what its engine sent until later (SENT)."""

    traffic: Rows
    ops: Rows
    sent: Rows


@dataclass(frozen=True, slots=True)
class Judged:
    """ops: that ranks sent between their first and last that was told of, and rows of none; of them exact: with all flows."""

    ops: int
    exact: int
    flows: int
    exact_flows: int
    wrong: tuple[str, ...]


def read_sent(folder: Path) -> Rows:
    """(n,) SENT rows of all ranks, a slice each."""
    found = [np.zeros(0, SENT)]
    for path in sorted(folder.glob("rank*.sent")):
        bytes_ = path.read_bytes()
        n_rows, n_refused = (int(one) for one in np.frombuffer(bytes_, HEADER, 1)[0].tolist())
        assert not n_refused, f"{path.name} was full: {n_refused} slices are not in it"
        rows = np.frombuffer(bytes_, ROW, n_rows, HEADER.itemsize)
        mine = np.zeros(n_rows, SENT)
        for name in ROW.names or ():
            mine[name] = rows[name]
        mine["rank"] = int((re.search(r"\d+", path.name) or [0])[0])
        found.append(mine)
    return np.concatenate(found)


def ops_of(sent: Rows) -> dict[Flow, Moved]:
    """The flows of all ops."""
    keys = np.column_stack([sent[name].astype(np.uint64) for name in NAMES])
    found: dict[Flow, Moved] = {}
    if not len(sent):
        return found
    order = np.lexsort(keys.T)
    rows, keys = sent[order], keys[order]
    starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
    least = [np.minimum.reduceat(rows[name], starts).tolist() for name in TIMES[:2]]
    most = [np.maximum.reduceat(rows[name], starts).tolist() for name in TIMES[2:]]
    n_bytes = np.add.reduceat(rows["bytes"], starts).tolist()
    of = [rows[name][starts].tolist() for name in ("rank", "ordinal")]
    for at, begun, before, after, ended, size, rank, ordinal in zip(starts, *least, *most, n_bytes, *of, strict=True):
        key = tuple(int(rows[name][at]) for name in NAMES)
        found[key] = Moved((begun, before), (after, ended), size, rank, ordinal)  # type: ignore[index]
    return found


def key_of(row: np.void) -> Flow:
    is_p2p = int((int(row["flags"]) & TRAFFIC_P2P) != 0)
    return int(row["comm_id"]), int(row["comm_rank"]), int(row["op"]), is_p2p, int(row["peer"]), int(row["channel"])


def judged(rows: Rows, sent: dict[Flow, Moved]) -> Judged:
    """Rows of finished ops against the engine's: an op that should have a row and has none is wrong, as is an invented one."""
    told = {key_of(row): row for row in rows if row["flags"] & TRAFFIC_FINISHED}
    wanted, ops, wrong = _between(told.keys(), sent), dict[tuple[int, ...], bool](), list[str]()
    n_exact = 0
    for key in {*wanted, *told}:
        said = "no row" if key not in told else "invented" if key not in sent else unlike(told[key], sent[key])
        ops[key[:4]] = ops.get(key[:4], True) and not said
        n_exact += not said
        wrong += [f"{key}: {said}"] if said else []
    return Judged(len(ops), sum(ops.values()), len({*wanted, *told}), n_exact, tuple(wrong))


def _between(told: Iterable[Flow], sent: dict[Flow, Moved]) -> list[Flow]:
    """The flows of all ops that each rank enqueued from its first to its last that was told of: whole iterations are told."""
    bounds = dict[int, tuple[int, int]]()
    for moved in (sent[key] for key in told if key in sent):
        first, last = bounds.get(moved.rank, (moved.ordinal, moved.ordinal))
        bounds[moved.rank] = min(first, moved.ordinal), max(last, moved.ordinal)
    return [
        key for key, one in sent.items()
        if one.rank in bounds and bounds[one.rank][0] <= one.ordinal <= bounds[one.rank][1]
    ]  # fmt: skip


def unlike(row: np.void, moved: Moved) -> str:
    """What is more than an epoch off in a row, or off by a byte (of ops cut without a gap, a header's share); "" for nothing."""
    start_ns, end_ns, epoch_ns, n_bytes = (int(row[name]) for name in ("start_ns", "end_ns", "epoch_ns", "n_bytes"))
    if not moved.began[0] - epoch_ns < start_ns < moved.began[1] + epoch_ns:
        return f"begins at {start_ns}, not {moved.began}"
    if not moved.ended[0] - epoch_ns < end_ns < moved.ended[1] + epoch_ns:
        return f"ends at {end_ns}, not {moved.ended}"
    if not 0 < int(row["actual_ns"]) <= end_ns - start_ns:
        return f"{row['actual_ns']} ns with bytes of {end_ns - start_ns}"
    if row["flags"] & TRAFFIC_INCOMPLETE:
        return "marked as not whole"
    off = HEADERS * moved.n_bytes if row["flags"] & TRAFFIC_CUT else 0
    return "" if abs(n_bytes - moved.n_bytes) <= off else f"{n_bytes} bytes, not {moved.n_bytes}"


def of_told(sent: Rows, ops: Rows) -> Rows:
    """The slices of these ops, which are over: all that those sent."""
    is_p2p = (ops["flags"] & OP_P2P) != 0
    senders = ops[~is_p2p | (ops["func"] != FUNC_RECV)]
    known = {
        (int(op["comm_id"]), int(op["comm_rank"]), int(op["op"]), peer)
        for op, peer in zip(senders, np.where(senders["flags"] & OP_P2P, senders["peer"], -1).tolist(), strict=True)
    }
    keys = zip(
        sent["comm_id"].tolist(), sent["comm_rank"].tolist(), sent["number"].tolist(),
        np.where(sent["is_p2p"], sent["peer"], -1).tolist(), strict=True,
    )  # fmt: skip
    return sent[np.array([key in known for key in keys], np.bool_)]


def cut_by_formulas(sent: Rows, ops: Rows, epoch_ns: int) -> Rows:
    """Rows cut by Algorithm 1 out of the engine's bytes by epoch alone, as a network card would count them: which op a slice is
    of is not told, volumes are the paper's of the calls (Appendix B). ops: (n,) OP rows, in the order of their numbers without
    a hole from the first op whose slices are in `sent`.
    """
    found = list[tuple[int, ...]]()
    keys = np.column_stack([sent[name].astype(np.uint64) for name in STREAM])
    streams, of = np.unique(keys, axis=0, return_inverse=True)
    for at, stream in enumerate(streams.tolist()):
        found += _cut_stream(stream, sent[of.ravel() == at], ops, epoch_ns)
    return np.array(found, CUT)


CUT: Final = np.dtype([
    ("comm_id", "<u8"), ("comm_rank", "<i4"), ("op", "<u8"), ("peer", "<i4"), ("channel", "<i4"), ("start_ns", "<i8"),
    ("end_ns", "<i8"), ("actual_ns", "<i8"), ("n_bytes", "<i8"), ("flags", "u1"), ("epoch_ns", "<i8"),
])  # fmt: skip


def _cut_stream(stream: Sequence[int], mine: Rows, ops: Rows, epoch_ns: int) -> list[tuple[int, ...]]:
    comm_id, comm_rank, is_p2p, peer = stream
    calls = _calls(ops, stream, int(mine["number"].min()), int(mine["number"].max()))
    assert len(calls) == int(np.ptp(mine["number"].astype(np.int64))) + 1
    n_ranks = 1 + int(ops["comm_rank"][ops["comm_id"] == np.uint64(comm_id)].max())
    channels = np.unique(mine["channel"]).tolist()
    volumes = [_volume(call, peer, len(channels), n_ranks) for call in calls]
    cut = PeerStream(epoch_ns)
    cut.expect(calls["op"].astype(np.int64), np.array(volumes), np.full(len(calls), bool(is_p2p)))
    for channel in channels:
        cells = _cells(mine[mine["channel"] == channel], epoch_ns)
        cut.feed(channel, cells["epoch"], cells["bytes"])
    moved = cut.poll(int(mine["ended_before_ns"].max()) + 2 * DELTA_NS)
    return [
        (comm_id, comm_rank, row["op"], peer, row["channel"], row["start_ns"], row["end_ns"], row["actual_ns"],
         row["n_bytes"], row["flags"], epoch_ns)
        for row in moved
    ]  # fmt: skip


def _calls(ops: Rows, stream: Sequence[int], first: int, last: int) -> Rows:
    comm_id, comm_rank, is_p2p, peer = stream
    mine = (ops["comm_id"] == np.uint64(comm_id)) & (ops["comm_rank"] == comm_rank)
    mine &= ((ops["flags"] & OP_P2P) != 0) == bool(is_p2p)
    if is_p2p:
        mine &= (ops["peer"] == peer) & (ops["func"] != FUNC_RECV)
    mine &= (ops["op"] >= first) & (ops["op"] <= last)
    calls = ops[mine]
    return calls[np.argsort(calls["op"], kind="stable")]


def _volume(call: np.void, peer: int, n_lanes: int, n_ranks: int) -> float:
    """n_lanes: channels that lead to the peer."""
    names = FUNCS[call["func"]], ALGOS[call["algo"]], PROTOS[call["proto"]]
    far = int(call["peer"])
    shape = OpShape(
        names[0], int(call["bytes"]), n_ranks, names[1], names[2],
        peer=far, comm_rank=int(call["comm_rank"]), root=far,
    )  # fmt: skip
    return moved_to(shape, {peer: n_lanes}, int(call["channels"])).get(peer, 0.0)


def _cells(slices: Rows, epoch_ns: int) -> Rows:
    """Bytes by epoch of one flow, each slice from when it was taken, or the one before was through, until it was through."""
    slices = slices[np.argsort(slices["ended_before_ns"], kind="stable")]
    ends, posted = (slices[name].astype(np.int64) for name in ("ended_before_ns", "began_before_ns"))
    begins = np.minimum(np.maximum(posted, np.r_[0, ends[:-1]]), ends - 1)
    return cells_of(np.zeros(len(slices), np.int64), begins, ends, slices["bytes"].astype(np.int64), epoch_ns)
