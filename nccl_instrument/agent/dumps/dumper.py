"""Takes the dumps the server asks for, in a thread of its own: neither sweeping nor sending waits for it.

One request at a time, a few may wait. Each look takes what was asked of the job's processes on this node and sends it at
once, with the reason for every process that gave nothing; it is tried again while the request lives, and never kept
longer: a dump of an hour ago explains nothing. Requests that could not be served are counted (dumps_lost).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nccl_instrument.agent.dumps.kept_epochs import kept_epochs
from nccl_instrument.agent.dumps.recordings import take_recordings
from nccl_instrument.agent.dumps.sight import Seen, look_at
from nccl_instrument.agent.dumps.stacks import take_stacks
from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import Door, Order
from nccl_instrument.agent.traffic.traffic import Raw
from nccl_instrument.dumps import EPOCHS, RECORDER, STACKS, Dumps, Part, Room, encode_dumps

LOG = logging.getLogger("diogenes.agent")

WAITING_MAX: Final = 4
REMEMBERED_MAX: Final = 1000
LIFE_S: Final = 60.0
"""So long after the server asked an answer is of use."""
RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 5.0
STOP_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Here:
    """What the agent has of a job at this moment. boot: 16 bytes, of its stream of batches. raws: pid → the iterations of which
    it kept the epochs.
    """

    boot: bytes
    processes: tuple[Living, ...]
    raws: Mapping[int, Sequence[Raw]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asked:
    job: str
    order: Order
    until: float


class Dumper(threading.Thread):
    """`ask` from any thread. here(job): the job's processes on this node, None when it has none any more."""

    def __init__(self, door: Door, node: str, losses: Losses, here: Callable[[str], Here | None]) -> None:
        super().__init__(name="dumper", daemon=True)
        self._door, self._node, self._losses, self._here = door, node, losses, here
        self._asked: queue.Queue[_Asked | None] = queue.Queue(WAITING_MAX)
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._stopped = threading.Event()

    def ask(self, job: str, orders: Sequence[Order]) -> None:
        """Take these dumps soon, each once; never blocks."""
        for order in orders:
            key = (job, order.request)
            if key in self._seen or self._stopped.is_set():
                continue
            self._seen[key] = None
            if len(self._seen) > REMEMBERED_MAX:
                self._seen.popitem(last=False)
            try:
                self._asked.put_nowait(_Asked(job, order, time.monotonic() + LIFE_S))
            except queue.Full:
                self._lose(job, order, f"{WAITING_MAX} requests wait already")

    def stop(self) -> None:
        """Let go of what waits, and of what is under way."""
        self._stopped.set()
        self._door.interrupt()
        with contextlib.suppress(queue.Full):  # then it will notice after the one it is at
            self._asked.put_nowait(None)
        if self.is_alive():
            self.join(STOP_S)

    def run(self) -> None:
        while (asked := self._asked.get()) is not None and not self._stopped.is_set():
            try:
                self._serve(asked)
            except Exception as error:  # tracing must not end for want of a stack
                self._lose(asked.job, asked.order, f"{error!r}")
        self._door.close()

    def _serve(self, asked: _Asked) -> None:
        for look in range(1, asked.order.looks + 1):
            if look > 1 and self._stopped.wait(asked.order.apart_s):
                return
            here = self._here(asked.job)
            if here is None:
                return  # the job has ended here: its batches end too, which says so
            dumps = Dumps(
                asked.job, self._node, here.boot.hex(), asked.order.request, look, self._take(asked, here, look)
            )
            if not self._bring(asked, encode_dumps(dumps)):
                return

    def _take(self, asked: _Asked, here: Here, look: int) -> tuple[Part, ...]:
        order = asked.order
        wanted = [look_at(one) for one in here.processes if order.ranks is None or one.rank in order.ranks]
        kinds = [kind for kind in order.kinds if kind == STACKS or look == 1]
        reachable = [one for one in wanted if one.number and one.is_alive]
        others = [one for one in wanted if _is_another(one)]
        found, room = [_unseen(one) for one in wanted if one not in reachable] if STACKS in kinds else [], Room()
        if STACKS in kinds:
            pairs = [(one.of.rank, one.number) for one in reachable]
            found += take_stacks(pairs, room=room, is_over=self._stopped.is_set)
        if RECORDER in kinds:  # also of those that are gone: they may have left something
            found += [replace(_unseen(one), kind=RECORDER) for one in others]
            found += take_recordings([one.of for one in wanted if one not in others], room=room)
        if EPOCHS in kinds:
            found += [room.admit(kept_epochs(one.of, here.raws.get(one.of.pid))) for one in wanted]
        return tuple(found)

    def _bring(self, asked: _Asked, body: bytes) -> bool:
        """Whether the server has it."""
        pause_s, why = RETRY_S, "it was taken too late"
        while time.monotonic() < asked.until:
            try:
                answer = self._door.post(body)
            except OSError as error:
                asked_s, why = 0.0, f"cannot reach the server: {error}"
            else:
                if answer.is_accepted:
                    return True
                asked_s, why = answer.retry_after_s or 0.0, f"the server answers {answer.status} {answer.reason}"
                if answer.is_refused:
                    break
            if self._stopped.wait(max(random.uniform(pause_s / 2, pause_s), asked_s * random.uniform(1.0, 1.5))):
                return False
            pause_s = min(2 * pause_s, RETRY_S_MAX)
        self._lose(asked.job, asked.order, why)
        return False

    def _lose(self, job: str, order: Order, why: str) -> None:
        self._losses.add(job, "dumps_lost")
        LOG.warning("request %d for dumps of job %s is left: %s", order.request, job, why)


def _is_another(one: Seen) -> bool:
    """Whether its number means a process of somebody else, or a later one, which must not be looked at."""
    return one.is_another and not one.is_alive


def _unseen(one: Seen) -> Part:
    """Nothing can be taken of this process."""
    why = "the process is gone"
    if one.is_alive:
        why = (
            "it runs in a container whose processes cannot be seen from here: run the agent in the node's pid namespace"
        )
    elif one.is_another:
        why = "another process has its number here: it ended, or is numbered in a container"
    return Part(STACKS, one.of.rank, one.of.pid, 0, "", time.time_ns(), why, "")
