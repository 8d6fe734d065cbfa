"""A job that nobody traces is on the server: its ranks and nodes, and how far each says that it is."""

from __future__ import annotations

import numpy as np
from asgiref.sync import sync_to_async

from ingest.models import Attempt, CommMember, Communicator, Node
from ingest.read import read_window
from nccl_instrument.tables import SOURCE_RECORDER, empty_rows
from nccl_instrument.wire import TraceBatch
from tests.builders import MONO_NS, SECOND, WALL_NS, boot_id
from tests.ingest.conftest import Ingest


def batch_of(node: int, number: int) -> TraceBatch:
    """Second `number` of a node with two ranks that have no communicator."""
    mono_ns = MONO_NS + (number + 1) * SECOND
    comm, process, status = (empty_rows(table, 2) for table in ("comm", "process", "status"))
    pids, ranks = 100 + np.arange(2), 2 * node + np.arange(2)
    comm["n_ranks"], comm["pid"], comm["process_started"], comm["global_rank"], comm["world_size"] = (
        0,
        pids,
        5,
        ranks,
        4,
    )
    process["tick_ns"], process["pid"], process["global_rank"], process["alive"] = mono_ns, pids, ranks, 1
    status["tick_ns"], status["pid"], status["source"], status["group"] = mono_ns, pids, SOURCE_RECORDER, b"0"
    status["n_enqueued"], status["n_done"], status["changed_ns"] = 5, number, mono_ns - SECOND // 2
    rows = {"process": process, "status": status, **({} if number else {"comm": comm})}
    wall_ns = WALL_NS + (number + 1) * SECOND
    return TraceBatch("gloo", f"node-{node}", boot_id(node), number, wall_ns, mono_ns, rows)


async def test_its_ranks_are_known_and_no_communicator_is_made_up(ingest: Ingest) -> None:
    for number in range(3):
        for node in range(2):
            assert (await ingest.send(batch_of(node, number))).body == {"duplicate": False}
    await ingest.write_ledger()
    attempt = await Attempt.objects.aget()
    assert (attempt.world_size, await Communicator.objects.acount(), await CommMember.objects.acount()) == (4, 0, 0)
    assert [node.rows_dropped async for node in Node.objects.all()] == [0, 0]
    window = await sync_to_async(read_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    assert window.ranks["rank"].tolist() == [0, 1, 2, 3]
    status = window.rows("status")
    newest = status[status["tick_ns"] == status["tick_ns"].max()]
    assert sorted(newest[["rank", "n_enqueued", "n_done"]].tolist()) == [(rank, 5, 2) for rank in range(4)]
    assert (newest["tick_ns"] - newest["changed_ns"] == SECOND // 2).all()
