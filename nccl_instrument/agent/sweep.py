"""The agent's clock: ten sweeps a second over the flows in progress, and once a second a batch for every job.

A job gets its batch even when nothing happens, for as long as it has a process here: only then does silence on the
server mean that the node, or this agent, is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nccl_instrument.agent.dumps.dumper import Here
from nccl_instrument.agent.nics import NicReader
from nccl_instrument.agent.plain import stack
from nccl_instrument.agent.processes.follow import Followed, uid_of
from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.agent.processes.rows import tables_of
from nccl_instrument.agent.processes.statuses import Statuses
from nccl_instrument.agent.processes.trainer import Bookmark, Trainer
from nccl_instrument.agent.sending.batches import NOWHERE, Standpoint, cut_batch, declare, read_clocks
from nccl_instrument.agent.sending.jobs import JobStream
from nccl_instrument.agent.sending.losses import ANY_JOB, Losses
from nccl_instrument.agent.stages.files import StageFiles
from nccl_instrument.agent.traffic.sampling import Sampling
from nccl_instrument.agent.verbs.files import VerbsFiles
from nccl_instrument.wire import Rows

LOG = logging.getLogger("diogenes.agent")

SWEEP_NS: Final = 10**8
SWEEPS_PER_CUT: Final = 10
CLOCK_STEP_NS: Final = 5 * 10**7  # NTP slews at most 0.5 ms a second; more in one second is a step

_SENSELESS: Final = (ValueError, OverflowError, IndexError, OSError)

HandOver = Callable[[Sequence[tuple[str, bytes]], Mapping[str, Bookmark]], None]


class Sweep:
    """Everything the agent does but sending. One thread calls `run`; `ask_for` may be called from any."""

    def __init__(
        self,
        folders: Sequence[Path],
        node: str,
        ip: str,
        nics: NicReader,
        losses: Losses,
        bookmarks: Mapping[str, Bookmark],
        hand_over: HandOver,
        sampling: Sampling | None = None,
        standpoint: Standpoint = NOWHERE,
    ) -> None:
        self.node, self.streams = node, dict[str, JobStream]()
        self._standpoint = standpoint
        names, sampling = [nic.name for nic in nics.nics], sampling or Sampling()
        self.followed = Followed(folders, names, ip, bookmarks, self._count_once, sampling)
        self._statuses = Statuses(folders, ip, self._count_once)
        self.stages = StageFiles(folders, losses.add, bookmarks)
        self.verbs = VerbsFiles(folders, self._count_once, sampling)
        self._nics, self._losses, self._hand_over = nics, losses, hand_over
        self._clock_offset_ns = 0
        self._here: dict[str, Here] = {}  # replaced as a whole, so that another thread may look

    def run(self, stopped: threading.Event) -> None:
        """Sweep until `stopped`, then cut what is left."""
        sweeps, due_ns = 0, time.monotonic_ns()
        while not _is_set_after(stopped, due_ns):
            if sweeps % SWEEPS_PER_CUT == 0:
                self.followed.look()
                self._statuses.look()
                self.stages.look()
                self.verbs.look()
            self.sweep(time.monotonic_ns())
            sweeps += 1
            if sweeps % SWEEPS_PER_CUT == 0:
                self.cut(time.monotonic_ns())
            due_ns = self._next_due_ns(due_ns)
        self.cut(time.monotonic_ns())
        self.followed.close()
        self._statuses.close()
        self.stages.close()
        self.verbs.close()

    def sweep(self, tick_ns: int) -> None:
        for trainer in list(self.followed.trainers.values()):
            if trainer.is_alive:
                try:  # not _guarding: of what is done so often it would be a sixth
                    trainer.sweep(tick_ns)
                except _SENSELESS as error:
                    self._abandon(trainer, error)

    def cut(self, tick_ns: int) -> None:
        """A batch for every job that has a process here; then let go of what has ended."""
        clocks = read_clocks()
        self._notice_clock_step(clocks)
        jobs = self.followed.jobs() | self._statuses.jobs()
        nics = self.verbs.with_errors(self._nics.rows(tick_ns))
        for trainer in self.followed.of_job(""):
            with self._guarding(trainer):
                trainer.cut(tick_ns)
        streams = [self.streams.setdefault(job, JobStream(job)) for job in sorted(jobs)]
        cut = [(stream.job, self._cut_job(stream, nics, tick_ns, clocks)) for stream in streams]
        self._hand_over(cut, self.followed.bookmarks() | self.stages.bookmarks())
        self._here = {stream.job: self._here_of(stream) for stream in streams}
        self.followed.retire()
        self._statuses.retire()
        self.stages.retire()
        self.verbs.retire()
        jobs = self.followed.jobs() | self._statuses.jobs()
        self.streams = {job: stream for job, stream in self.streams.items() if job in jobs}

    def ask_for(self, job: str, tables: tuple[str, ...]) -> None:
        """The server wants `tables` of `job` again."""
        stream = self.streams.get(job)
        if stream is not None:
            stream.ask_for(tables)

    def here(self, job: str) -> Here | None:
        """The job's processes as of the last cut. Any thread may ask."""
        return self._here.get(job)

    def _here_of(self, stream: JobStream) -> Here:
        traced = self.followed.of_job(stream.job)
        processes = [
            Living(one.rank, one.owner.pid, one.owner.started, one.segment.path.parent, uid_of(one.segment.path))
            for one in traced
        ]
        others = self._statuses.living(stream.job, {one.pid for one in processes})
        raws = {one.owner.pid: tuple(one.traffic.raw) for one in traced if one.traffic is not None}
        return Here(stream.boot_id, (*processes, *others), raws)

    def _cut_job(self, stream: JobStream, nics: Rows, tick_ns: int, clocks: tuple[int, int]) -> bytes:
        taken = []
        for trainer in self.followed.of_job(stream.job):
            with self._guarding(trainer):
                taken.append(trainer.cut(tick_ns))
                for kind, count in trainer.losses().items():
                    self._losses.add(stream.job, kind, count, trainer.owner.pid)
        all_comms = stream.owes_comms(tick_ns)
        tables = {"nic": nics, **tables_of(taken, tick_ns, all_comms)}
        tables["traffic"] = stack([self.verbs.named(tables["traffic"]), self.verbs.moved(taken)])
        for pid, count in self.verbs.refused().items():
            self._losses.add(stream.job, "rows_over_limit", count, pid)
        for pid, count in self.verbs.unowned().items():
            self._losses.add(stream.job, "unowned_bytes", count, pid)
        traced = {one.owner.pid for one in taken}
        for table, rows in self._statuses.tables(stream.job, tick_ns, traced, all_comms=all_comms).items():
            tables[table] = stack([tables[table], rows]) if len(tables.get(table, ())) else rows
        tables |= self.stages.tables(stream.job, tick_ns)
        declare(tables["comm"], self._standpoint)
        return cut_batch(stream, self.node, tables, self._losses, clocks)

    @contextmanager
    def _guarding(self, trainer: Trainer) -> Iterator[None]:
        """A segment is another process's memory: numbers in it that cannot be worked with end this trainer's trace alone."""
        try:
            yield
        except _SENSELESS as error:
            self._abandon(trainer, error)

    def _abandon(self, trainer: Trainer, error: Exception) -> None:
        self.followed.abandon(trainer, f"its content makes no sense: {error}")

    def _next_due_ns(self, due_ns: int) -> int:
        """The next point of the 100 ms grid; points already missed are counted and skipped, never caught up."""
        due_ns += SWEEP_NS
        n_missed = (time.monotonic_ns() - due_ns) // SWEEP_NS
        if n_missed > 0:
            self._count_everywhere("late_sweeps", n_missed)
            due_ns += n_missed * SWEEP_NS
        return due_ns

    def _notice_clock_step(self, clocks: tuple[int, int]) -> None:
        before, self._clock_offset_ns = self._clock_offset_ns, clocks[0] - clocks[1]
        step_ns = self._clock_offset_ns - before
        if before and abs(step_ns) > CLOCK_STEP_NS:
            LOG.warning("the wall clock was set by %.3f s", step_ns / 1e9)
            self._count_everywhere("clock_steps", 1)

    def _count_once(self, kind: str, pid: int) -> None:
        """A process that cannot be sent: every job of the node is told, or the first one that comes."""
        for job in self.streams or (ANY_JOB,):
            self._losses.add(job, kind, 1, pid)

    def _count_everywhere(self, kind: str, count: int) -> None:
        for job in self.streams:
            self._losses.add(job, kind, count)


def _is_set_after(stopped: threading.Event, due_ns: int) -> bool:
    """Sleeps until `due_ns`: at most a tenth of a second, for a fraction of what it costs to wait for the event itself."""
    time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
    return stopped.is_set()
