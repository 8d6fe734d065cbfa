"""Queue pairs are known by the flows they serve: the plugin says at each chunk which flow the post before it was for."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.tables import RECEIVE, SEND
from nccl_instrument.verbs.reading import NAMED, Block, blocks
from tests.nccl_instrument.verbs.conftest import HERE, Built

PLUGIN = HERE.parents[2] / "nccl_instrument" / "plugin"
OPS, CHANNELS, CHUNKS, CHUNK_BYTES, EPOCH_NS = 5, 2, 6, 512 << 10, 32_000


@dataclass(frozen=True, slots=True)
class Ran:
    """folder: with segment and verbs file. told: (OPS, 3) op, begin and end of its bytes by the proxy's own clock."""

    folder: Path
    told: np.ndarray

    @property
    def blocks(self) -> list[Block]:
        (path,) = self.folder.glob("diogenes-verbs.*")
        return list(blocks(path))


@pytest.fixture(scope="module")
def ran(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    subprocess.run(["make", "-s", "-C", PLUGIN, "all"], check=True)
    folder, into = tmp_path_factory.mktemp("proxy"), tmp_path_factory.mktemp("traces")
    words = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    found = [f"-I{HERE}", f"-I{PLUGIN}", f"-I{HERE.parents[2] / 'nccl_instrument' / 'verbs' / 'src'}"]
    subprocess.run([*words, *found, HERE / "proxy.c", "-o", folder / "proxy", "-ldl"], check=True)
    environment = {
        **os.environ, "LD_LIBRARY_PATH": f"{built.shim}:{built.behind}", "DIOGENES_VERBS": str(into),
        "DIOGENES_SEGMENT_DIR": str(into), "RANK": "1", "WORLD_SIZE": "4", "DIOGENES_JOB": "ring",
    }  # fmt: skip
    plugin = PLUGIN / "build" / "libnccl-profiler-diogenes.so"
    done = subprocess.run(
        [folder / "proxy", plugin, str(OPS)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return Ran(into, np.array([line.split() for line in done.stdout.splitlines()], np.int64))


def test_each_queue_pair_has_the_flow_it_serves(ran: Ran) -> None:
    rows = ran.blocks[-1].queue_pairs
    told = {(int(row["channel"]), int(row["direction"]), int(row["peer"])) for row in rows}
    assert told == {(0, SEND, 2), (1, SEND, 2), (0, RECEIVE, 0), (1, RECEIVE, 0)}
    assert (rows["comm_id"] == 0xC0FFEE).all() and (rows["comm_rank"] == 1).all()
    assert (rows["named"] == NAMED).all() and (rows["connected_ns"] > 0).all()


def test_transfers_in_the_plugins_segment_name_their_queue_pair(ran: Ran) -> None:
    rows = ran.blocks[-1].queue_pairs
    sends = {int(row["channel"]): int(row["qpn"]) for row in rows if row["direction"] == SEND}
    (path,) = ran.folder.glob("diogenes.*")
    segment = Segment.open(path)
    ring = segment.transfer_ring()
    assert ring is not None
    seen, lost = ring.drain()
    assert not lost and len(seen) == OPS * CHANNELS * CHUNKS
    assert all(int(row["qpn"]) == sends[int(row["channel"])] for row in seen)
    records, _ = OpRing.drain(segment.op_ring())
    assert len(records) == OPS and (records["done_ns"] > 0).all()


def test_bytes_lie_in_the_epochs_in_which_they_were_under_way(ran: Ran) -> None:
    """Posted and done, not posted alone: with that every chunk would be one epoch's."""
    sends = [int(row["qpn"]) for row in ran.blocks[-1].queue_pairs if row["direction"] == SEND]
    found: dict[int, int] = {}
    for block in ran.blocks:
        base = int(block.head["start_ns"]) // EPOCH_NS + int(block.head["first_epoch"])
        of = np.repeat(block.flows["qpn"], block.flows["n_cells"])
        for epoch, units in block.cells[np.isin(of, sends)].tolist():
            found[base + epoch] = found.get(base + epoch, 0) + units * 32
    epochs = np.array(sorted(found))
    for _, begin_ns, end_ns in ran.told:
        mine = epochs[(epochs >= begin_ns // EPOCH_NS) & (epochs <= end_ns // EPOCH_NS)]
        moved = sum(found[epoch] for epoch in mine.tolist())
        assert moved == CHANNELS * CHUNKS * CHUNK_BYTES
        assert len(mine) >= CHUNKS * 9  # a chunk is at least 300 µs under way
    between = sum((end - begin) // EPOCH_NS + 2 for _, begin, end in ran.told)
    assert len(epochs) <= between + 1  # and the one that failed


def test_the_failed_completion_stays_with_its_queue_pair_and_flow(ran: Ran) -> None:
    rows = ran.blocks[-1].queue_pairs
    (failed,) = rows[rows["errors"] > 0]
    assert (failed["channel"], failed["direction"], failed["last_status"], failed["errors"]) == (1, SEND, 12, 1)
    assert failed["last_error_ns"] > ran.told[-1, 2]
