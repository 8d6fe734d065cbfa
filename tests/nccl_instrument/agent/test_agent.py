"""The agent as a process, between real segments and a real server: what it sends of live, stuck, dead and ended ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes import trainer as trainer_module
from nccl_instrument.agent.processes.rows import DURATION_STEP_NS, Owner
from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.agent.processes.trainer import Bookmark, Trainer
from nccl_instrument.agent.traffic.sampling import Sampling
from nccl_instrument.tables import LOSSES

from .conftest import Node
from .scripted_server import Reply, wait_until
from .scripted_trainer import ScriptedTrainer

WORLD = 0xC0FFEE


def test_a_rank_in_an_op_is_sent_as_every_table_tells_it(node: Node) -> None:
    trainer = node.trainer(rank=3, nic="eth7", tp=1, restart_count=2)
    trainer.do("comm", 0, WORLD, 1, 2)
    trainer.do("start_op", 0, 0, 1)
    trainer.do("finish_op", 0)
    trainer.do("start_op", 1, 0, 2)
    trainer.do("move", 1)
    node.start_agent("--nic", f"eth7={node.folder}", "--rack", "r12", DIOGENES_CLUSTER="north")
    first, *_ = node.next_batches(2)

    assert (first.node, first.job, first.number) == ("node-a", "job", 0)
    comm = first.rows("comm")[0]
    assert comm[["comm_id", "comm_rank", "n_ranks", "global_rank", "tp", "pp", "restart_count"]].item() == (
        WORLD, 1, 2, 3, 1, -1, 2,
    )  # fmt: skip
    assert (comm["pid"], comm["ip"], comm["nic"], comm["name"]) == (trainer.pid, b"127.0.0.1", b"eth7", b"world")
    assert (comm["cluster"], comm["rack"]) == (b"north", b"r12")
    assert first.rows("op")["op"].tolist() == [1]
    assert first.rows("op")["done_ns"][0] > first.rows("op")["enqueued_ns"][0] > 0
    assert first.rows("live_op")["op"].tolist() == [2]
    assert first.rows("progress")[["n_enqueued", "n_done"]].tolist() == [(2, 1)]
    process = first.rows("process")[0]
    assert (process["pid"], process["global_rank"], process["alive"]) == (trainer.pid, 3, 1)
    assert chr(process["state"]) in "RS"
    assert process["cpu_ns"] > 0 and process["n_threads"] >= 1 and process["io_bytes"] > 0
    assert first.rows("nic")[["index", "name"]].tolist() == [(0, b"eth7")]
    flow = first.rows("flow")[0]
    assert flow[["op", "total_chunks", "nic"]].item() == (2, 8, 0)
    assert flow["counters"].tolist() == [1, 1, 1, 1]


def test_flows_that_stand_still_are_sent_at_every_sweep_with_a_growing_stuck_time(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    trainer.do("start_op", 0, 0, 1)
    node.start_agent()
    node.next_batches(1)
    for batch in node.next_batches(2):
        sends = batch.rows("flow")[batch.rows("flow")["direction"] == 0]
        assert 3 <= len(sends) <= 11  # ten, on a machine with time to spare
        assert (abs(np.diff(sends["stuck_ns"]) - np.diff(sends["tick_ns"])) < DURATION_STEP_NS).all()
        assert (np.diff(sends["tick_ns"]) > 0).all()


def test_an_idle_job_is_still_heard_every_second(node: Node) -> None:
    node.trainer()
    node.start_agent()
    batches = node.next_batches(3)
    assert [batch.number for batch in batches] == [0, 1, 2]
    assert all(len(batch.rows("process")) == 1 for batch in batches)


def test_each_job_of_the_node_has_its_own_stream(node: Node) -> None:
    for job, rank in (("a", 0), ("a", 1), ("b", 0)):
        node.trainer(job, rank).do("comm", 0, WORLD, rank, 2)
    node.start_agent()
    ours, other = node.next_batches(2, "a"), node.next_batches(2, "b")
    assert sorted(ours[0].rows("process")["global_rank"]) == [0, 1]
    assert [batch.rows("process")["global_rank"].tolist() for batch in other] == [[0], [0]]
    assert {batch.boot_id for batch in ours}.isdisjoint({batch.boot_id for batch in other})
    assert (node.batches("a")[0].number, node.batches("b")[0].number) == (0, 0)


def test_a_process_without_a_job_name_is_left_out_with_advice(node: Node) -> None:
    nameless, named = node.trainer(job=""), node.trainer()
    node.start_agent()
    node.next_batches(2)
    assert node.rows("process")["pid"].tolist().count(named.pid) >= 2
    assert nameless.pid not in node.rows("process")["pid"]
    assert node.log.read_text().count("set DIOGENES_JOB") == 1
    assert losses(node) == {"unnamed_processes": 1}
    assert node.rows("loss")["pid"][node.rows("loss")["kind"] == LOSSES.index("unnamed_processes")] == [nameless.pid]
    nameless.kill()
    wait_until(lambda: not nameless.path.exists())


def test_a_killed_rank_is_reported_gone_with_what_it_was_doing(node: Node) -> None:
    trainer, witness = node.trainer(rank=0), node.trainer(rank=1)
    trainer.do("comm", 0, WORLD, 0, 2)
    trainer.do("start_op", 0, 0, 1)
    trainer.do("move", 0)
    node.start_agent()
    node.next_batches(1)
    trainer.kill()
    node.next_batches(1)
    for batch in node.next_batches(2):
        states = {row["pid"]: (row["alive"], chr(row["state"])) for row in batch.rows("process")}
        assert states[trainer.pid] == (0, "X")
        assert states[witness.pid][0] == 1
        assert batch.rows("flow")["counters"].tolist() == [[1] * 4] * 2
        assert batch.rows("live_op")["op"].tolist() == [1]
    assert trainer.path.exists()


def test_a_new_process_of_the_same_rank_takes_the_place_of_the_dead_one(node: Node) -> None:
    dead = node.trainer(rank=5)
    dead.do("comm", 0, WORLD, 0, 2)
    node.start_agent()
    node.next_batches(1)
    dead.kill()
    fresh = node.trainer(rank=5)
    wait_until(lambda: not dead.path.exists())
    assert [batch.rows("process")["pid"].tolist() for batch in node.next_batches(2)][-1] == [fresh.pid]


def test_a_frozen_rank_is_alive_and_stopped(node: Node) -> None:
    trainer = node.trainer()
    node.start_agent()
    node.next_batches(1)
    os.kill(trainer.pid, signal.SIGSTOP)
    last = node.next_batches(3)[-1].rows("process")[0]
    os.kill(trainer.pid, signal.SIGCONT)
    assert (last["alive"], chr(last["state"])) == (1, "T")


def test_a_job_that_ends_is_told_so_once_and_leaves_nothing_behind(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    trainer.do("start_op", 0, 0, 1)
    node.start_agent()
    node.next_batches(1)
    trainer.do("finish_op", 0)
    trainer.exit()
    wait_until(lambda: not trainer.path.exists())
    witness = node.trainer("other")
    node.next_batches(3, "other")
    assert witness.pid
    assert node.batches()[-1].rows("process")[["alive", "state"]].tolist() == [(0, ord("X"))]
    assert (node.rows("process")["alive"] == 0).sum() == 1
    assert node.rows("op")["op"].tolist() == [1]


def test_a_stopped_agent_spools_and_its_successor_repeats_no_record(node: Node) -> None:
    node.server.rule = lambda batch: Reply(503)
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    trainer.do("count", "op_table_full", 7)
    finish_ops(trainer, range(1, 4))
    node.start_agent()
    wait_until(lambda: node.server.asked)
    finish_ops(trainer, range(4, 6))
    node.stop_agent()
    node.server.rule = lambda batch: Reply()
    finish_ops(trainer, range(6, 8))
    node.start_agent()
    wait_until(lambda: len(node.rows("op")) >= 7)
    node.next_batches(2)
    assert sorted(node.rows("op")["op"]) == list(range(1, 8))
    assert len({batch.boot_id for batch in node.batches()}) == 2
    assert losses(node) == {"table_full": 7}


def finish_ops(trainer: object, ops: range) -> None:
    for op in ops:
        trainer.do("start_op", 0, 0, op)  # type: ignore[attr-defined]
        trainer.do("finish_op", 0)  # type: ignore[attr-defined]


def losses(node: Node) -> dict[str, int]:
    """All that was told but late sweeps: those depend on what else the machine does."""
    rows = node.rows("loss")
    rows = rows[rows["kind"] != LOSSES.index("late_sweeps")]
    return {LOSSES[kind]: int(rows["count"][rows["kind"] == kind].sum()) for kind in np.unique(rows["kind"])}


def test_a_killed_agent_leaves_a_node_its_successor_can_go_on_with(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    finish_ops(trainer, range(1, 4))
    node.start_agent()
    node.next_batches(2)
    node.stop_agent(signal.SIGKILL)
    node.start_agent()
    second = node.next_batches(2)[-1]
    assert second.boot_id != node.batches()[0].boot_id
    assert node.rows("op")["op"].tolist() == [1, 2, 3]
    fresh = [batch for batch in node.batches() if batch.boot_id == second.boot_id]
    assert len(fresh[0].rows("comm")) == 1


@pytest.mark.parametrize("part", ["sweep", "uplink"])
def test_an_agent_a_thread_of_which_crashes_ends_for_its_service_manager(node: Node, part: str) -> None:
    bug = {"sweep": "sweep.Sweep.sweep = broken", "uplink": "uplink.Uplink._step = broken"}[part]
    node.trainer()
    node.start_agent(bug=bug)
    assert node.agent is not None and node.agent.wait(15) == 1
    node.agent = None


def test_ops_whose_stops_are_missing_are_told_as_lost(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("count", "ops_lost", 3)
    node.start_agent()
    node.next_batches(2)
    assert losses(node) == {"unfinished_ops": 3}


def test_communicators_are_sent_at_first_when_one_appears_and_when_asked_for(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    node.start_agent()
    finish_ops(trainer, range(1, 3))
    node.next_batches(2)
    n_sent = len(node.rows("comm"))
    finish_ops(trainer, range(3, 5))
    node.next_batches(2)
    assert (len(node.batches()[0].rows("comm")), len(node.rows("comm"))) == (1, n_sent)
    trainer.do("comm", 1, WORLD + 1, 0, 4)
    n_sent = len(node.rows("comm"))
    wait_until(lambda: len(node.rows("comm")) == n_sent + 2)
    node.next_batches(1)
    node.server.script = [Reply(202, said={"resend": ["comm"]})]
    wait_until(lambda: len(node.rows("comm")) == n_sent + 4)


def test_mapping_a_segment_anew_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "CUTS_PER_MAPPING", 1)
    scripted = ScriptedTrainer(tmp_path)
    scripted.do("comm", 0, WORLD, 0, 2)
    segment = Segment.open(scripted.path)
    followed = Trainer(segment, Owner(scripted.pid, segment.starttime, 1, "", -1, segment.identity()), Bookmark())
    finish_ops(scripted, range(1, 3))
    assert followed.cut(1).ops["op"].tolist() == [1, 2]
    assert followed.segment is not segment
    finish_ops(scripted, range(3, 4))
    assert followed.cut(2).ops["op"].tolist() == [3]
    scripted.path.unlink()
    finish_ops(scripted, range(4, 5))
    assert followed.cut(3).ops["op"].tolist() == [4]
    scripted.kill()
    assert not followed.cut(4).process[1]
    followed.close()


def test_what_is_measured_hears_of_records_that_were_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted, told = ScriptedTrainer(tmp_path), list[int]()
    scripted.do("comm", 0, WORLD, 0, 2)
    segment = Segment.open(scripted.path)
    owner = Owner(scripted.pid, segment.starttime, 1, "", -1, segment.identity())
    followed = Trainer(segment, owner, Bookmark(), Sampling())
    assert followed.traffic is not None
    monkeypatch.setattr(followed.traffic, "lose_ops", told.append)
    scripted.do("overwrite_ring", 5)
    followed.cut(1)
    assert sum(told) >= 5 and followed.losses()["ring_records"] == sum(told)
    scripted.kill()
    followed.close()


def test_records_overwritten_before_they_were_read_are_counted(node: Node) -> None:
    trainer = node.trainer()
    trainer.do("comm", 0, WORLD, 0, 2)
    node.start_agent()
    node.next_batches(1)
    trainer.do("overwrite_ring", 100)
    node.next_batches(2)
    assert losses(node) == {"ring_records": 100}


def test_a_file_that_is_no_segment_is_left_alone_and_counted(node: Node) -> None:
    node.trainer()
    node.start_agent()
    node.next_batches(1)
    foreign = node.segments / f"diogenes.{os.geteuid()}.4242.1"
    foreign.write_bytes(b"something else" * 1000)
    wait_until(lambda: losses(node) == {"segments_unreadable": 1})
    node.next_batches(2)
    assert losses(node) == {"segments_unreadable": 1}
    assert foreign.exists()


def test_a_segment_whose_numbers_make_no_sense_costs_the_others_nothing(node: Node) -> None:
    mad, sane = node.trainer(rank=0), node.trainer(rank=1)
    node.start_agent()
    node.next_batches(1)
    mad.do("go_mad")
    wait_until(lambda: losses(node) == {"segments_unreadable": 1})
    assert node.next_batches(2)[-1].rows("process")["pid"].tolist() == [sane.pid]
    assert "makes no sense" in node.log.read_text()
    assert mad.path.exists()


def test_a_dead_process_whose_segment_somebody_removed_is_forgotten(node: Node) -> None:
    dead, witness = node.trainer(rank=0), node.trainer(rank=1)
    dead.do("comm", 0, WORLD, 0, 2)
    node.start_agent()
    node.next_batches(1)
    dead.kill()
    dead.path.unlink()
    wait_until(lambda: node.batches()[-1].rows("process")["pid"].tolist() == [witness.pid])
    assert (node.rows("process")["alive"] == 0).sum() >= 1


def test_a_segment_left_by_a_process_of_long_ago_is_removed_unreported(node: Node) -> None:
    old = node.trainer("old")
    old.do("backdate", 3600)
    old.kill()
    node.trainer()
    node.start_agent()
    node.next_batches(2)
    assert not old.path.exists()
    assert node.batches("old") == []
