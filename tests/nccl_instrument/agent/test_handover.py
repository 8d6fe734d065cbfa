"""An agent killed anywhere between reading its segments and sending: the next one loses and repeats no record."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from nccl_instrument.agent.nics import NicReader
from nccl_instrument.agent.sending.bookmarks import load_bookmarks
from nccl_instrument.agent.sending.handover import Handover
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.spool import Spool
from nccl_instrument.agent.stages import files as stage_files
from nccl_instrument.agent.sweep import Sweep
from nccl_instrument.stage_records import StepRecord
from nccl_instrument.stage_ring import Ring
from nccl_instrument.stage_schema import DEFAULT
from nccl_instrument.stages import Stages
from nccl_instrument.wire import decode_batch

from .scripted_trainer import ScriptedTrainer

N_RENAMES = 3  # the bookmarks, and the batch of each of two jobs


def cut_once(segments: Path, folder: Path) -> dict[str, list[int]]:
    """What one agent does in a second, none of it sent: job → ops in the spool then."""
    bookmarks, settled = load_bookmarks(folder)
    spool, losses = Spool(folder, 2**20, settled), Losses()
    hand_over = Handover(spool, losses, lambda *_: None)
    sweep = Sweep([segments], "node", "", NicReader([]), losses, bookmarks, hand_over)
    sweep.followed.look()
    sweep.stages.look()
    sweep.cut(1)
    sweep.followed.close()
    sweep.stages.close()
    spool.close()
    batches = [decode_batch(path.read_bytes()) for path in sorted(folder.glob("*.batch"))]
    ops: dict[str, list[int]] = {}
    for batch in batches:
        ops.setdefault(batch.job, []).extend(batch.rows("op")["op"].tolist())
    return ops


def killed_before_rename(number: int, segments: Path, folder: Path) -> None:
    """Cut in a child that is killed instead of its rename `number`."""
    child = os.fork()
    if child == 0:
        renames, rename = iter(range(100)), Path.rename

        def rename_or_die(self: Path, target: Path) -> Path:
            if next(renames) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)

        Path.rename = rename_or_die  # type: ignore[method-assign]
        cut_once(segments, folder)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]) == (number < N_RENAMES)


@pytest.mark.parametrize("number", range(N_RENAMES + 1))
def test_every_record_is_in_exactly_one_batch_wherever_the_agent_was_killed(number: int, tmp_path: Path) -> None:
    segments, folder = tmp_path / "segments", tmp_path / "spool"
    trainers = [ScriptedTrainer(segments, job) for job in ("a", "b")]
    for trainer in trainers:
        trainer.do("comm", 0, 0xC0FFEE, 0, 2)
        for op in (1, 2, 3):
            trainer.do("start_op", 0, 0, op)
            trainer.do("finish_op", 0)
    folder.mkdir()
    killed_before_rename(number, segments, folder)
    assert cut_once(segments, folder) == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert list(folder.glob("*.part")) == []
    for trainer in trainers:
        trainer.kill()


def test_steps_of_a_stage_recorder_are_in_one_batch_too_and_none_is_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIOGENES_JOB", "a")
    monkeypatch.setattr(stage_files, "is_alive", lambda file: True)  # no process sees its own lock
    segments, folder = tmp_path / "segments", tmp_path / "spool"
    folder.mkdir()
    trainer, ring = ScriptedTrainer(segments, "a"), Ring(Stages(), segments, 64)
    for first in (0, 50, 100):
        for step in range(first, first + 50):
            ring.step(StepRecord(step, 6, (1,) * 6, 0, 0, 1, time.monotonic_ns()), DEFAULT)
        cut_once(segments, folder)
    batches = [decode_batch(path.read_bytes()) for path in sorted(folder.glob("*.batch"))]
    assert [batch.rows("stage")["step"].tolist() for batch in batches] == [
        list(range(first, first + 50)) for first in (0, 50, 100)
    ]
    assert sum(len(batch.rows("loss")) for batch in batches) == 0
    trainer.kill()
