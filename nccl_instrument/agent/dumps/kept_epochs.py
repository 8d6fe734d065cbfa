"""The epochs that were kept of a process's newest iterations, as a dump: no process is asked for anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.agent.sending.batches import read_clocks
from nccl_instrument.agent.traffic.traffic import Raw
from nccl_instrument.dumps import EPOCHS, Part
from nccl_instrument.epochs import CELL, FLOW, ITERATION, Epochs, write_epochs
from nccl_instrument.wire import Rows

NOT_RECORDED: Final = "its profiler plugin records no transfers, or none are measured here"
NONE_YET: Final = "no iteration of it has been measured yet"


def kept_epochs(of: Living, raws: Sequence[Raw] | None, clocks: tuple[int, int] | None = None) -> Part:
    """The part; silent, with the reason, where there are none. raws: None where this process is not measured. clocks: wall_ns and
    mono_ns, read together; those of this node now if left out.
    """
    part = Part(EPOCHS, of.rank, of.pid, 0, "", time.time_ns(), "", "kept by the agent")
    if not raws:
        silent = NOT_RECORDED if raws is None else NONE_YET
        return Part(EPOCHS, of.rank, of.pid, 0, "", part.taken_ns, silent, "")
    return part.holding(write_epochs(_epochs(of, raws, clocks or read_clocks())))


def _epochs(of: Living, raws: Sequence[Raw], clocks: tuple[int, int]) -> Epochs:
    iterations = np.array(
        [
            (one.iteration.number, one.iteration.begins_ns, one.iteration.ends_ns, one.sent.epoch_ns, one.every,
             one.iteration.is_whole and one.sent.is_whole)
            for one in raws
        ], ITERATION,
    )  # fmt: skip
    flows = [np.array(_flows(at, one), FLOW) for at, one in enumerate(raws)]
    first = np.cumsum([0, *map(len, flows)])
    cells = [_cells(one, int(number)) for one, number in zip(raws, first[:-1], strict=True)]
    nic = raws[-1].nic.decode("ascii", "replace")
    return Epochs(of.rank, of.pid, nic, "plugin", *clocks, iterations, np.concatenate(flows), np.concatenate(cells))


def _flows(at: int, raw: Raw) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for number, (comm_id, comm_rank, peer, is_p2p, channel) in enumerate(raw.sent.keys):
        chunks = raw.sent.of(number)
        found.append(
            (at, comm_id, comm_rank, peer, channel, is_p2p, int(chunks["qpn"].max()), int(chunks["largest"].max()))
        )
    return found


def _cells(raw: Raw, first: int) -> Rows:
    rows = np.zeros(len(raw.sent.cells), CELL)
    rows["flow"] = raw.sent.cells["flow"] + first
    rows["epoch"], rows["n_bytes"] = raw.sent.cells["epoch"], raw.sent.cells["n_bytes"]
    return rows
