"""An agent killed anywhere between reading its segments and sending: the next one loses and repeats no record."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nccl_instrument.agent.bookmarks import load_bookmarks
from nccl_instrument.agent.handover import Handover
from nccl_instrument.agent.losses import Losses
from nccl_instrument.agent.nics import NicReader
from nccl_instrument.agent.spool import Spool
from nccl_instrument.agent.sweep import Sweep
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
    sweep.cut(1)
    sweep.followed.close()
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
