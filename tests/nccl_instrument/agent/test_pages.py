"""Segments of another user are copied, not mapped: the same rows come out, and a truncated file kills no agent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_instrument.agent.processes.pages import Copied, Mapped
from nccl_instrument.agent.processes.segment import Segment

from .scripted_trainer import N_ROWS, ScriptedTrainer


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[ScriptedTrainer]:
    trainer = ScriptedTrainer(tmp_path)
    trainer.do("comm", 0, 0xC0FFEE, 0, 2)
    yield trainer
    if trainer.process.poll() is None:
        trainer.kill()


@pytest.fixture
def copied(trainer: ScriptedTrainer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Segment]:
    """The trainer's segment as the agent of another user opens it."""
    mine = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: mine + 1)
        segment = Segment.open(trainer.path)
    yield segment
    segment.close()


def test_only_our_own_files_are_mapped(trainer: ScriptedTrainer, copied: Segment) -> None:
    assert isinstance(copied._pages, Copied)
    ours = Segment.open(trainer.path)
    assert isinstance(ours._pages, Mapped)
    ours.close()


def test_a_copied_segment_shows_what_a_mapped_one_shows(trainer: ScriptedTrainer, copied: Segment) -> None:
    mapped, ring = Segment.open(trainer.path), copied.op_ring()
    for op in (1, 2):
        trainer.do("start_op", op, 0, op)
        trainer.do("move", op)
    trainer.do("finish_op", 1)
    trainer.do("count", "ops_lost", 3)
    for read in (Segment.comms, Segment.live_ops, Segment.live_flows):
        assert len(read(copied)) and read(copied).tobytes() == read(mapped).tobytes()
    assert ring.drain()[0].tobytes() == mapped.op_ring().drain()[0].tobytes()
    assert copied.counters() == mapped.counters() and copied.counters()["ops_lost"] == 3
    assert copied.last_callback_ns == mapped.last_callback_ns > 0 and not copied.is_closed
    trainer.do("move", 2)
    assert copied.live_flows()["counters"].tolist() == [[2] * 4] * 2
    mapped.close()


def test_the_end_and_the_beginning_of_the_ring_are_copied_together(trainer: ScriptedTrainer, copied: Segment) -> None:
    trainer.do("start_op", 0, 0, 1)
    trainer.do("overwrite_ring", 10)
    rows, lost = copied.op_ring().drain()
    assert (len(rows), lost) == (N_ROWS["ring"], 0)


def test_a_file_its_owner_truncates_is_an_error_and_no_signal(trainer: ScriptedTrainer, copied: Segment) -> None:
    trainer.do("start_op", 0, 0, 1)
    assert len(copied.live_flows()) == 2
    trainer.kill()
    os.truncate(trainer.path, 4096)
    for read in (copied.live_flows, copied.live_ops, copied.comms):
        with pytest.raises(ValueError, match="truncated"):
            read()
