"""A window holds exactly the rows that were sent, on one time axis, with ranks and nodes joined."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.door.arrival import receive_batch
from ingest.jobs.roster_columns import Roster, read_roster
from ingest.models import Attempt, Node
from ingest.read import latest_data_ns, read_nodes, read_rollups, read_window, running_attempts
from ingest.traces.cutting import Bounds, cut
from ingest.traces.cutting import Group as StoredGroup
from ingest.traces.uncollected import uncollected
from ingest.window import MEMBER, RANK, TRACE_TABLES, Window
from nccl_instrument.tables import DTYPE, OP_REOPENED, TIME_COLUMNS, empty_rows
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import (
    FUNC_ALLREDUCE,
    MONO_NS,
    SECOND,
    WALL_NS,
    FakeJob,
    Group,
    at_wall,
    boot_id,
    loss_rows,
    make_batch,
    with_rows,
)
from tests.ingest.conftest import Ingest

SHIFT = WALL_NS - MONO_NS
read = sync_to_async(read_window)


async def whole(**options: object) -> Window:
    attempt = await Attempt.objects.alatest("pk")
    return await read(attempt.pk, WALL_NS - 10**6 * SECOND, WALL_NS + 10**6 * SECOND, **options)  # type: ignore[arg-type]


def shifted(batch: TraceBatch, table: str, shift: int = SHIFT) -> np.ndarray:
    rows = batch.rows(table).copy()
    for name in TIME_COLUMNS[table]:
        rows[name] = np.where(rows[name] != 0, rows[name] + shift, 0)
    return rows


def columns_of(rows: np.ndarray, table: str) -> list[bytes]:
    """The rows without the joined columns, as bytes, in a fixed order."""
    plain = np.zeros(len(rows), DTYPE[table])
    for name in DTYPE[table].names or ():
        plain[name] = rows[name]
    return sorted(row.tobytes() for row in plain)


async def test_a_window_has_every_row_that_was_sent(ingest: Ingest) -> None:
    job, sent = FakeJob(), []
    for node in range(job.nodes):
        for number in range(3):
            sent.append(with_rows(job.batch(node, number), loss=loss_rows(torn_rows=2)))
            await ingest.send(sent[-1])
    window = await whole()
    for table in TRACE_TABLES:
        expected = np.concatenate([shifted(batch, table) for batch in sent])
        assert columns_of(window.rows(table), table) == columns_of(expected, table), table
    assert (window.job, window.attempt, window.world_size) == ("llama", 1, 8)


async def test_kernels_of_nodes_that_tell_come_back_beside_nodes_that_do_not(ingest: Ingest) -> None:
    job = FakeJob()
    told = job.batch(0).rows("progress").copy()
    told["kernels_begun"], told["kernels_open"], told["last_kernel_ns"] = 41, 2, MONO_NS - SECOND
    for batch in (with_rows(job.batch(0), progress=told), job.batch(1)):
        await ingest.send(batch)
    rows = (await whole()).rows("progress")
    names = ("kernels_begun", "kernels_open", "last_kernel_ns")
    assert {(int(row["node"]), *(int(row[name]) for name in names)) for row in rows} == {
        (0, 41, 2, WALL_NS - SECOND), (1, 0, 0, 0),
    }  # fmt: skip


async def test_rows_carry_the_global_rank_and_the_node(ingest: Ingest) -> None:
    job = FakeJob()
    for node in range(job.nodes):
        await ingest.send(job.batch(node))
    window = await whole()
    assert window.nodes["name"].tolist() == ["node-0", "node-1", "node-2", "node-3"]
    assert window.ranks["rank"].tolist() == list(range(8))
    assert window.ranks["node"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert window.nodes["n_ranks"].tolist() == [2, 2, 2, 2]
    assert len(window.members) == 16
    for table in ("op", "live_op", "flow", "progress", "process"):
        rows = window.rows(table)
        assert np.array_equal(rows["node"], rows["rank"] // 2), table
        assert set(rows["rank"].tolist()) == set(range(8)), table
    assert set(window.rows("nic")["rank"].tolist()) == {-1}


async def test_only_rows_inside_the_window_are_returned(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(10):
        await ingest.send(job.batch(0, number))
    attempt = await Attempt.objects.aget()
    start, end = WALL_NS + 3 * SECOND + 1, WALL_NS + 5 * SECOND + 1
    window = await read(attempt.pk, start, end)
    for table, column in (("flow", "tick_ns"), ("live_op", "tick_ns"), ("op", "done_ns"), ("nic", "tick_ns")):
        at = window.rows(table)[column]
        assert len(at) and ((at >= start) & (at < end)).all(), table
    assert len(np.unique(window.rows("flow")["tick_ns"])) == 20
    assert len(np.unique(window.rows("live_op")["tick_ns"])) == 2


async def test_only_tables_that_are_asked_for_are_read(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    window = await whole(tables=("progress",))
    assert list(window.tables) == ["progress"]
    assert len(window.rows("flow")) == 0


async def test_only_nodes_that_are_asked_for_are_read_by_name_or_by_rank(ingest: Ingest) -> None:
    job = FakeJob()
    for node in range(job.nodes):
        await ingest.send(job.batch(node))
    for asked, nodes in (
        ({"ranks": [3]}, {1}),
        ({"ranks": (0, 7)}, {0, 3}),
        ({"nodes": ["node-2"]}, {2}),
        ({"nodes": ["node-2"], "ranks": [0]}, {0, 2}),
        ({"nodes": ["nowhere"]}, set()),
        ({"ranks": []}, set()),
    ):
        window = await whole(**asked)
        assert set(window.rows("flow")["node"].tolist()) == nodes, asked
        assert set(window.rows("nic")["node"].tolist()) == nodes, asked
        assert (len(window.nodes), len(window.ranks), len(window.members)) == (4, 8, 16)


async def test_an_attempt_without_data_is_an_empty_window(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    attempt = await Attempt.objects.aget()
    window = await read(attempt.pk, 0, 10)
    assert [len(window.rows(table)) for table in TRACE_TABLES] == [0] * len(TRACE_TABLES)
    assert len(window.nodes) == 1


async def test_members_nobody_reported_leave_the_rank_unknown(ingest: Ingest) -> None:
    reply = await ingest.send(with_rows(make_batch(), comm=empty_rows("comm")))
    assert reply.body["resend"] == ["comm"]
    window = await whole()
    assert set(window.rows("flow")["rank"].tolist()) == {-1}
    assert sorted(set(window.rows("process")["rank"].tolist())) == [0, 1]  # the process says its rank itself
    assert (await ingest.send(make_batch(number=1))).body == {"duplicate": False}
    assert set((await whole()).rows("flow")["rank"].tolist()) == {0, 1}


async def test_ranks_are_inferred_and_marked_when_no_launcher_declares_them(ingest: Ingest) -> None:
    job = FakeJob(declared=False)
    for node in range(job.nodes):
        await ingest.send(job.batch(node))
    await ingest.write_ledger()
    window = await whole()
    assert window.ranks["rank"].tolist() == list(range(8))
    assert window.ranks["rank_inferred"].all()
    assert window.world_size == 8
    assert np.array_equal(window.rows("flow")["node"], window.rows("flow")["rank"] // 2)


async def test_declared_coordinates_are_kept_and_inferred_ones_marked(ingest: Ingest) -> None:
    groups = (Group(1, tuple(range(4)), "world"), Group(2, (0, 1), "tp"), Group(3, (2, 3), "tp"))
    declared = FakeJob(name="declared", ranks=4, nodes=1, groups=groups, coordinates=dict.fromkeys(range(4), (7, 8, 9)))
    inferred = FakeJob(name="inferred", ranks=4, nodes=1, groups=groups)
    for job, tp, marked in ((declared, [7] * 4, False), (inferred, [0, 1, 0, 1], True)):
        await ingest.send(job.batch())
        await ingest.write_ledger()
        ranks = (await whole()).ranks
        assert ranks["tp"].tolist() == tp
        assert set(ranks["coordinates_inferred"].tolist()) == {marked}
        assert not ranks["rank_inferred"].any()


async def test_a_wrong_clock_is_placed_by_receive_time_and_shown(ingest: Ingest) -> None:
    job, day = FakeJob(), 86_400 * SECOND
    right, wrong = job.batch(0), job.batch(1)
    await ingest.send(right, at_ns=right.wall_ns)
    await ingest.send(at_wall(wrong, wrong.wall_ns + day), at_ns=right.wall_ns + 50_000_000)
    window = await read((await Attempt.objects.aget()).pk, WALL_NS - SECOND, WALL_NS + 3 * SECOND)
    at = window.rows("progress")["tick_ns"]
    assert np.abs(at - right.wall_ns).max() < SECOND
    assert window.nodes["clock_offset_ns"].tolist() == [0, day - 50_000_000]
    nodes = await sync_to_async(read_nodes)((await Attempt.objects.aget()).pk)
    assert [node.wrong_clock for node in nodes] == [False, True]


async def test_a_spool_is_placed_where_it_was_cut_and_the_node_is_catching_up(ingest: Ingest) -> None:
    job = FakeJob()
    first = job.batch(0, 0)
    await ingest.send(first)
    now = first.wall_ns + 300 * SECOND
    late = [job.batch(0, number) for number in range(1, 6)]
    for i, batch in enumerate(late):
        await ingest.send(batch, at_ns=now + i * 50_000_000)
    node = await Node.objects.aget()
    assert node.catching_up and not node.wrong_clock
    assert node.watermark_ns == late[-1].wall_ns
    assert np.array_equal(
        np.unique((await whole()).rows("progress")["tick_ns"]), [batch.wall_ns for batch in (first, *late)]
    )
    fresh = job.batch(0, 300)
    await ingest.send(fresh, at_ns=now + SECOND)
    assert (await Node.objects.aget()).catching_up  # the spool may not be empty yet
    await ingest.send(job.batch(0, 304))
    assert not (await Node.objects.aget()).catching_up


async def test_losses_the_agent_counted_are_added_up(ingest: Ingest) -> None:
    await ingest.send(with_rows(make_batch(), loss=loss_rows(spool_batches=3, torn_rows=1)))
    await ingest.send(with_rows(make_batch(number=1), loss=loss_rows(spool_batches=2, ring_records=5)))
    await ingest.send(with_rows(make_batch(number=1), loss=loss_rows(spool_batches=2, ring_records=5)))
    assert (await Node.objects.aget()).losses == {"spool_batches": 5, "torn_rows": 1, "ring_records": 5}
    assert (await whole()).nodes["batches_lost"].tolist() == [10]


async def test_running_attempts_and_the_newest_data(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    await ingest.send(make_batch("other", node=1, number=4))
    running = await sync_to_async(running_attempts)()
    assert [(a.job, a.number, a.world_size) for a in running] == [("llama", 1, 8), ("other", 1, 8)]
    newest = [await sync_to_async(latest_data_ns)(a.id) for a in running]
    assert newest == [WALL_NS + SECOND, WALL_NS + 5 * SECOND]
    assert await sync_to_async(latest_data_ns)(10**6) == 0


async def test_rollups_count_every_new_op_once(ingest: Ingest) -> None:
    job = FakeJob()
    for number in (*range(20), 3, 4):
        await ingest.send(job.batch(0, number))
        if number % 7 == 0:
            await ingest.write_ledger()
    await ingest.write_ledger()
    await ingest.write_ledger()
    attempt = await Attempt.objects.aget()
    points = await sync_to_async(read_rollups)(attempt.pk, 0, 2 * WALL_NS)
    assert sum(p.n_ops for p in points) == 20 * 4 * 4
    assert sum(p.bytes for p in points) == 20 * 4 * 4 * 2**20
    assert {p.func for p in points} == {FUNC_ALLREDUCE}
    assert {p.comm_id for p in points} == {group.comm_id for group in job.communicators()[:2]}
    assert all(abs(p.duration_p50_ns - 40_000_000) < 2_000_000 for p in points)


async def test_ops_an_agent_sends_again_after_its_restart_are_rolled_up_once(ingest: Ingest) -> None:
    job = FakeJob()
    first = job.batch(0, 0)
    await ingest.send(first)
    repeated = np.concatenate([first.rows("op"), job.batch(0, 1).rows("op")])
    reopened = first.rows("op")[:1].copy()
    reopened["flags"] |= OP_REOPENED
    await ingest.send(with_rows(job.batch(0, 1, boot_id=boot_id(0, 1)), op=np.concatenate([repeated, reopened])))
    await ingest.write_ledger()
    points = await sync_to_async(read_rollups)((await Attempt.objects.aget()).pk, 0, 2 * WALL_NS)
    assert sum(p.n_ops for p in points) == 2 * len(first.rows("op"))
    health = await ingest.health()
    assert health["ops_repeated"] == len(first.rows("op"))


EMPTY = Roster(1, np.array([5]), np.zeros(0, RANK), np.zeros(0, MEMBER), np.zeros((0, 3), np.int64))


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 40))
def test_any_rows_come_back_as_they_were_sent(seed: int, n_rows: int) -> None:
    """Without a server: packing, shifting and joining alone, over random bytes made possible."""
    from_bytes = np.random.default_rng(seed)
    batch = make_batch()
    flow = np.frombuffer(from_bytes.bytes(n_rows * DTYPE["flow"].itemsize), DTYPE["flow"]).copy()
    flow["tick_ns"] = MONO_NS + from_bytes.integers(0, SECOND, n_rows)
    flow["comm_rank"], flow["stuck_ns"] = np.abs(flow["comm_rank"] // 2), np.abs(flow["stuck_ns"] // 2)
    for name in ("func", "direction", "transport"):
        flow[name] %= 2
    flow["counters"] = np.sort(flow["counters"])[:, ::-1]
    flow["total_chunks"] = flow["counters"][:, 0]
    assert_round_trip(with_rows(batch, flow=flow))


def assert_round_trip(batch: TraceBatch) -> None:
    from_ingest = cut_without_a_database(batch)
    assert columns_of(from_ingest, "flow") == columns_of(shifted(batch, "flow"), "flow")


def cut_without_a_database(batch: TraceBatch) -> np.ndarray:
    arrival = receive_batch(1, encode_batch(batch), batch.wall_ns)
    assert arrival.n_dropped == 0
    group = StoredGroup(5, SHIFT, batch.wall_ns, arrival.groups["flow"] or b"")
    rows, unreadable = cut(("flow",), {"flow": [group]}, EMPTY, Bounds(WALL_NS, WALL_NS + 100 * SECOND))
    assert not unreadable
    return rows["flow"]


@pytest.mark.parametrize("table", ["spans", "slice"])
async def test_an_unknown_table_is_a_mistake_of_the_caller(ingest: Ingest, table: str) -> None:
    await ingest.send(make_batch())
    with pytest.raises(KeyError):
        await whole(tables=(table,))


async def test_a_node_that_joins_while_a_window_is_read_is_not_taken_for_another(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roster is read before the batches: what came in between was given the place of a node that exists, or none."""
    await ingest.send(make_batch(node=0))
    await ingest.send(make_batch(node=1))
    for known in (0, 1):
        monkeypatch.setattr("ingest.traces.frame.read_roster", lambda *_, known=known: before_the_other_joined(known))
        window = await whole()
        assert len(window.rows("flow")) == len(make_batch().rows("flow"))
        assert set(window.rows("flow")["node"]) == {0}


def before_the_other_joined(known: int) -> Roster:
    """The attempt's roster as if it had only one of its two nodes."""
    attempt = Attempt.objects.get()
    roster = read_roster(attempt.pk, attempt.roster_version)
    ranks = roster.ranks[roster.ranks["node"] == known].copy()
    ranks["node"] = 0
    return replace(roster, node_ids=roster.node_ids[[known]], ranks=ranks)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_reading_leaves_the_search_for_cycles_as_it_was(was_enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gc, "isenabled", lambda: was_enabled)
    monkeypatch.setattr(gc, "disable", lambda: said.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: said.append("on"))
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert said == ["off", "on"][: 1 + was_enabled]
