"""Which op the bytes of a capture belong to, where the ranks' traces are at hand (docs/captures.md).

The profiler plugin's segments say which ops there were, the verbs shim's files which queue pair leads where and which flow it
serves. The capture's clock is another than the ranks'. So cutting begins where a rank was silent for a while before an op, in the
middle of that silence; it is right as long as the clocks differ by less than half of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.captures.epochs import Cells
from nccl_instrument.flows.association import MOVED, PeerStream
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.flows.segmentation import DELTA_NS
from nccl_instrument.tables import (
    ALGOS,
    FUNC_RECV,
    FUNC_SEND,
    FUNCS,
    OP_P2P,
    PROTOS,
    SEND,
    TRAFFIC_SOURCES,
    empty_rows,
)
from nccl_instrument.verbs.reading import NAME, NAMED, SEVERAL_FLOWS, blocks, peer

CAPTURE: Final = TRAFFIC_SOURCES.index("capture")
FILES_MAX: Final = 4_096
_UNREADABLE: Final = (ValueError, OverflowError, LookupError, OSError)
Rows = npt.NDArray[np.void]
Member = tuple[int, int]
"""comm_id and rank in it."""


@dataclass(frozen=True, slots=True)
class Served:
    """The flow that a queue pair serves."""

    member: Member
    peer: int
    channel: int
    queue_pair: int
    card: bytes


@dataclass(slots=True)
class Traces:
    """What a folder's traces say. pairs: (address, number) of the other end → flow; ops: of a member, in the order of their
    calls, with times of the wall clock; sizes: communicator → ranks. counts: files read and not.
    """

    pairs: dict[tuple[str, int], Served] = field(default_factory=dict)
    ops: dict[Member, list[np.void]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def read_traces(folder: Path) -> Traces:
    """The segments and verbs files of a folder; what cannot be read is counted, with nothing of it taken. OSError without one."""
    found = Traces()
    for path in sorted(folder.iterdir())[:FILES_MAX]:
        is_verbs = NAME.fullmatch(path.name) is not None
        if not is_verbs and not path.name.startswith("diogenes."):
            continue
        try:
            (_read_verbs if is_verbs else _read_segment)(path, found)
            found.counts["traces_read"] += 1
        except _UNREADABLE:
            found.counts["traces_refused"] += 1
    return found


def _read_verbs(path: Path, into: Traces) -> None:
    newest = {int(block.head["device"]): block for block in blocks(path)}
    pairs = {}
    for block in newest.values():
        rows = block.queue_pairs
        rows = rows[
            ((rows["named"] & (NAMED | SEVERAL_FLOWS)) == NAMED) & (rows["direction"] == SEND) & (rows["connects"] > 0)
        ]
        for row in rows:
            served = Served(
                (int(row["comm_id"]), int(row["comm_rank"])), int(row["peer"]), int(row["channel"]), int(row["qpn"]),
                bytes(block.head["name"])[:16],
            )  # fmt: skip
            pairs[peer(row), int(row["dest_qpn"])] = served
    into.pairs |= pairs


def _read_segment(path: Path, into: Traces) -> None:
    segment = Segment.open(path)
    try:
        head, (records, _) = segment.header(), segment.op_ring().drain()
        rows, comms = np.concatenate([records, segment.live_ops()]), segment.comms()
    finally:
        segment.close()
    shift_ns = head["wall_ns"] - head["mono_ns"]
    into.sizes |= dict(zip(comms["comm_id"].tolist(), comms["n_ranks"].tolist(), strict=True))
    for row in rows[np.lexsort((rows["ordinal"], rows["enqueued_ns"]))]:
        if row["comm_id"] and row["op"] and row["func"] != FUNC_RECV:
            for name in ("enqueued_ns", "first_transfer_ns", "last_transfer_ns"):
                row[name] += shift_ns if row[name] else 0
            into.ops.setdefault((int(row["comm_id"]), int(row["comm_rank"])), []).append(row.copy())


def named_flows(flows: Rows, traces: Traces) -> dict[int, Served]:
    """Number of a capture's flow → the flow of NCCL's it is. flows: as saved."""
    found = {}
    for at, (address, qpn) in enumerate(zip(flows["destination"].tolist(), flows["qpn"].tolist(), strict=True)):
        served = traces.pairs.get((address.decode(), qpn))
        if served is not None:
            found[at] = served
    return found


def traffic_of(cells: Cells, flows: dict[int, Served], traces: Traces, epoch_ns: int, begin_ns: int) -> Rows:
    """(n,) rows of `traffic`, times of the capture's clock. cells: of these flows alone; begin_ns: of the capture."""
    found = [empty_rows("traffic")]
    for member in sorted({served.member for served in flows.values()}):
        mine = {at: served for at, served in flows.items() if served.member == member}
        found += list(_of_member(cells, mine, traces, epoch_ns, begin_ns))
    return np.concatenate(found)


def _of_member(cells: Cells, flows: dict[int, Served], traces: Traces, epoch_ns: int, begin_ns: int) -> Iterator[Rows]:
    channels: dict[int, int] = {}
    for served in flows.values():
        channels[served.peer] = channels.get(served.peer, 0) + 1
    mine = cells[np.isin(cells["flow"], list(flows))]
    if not len(mine):
        return
    end = (int(mine["epoch"].max()) + 1) * epoch_ns
    member = next(iter(flows.values())).member
    ops, begin = _begun(traces.ops.get(member, []), begin_ns)
    for other in channels:
        stream = PeerStream(epoch_ns)
        for row in ops:
            volume = _volume(row, traces.sizes.get(member[0], 0), channels, other)
            stream.expect(np.array([row["op"]], np.int64), np.array([volume]), np.array([bool(row["flags"] & OP_P2P)]))
        to = {at: served for at, served in flows.items() if served.peer == other}
        for at, served in to.items():
            of = mine[(mine["flow"] == at) & (mine["epoch"] * epoch_ns >= begin)]
            epochs, where = np.unique(of["epoch"], return_inverse=True)
            stream.feed(served.channel, epochs, np.bincount(where, of["bytes"], len(epochs)).astype(np.int64))
        moved = np.concatenate([stream.poll(end + 2 * DELTA_NS), stream.open()])
        yield _named(moved, {served.channel: served for served in to.values()}, epoch_ns)


def _begun(ops: list[np.void], begin_ns: int) -> tuple[list[np.void], int]:
    """The ops from the first one on that the capture has whole and that silence came before, and the middle of that silence."""
    last_ns = 0
    for at, row in enumerate(ops):
        first_ns = int(row["first_transfer_ns"])
        before_ns = last_ns or (first_ns - DELTA_NS if at == 0 and row["op"] == 1 else first_ns)
        if first_ns and first_ns - max(before_ns, begin_ns) >= DELTA_NS:
            return ops[at:], (first_ns + max(before_ns, begin_ns)) // 2
        last_ns = max(last_ns, int(row["last_transfer_ns"]))
    return [], begin_ns


def _volume(row: np.void, n_ranks: int, channels: dict[int, int], other: int) -> float:
    is_send = row["func"] == FUNC_SEND
    shape = OpShape(
        FUNCS[row["func"]], int(row["bytes"]), n_ranks, ALGOS[row["algo"]], PROTOS[row["proto"]],
        int(row["peer"]) if is_send else -1, int(row["comm_rank"]), -1 if is_send else int(row["peer"]),
    )  # fmt: skip
    return moved_to(shape, channels, int(row["channels"])).get(other, 0.0)


def _named(moved: Rows, by_channel: dict[int, Served], epoch_ns: int) -> Rows:
    rows = empty_rows("traffic", len(moved))
    for name in set(MOVED.names or ()) & set(rows.dtype.names or ()):
        rows[name] = moved[name]
    for row in rows:
        served = by_channel[int(row["channel"])]
        row["comm_id"], row["comm_rank"], row["peer"] = *served.member, served.peer
        row["queue_pair"], row["nic"] = served.queue_pair, served.card
    rows["epoch_ns"], rows["source"] = epoch_ns, CAPTURE
    return rows
