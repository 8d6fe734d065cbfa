"""One training process on this node, followed through its segment from the first look to the last.

`sweep` is the cheap part, ten times a second: copy the live flows. `cut` is once a second: hand over what was copied,
drain the completion ring, see whether the process lives. A process that died without closing its communicators is
evidence: its frozen rows are sent on (once a second, they cannot change) until Sweep decides that they have aged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.dumps.sight import look_at
from nccl_instrument.agent.plain import pick
from nccl_instrument.agent.processes.proc import GONE, Living, ProcessFiles, ProcessState
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.rows import Owner, Taken, single_nic
from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.agent.processes.segment_layout import COUNTERS
from nccl_instrument.agent.traffic.sampling import Sampling
from nccl_instrument.agent.traffic.traffic import Traffic
from nccl_instrument.tables import empty_rows
from nccl_instrument.wire import Rows

CUTS_PER_MAPPING: Final = 60

# Loss kind → the plugin's counters that mean it.
_LOSS_COUNTERS: Final = {
    "bad_handles": ("null_handles", "stale_handles", "bad_handles", "bad_contexts"),
    "table_full": ("comm_table_full", "op_table_full", "flow_table_full", "p2p_unnumbered", "api_groups_full"),
    "unfinished_ops": ("ops_lost",),
    "unknown_calls": ("unknown_types", "unknown_states", "null_args", "bad_steps", "api_unknown_comms"),
}
_LOSSES_AT: Final = np.array([COUNTERS.index(name) for names in _LOSS_COUNTERS.values() for name in names], np.intp)


@dataclass
class Bookmark:
    """How far a process has been reported; kept on disk, so that a restarted agent repeats nothing.

    inode: of the file that is meant, where its name may come again; 0 unknown.
    """

    position: int | None = None
    told: dict[str, int] = field(default_factory=dict)
    inode: int = 0


class Trainer:
    """A followed process. `job` is '' when it has no name that can be sent."""

    def __init__(self, segment: Segment, owner: Owner, bookmark: Bookmark, sampling: Sampling | None = None) -> None:
        self.segment, self.owner = segment, owner
        self.job = str(owner.identity["job"])
        self.rank = int(owner.identity["global_rank"])
        self.died_ns = 0
        self.is_final = False  # its last row has been cut
        self._told = dict(bookmark.told)
        uid = segment.header()["uid"]
        seen = look_at(Living(self.rank, owner.pid, owner.started, segment.path.parent, uid))
        self._files = ProcessFiles(seen.number or owner.pid)  # in a container it calls itself otherwise
        self._ring: OpRing | None = segment.op_ring(bookmark.position)
        self._ticks: list[tuple[int, Rows]] = []
        self._comm_stamps = self._loss_counters = b""
        self._generations: npt.NDArray[np.int64] | None = None
        self._is_known = bookmark.position is not None
        self._lost_records = self._lost_comms = 0
        self._n_cuts = 0
        self.traffic = _traffic(segment, owner, sampling)

    @property
    def is_alive(self) -> bool:
        return not self.died_ns

    @property
    def is_clean(self) -> bool:
        """Dead, and it had finalized every communicator: nothing is left that could be evidence."""
        return bool(self.died_ns) and self.segment.is_closed

    def bookmark(self) -> Bookmark:
        return Bookmark(self._ring.position if self._ring else None, dict(self._told))

    def sweep(self, tick_ns: int) -> None:
        """Copy the flows in progress."""
        flows = self.segment.live_flows()
        if len(flows):
            self._ticks.append((tick_ns, flows))
        if self.traffic is not None:
            self.traffic.sweep()

    def cut(self, tick_ns: int) -> Taken:
        """Everything since the last cut."""
        if not self.died_ns and not self.segment.is_alive():
            self.died_ns = time.monotonic_ns()
            if self.traffic is not None:
                self.traffic.close()  # what it cost is free for the others
        self.is_final = bool(self.died_ns)
        if self.died_ns:
            self.sweep(tick_ns)
        flows, self._ticks = self._ticks, []
        self._n_cuts += 1
        if self._n_cuts % CUTS_PER_MAPPING == 0:
            self._map_anew()
        self._lost_comms += self._passed_comms()
        comms = self.segment.comms()
        live = self.segment.live_ops()
        ops = self._drain()
        live = _without(live, ops)  # an op is either under way or over: read in this order, none is in neither
        traffic = self._moved(ops, live, comms, tick_ns)
        return Taken(self.owner, flows, ops, live, comms, self._are_new(comms), self._process(), traffic)

    def _moved(self, ops: Rows, live: Rows, comms: Rows, tick_ns: int) -> Rows:
        """Rows of `traffic`."""
        if self.traffic is None:
            return empty_rows("traffic")
        sizes = dict(zip(comms["comm_id"].tolist(), comms["n_ranks"].tolist(), strict=True))
        return self.traffic.rows(ops, live, sizes, tick_ns)

    def losses(self) -> dict[str, int]:
        """Loss kind → how many more since this was last asked."""
        before, self._loss_counters = self._loss_counters, self.segment.counters_at(_LOSSES_AT)
        more = self._counted_more() if self._loss_counters != before else {}
        more["ring_records"] = self._lost_records  # those of ring_busy among them: their place in the ring stays empty
        more["torn_rows"], self.segment.torn_rows, self._lost_records = self.segment.torn_rows, 0, 0
        more["rows_over_limit"], self._lost_comms = self._lost_comms + self._too_large(), 0
        return {kind: count for kind, count in more.items() if count}

    def _counted_more(self) -> dict[str, int]:
        counters = self.segment.counters()
        totals = {kind: sum(counters[name] for name in names) for kind, names in _LOSS_COUNTERS.items()}
        more = {kind: max(0, total - self._told.get(kind, 0)) for kind, total in totals.items()}
        self._told.update(totals)
        return more

    def _too_large(self) -> int:
        """Iterations without rows of `traffic` because they had too many epochs, since this was last asked."""
        if self.traffic is None:
            return 0
        found, self.traffic.n_too_large = self.traffic.n_too_large, 0
        return found

    def close(self) -> None:
        """Let go of the segment; the file stays."""
        self._files.close()
        if self.traffic is not None:
            self.traffic.close()
        self._ring = None
        self.segment.close()

    def _map_anew(self) -> None:
        """Give back the pages read so far: the kernel counts them as ours until the mapping goes."""
        try:
            fresh = Segment.open(self.segment.path)
        except (ValueError, OSError):
            return  # somebody removed the file: the old mapping still shows all of it
        fresh.torn_rows = self.segment.torn_rows
        position = self.bookmark().position
        self._ring = None
        if self.traffic is not None:
            self.traffic.map_anew(fresh.transfer_ring)
        self.segment.close()
        self.segment, self._ring = fresh, fresh.op_ring(position)

    def _drain(self) -> Rows:
        assert self._ring is not None
        records, lost = self._ring.drain()
        self._lost_records += lost
        if self.traffic is not None:
            self.traffic.lose_ops(lost)
        return records

    def _passed_comms(self) -> int:
        """Communicators that gave their row to another one before they were seen."""
        before = self._generations
        if before is None or not before.any():
            return self._passed_at_first(is_known=before is None and self._is_known)
        self._generations = now = self.segment.comm_generations().astype(np.int64)
        if np.array_equal(before, now):
            return 0
        before[before == 0] = before.max() - 1  # as long as a row is free none is taken twice
        return int(np.maximum(now - before - 1, 0).sum())

    def _passed_at_first(self, *, is_known: bool) -> int:
        """The same while none had been seen. is_known: an earlier agent saw them, or counted them."""
        counters = self.segment.counters()  # read before the rows: one that joins in between has not passed
        self._generations = self.segment.comm_generations().astype(np.int64)
        n_seen = int((self._generations > 0).sum())
        return 0 if is_known else max(0, counters["comms_joined"] - counters["comm_table_full"] - n_seen)

    def _are_new(self, comms: Any) -> bool:
        """Whether a communicator appeared, was finalized or first showed network progress since the last cut."""
        stamps = b"".join(comms[name].tobytes() for name in ("stamp", "comm_id", "network_seen"))
        before, self._comm_stamps = self._comm_stamps, stamps
        return bool(stamps != before)

    def _process(self) -> tuple[ProcessState, bool, int]:
        state = self._files.read(self.owner.started) if self.is_alive else GONE
        return state, self.is_alive, self.segment.last_callback_ns


def _traffic(segment: Segment, owner: Owner, sampling: Sampling | None) -> Traffic | None:
    """None where nothing is to be measured, or the plugin records no chunks."""
    ring = segment.transfer_ring() if sampling is not None and sampling.is_on else None
    return Traffic(ring, owner.pid, single_nic(owner.identity), sampling) if ring is not None and sampling else None


def _without(live: Rows, ops: Rows) -> Rows:
    """The rows of `live` of which there is no completion record in `ops`."""
    if not len(live) or not len(ops):
        return live
    over = set(_names(ops).tolist())
    kept = [at for at, name in enumerate(_names(live).tolist()) if name not in over]
    return pick(live, np.array(kept, np.int64)) if len(kept) < len(live) else live


def _names(ops: Rows) -> npt.NDArray[np.int64]:
    """(n,) one number per op: its communicator's row, func, peer and its own number."""
    parts = (("comm", 55, 0xFF), ("func", 51, 0xF), ("peer", 36, 0x7FFF), ("op", 0, 2**36 - 1))
    found = np.zeros(len(ops), np.int64)
    for name, shift, mask in parts:
        found |= (ops[name].astype(np.int64) & mask) << shift
    return found
