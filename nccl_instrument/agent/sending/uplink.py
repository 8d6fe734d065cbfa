"""Brings batches to the server, in a thread of its own, so that no network ever holds up the sweep.

While the server answers, fresh batches go first and the spool drains in the gaps, so that the page stays live after an
outage; a server that is busy slows the draining down, not the fresh ones. While it does not answer, batches wait in the
spool and the oldest or the newest one knocks every few seconds: one batch the server chokes on must not hold up others.
Refused batches are dropped and counted, and so is one that is turned away again and again while others get through;
nothing is retried for ever.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nccl_instrument.agent.sending.kafka import KafkaDoor
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import Answer, Door, Order
from nccl_instrument.agent.sending.spool import Spool

LOG = logging.getLogger("diogenes.agent")

FRESH_MAX: Final = 64  # batches in memory while one request is under way: a minute of one job
FRESH_BYTES_MAX: Final = 16 * 2**20
BACKOFF_S: Final = 0.5
BACKOFF_S_MAX: Final = 5.0  # jittered; the server must hear of every node within seconds of its return
UNAUTHORISED_S: Final = 30.0
SPOOL_PAUSE_S: Final = 0.05  # between two spooled batches: draining an hour takes minutes, not the trainer's CPU
SPOOL_PAUSE_S_MAX: Final = (
    5.0  # where a busy server sends spooled batches away: all nodes drain at once after an outage
)
POISON_TRIES: Final = 5
BUSY_TRIES: Final = (
    20  # a busy server, or a proxy of which one half works, turns any batch away; usually not the next time
)
NO_FAULT: Final = frozenset({401, 429, 507})  # no token, no turn, no room: no batch's fault, however often it is said
STOP_S: Final = 2.0

Resend = Callable[[str, tuple[str, ...]], None]
Ask = Callable[[str, tuple[Order, ...]], None]


@dataclass(frozen=True, slots=True)
class Fresh:
    """A batch that was not sent yet. `name` is its name in the spool, '' when it is in memory alone."""

    job: str
    encoded: bytes
    name: str


class Uplink(threading.Thread):
    """`offer` batches from any thread; `stop` sends or spools what is left.

    `resend(job, tables)` is called, in this thread, when the server wants tables of a job again, `ask(job, orders)` when it
    wants dumps; neither may block.
    """

    def __init__(self, door: Door | KafkaDoor, spool: Spool, losses: Losses) -> None:
        super().__init__(name="uplink", daemon=True)
        self._door, self._spool, self._losses = door, spool, losses
        self.resend: Resend = lambda job, tables: None
        self.ask: Ask = lambda job, orders: None
        self._fresh: deque[Fresh] = deque()
        self._fresh_bytes = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._stop_by = float("inf")
        self._is_down = False
        self._failures = 0
        self._retry_at = self._spool_at = 0.0
        self._spool_pause_s = SPOOL_PAUSE_S
        self._said = ""
        self._n_accepted = 0
        self._poison: dict[str, tuple[int, int]] = {}  # spooled batch → (tries that count, _n_accepted at the last)

    def offer(self, job: str, encoded: bytes, name: str = "") -> None:
        """Queue a batch of `job`; never blocks. When the thread cannot keep up, the oldest leave memory.

        Those that are in the spool (`name`) wait there, the others are lost and counted.
        """
        gone = []
        with self._wake:
            self._fresh.append(Fresh(job, encoded, name))
            self._fresh_bytes += len(encoded)
            while len(self._fresh) > FRESH_MAX or self._fresh_bytes > FRESH_BYTES_MAX:
                gone.append(self._take_fresh())
            self._wake.notify()
        for lost in gone:
            if not lost.name:
                self._losses.add_batch(lost.encoded, "spool_batches")

    def _take_fresh(self) -> Fresh:
        fresh = self._fresh.popleft()
        self._fresh_bytes -= len(fresh.encoded)
        return fresh

    def stop(self) -> None:
        """Send what is fresh for at most STOP_S, spool the rest, end the thread."""
        with self._wake:
            self._stopping, self._stop_by = True, time.monotonic() + STOP_S
            self._wake.notify()
        self.join(STOP_S)
        self._door.interrupt()
        self.join(STOP_S + 1)

    def run(self) -> None:
        while not self._stopping:
            self._step()
        while self._fresh and not self._is_down and time.monotonic() < self._stop_by:
            self._send_fresh()
        self._spool_fresh()
        self._door.close()

    def _step(self) -> None:
        now = time.monotonic()
        may_knock = not self._is_down or now >= self._retry_at
        if self._fresh and self._is_down and (len(self._spool) or not may_knock):
            self._spool_fresh()
        elif self._fresh:
            self._send_fresh()
        elif len(self._spool) and may_knock and now >= self._spool_at:
            self._send_spooled()
        else:
            self._sleep(self._retry_at - now if self._is_down else self._spool_at - now)

    def _sleep(self, pause_s: float) -> None:
        with self._wake:
            if not self._fresh and not self._stopping:
                self._wake.wait(min(max(pause_s, 0.001), 1.0) if len(self._spool) else 1.0)

    def _send_fresh(self) -> None:
        with self._wake:
            fresh = self._take_fresh()
        if fresh.name and fresh.name not in self._spool:
            return  # it had to go for a newer one, counted then
        is_over = self._deliver(fresh.job, fresh.encoded, fresh.name)
        if is_over and fresh.name:
            self._drop_spooled(fresh.name)
        elif not is_over and not fresh.name:
            self._store(fresh.encoded)

    def _send_spooled(self) -> None:
        name = self._candidate()
        if name is None:
            return
        encoded = self._spool.read(name)
        if encoded is None and name in self._spool:  # else it had to go for a newer one, counted then
            self._losses.add_batch(b"", "spool_batches")
            LOG.warning("the spooled batch %s cannot be read; dropped and counted", name)
        if encoded is None or self._deliver("", encoded, name):
            self._drop_spooled(name)
            self._spool_pause_s = max(self._spool_pause_s * 0.8, SPOOL_PAUSE_S)
            self._spool_at = time.monotonic() + self._spool_pause_s

    def _drop_spooled(self, name: str) -> None:
        self._spool.remove(name)
        self._poison.pop(name, None)

    def _candidate(self) -> str | None:
        """The oldest batch; the oldest or the newest while the server fails on one, so that this one cannot hold up all.

        By chance, not in turns: a server that lets through one batch per pause would else always refuse the same one.
        """
        is_newest_tried = self._failures and self._poison and random.random() < 0.5
        return self._spool.newest() if is_newest_tried else self._spool.oldest()

    def _deliver(self, job: str, encoded: bytes, name: str = "") -> bool:
        """Post one batch; True when it needs no second try (accepted, refused or given up)."""
        try:
            answer = self._door.post(encoded)
        except OSError as error:
            self._back_off(f"cannot reach the server: {error}")
            return False
        if answer.is_accepted:
            self._accepted(job, answer)
            return True
        if answer.is_refused:
            self._came_back()
            self._give_up(encoded, f"the server refused a batch: {answer.status} {answer.reason}")
            return True
        if answer.status == 429 and not job and not self._is_down:
            self._drain_slower(answer.retry_after_s)
            return False
        return self._turned_away(encoded, name, answer)

    def _drain_slower(self, asked_s: float | None) -> None:
        """The server takes fresh batches but has no room for this spooled one: it keeps its place, and waits longer."""
        self._spool_pause_s = min(self._spool_pause_s * 2, SPOOL_PAUSE_S_MAX)
        self._spool_at = time.monotonic() + max(asked_s or 0.0, self._spool_pause_s) * random.uniform(1.0, 1.5)

    def _accepted(self, job: str, answer: Answer) -> None:
        self._came_back()
        self._n_accepted += 1
        if answer.resend and job:
            self.resend(job, answer.resend)
        if answer.dumps and job:
            self.ask(job, answer.dumps)
        if answer.requests:
            LOG.warning("the server asks for %s, which this agent cannot do", ", ".join(answer.requests))

    def _turned_away(self, encoded: bytes, name: str, answer: Answer) -> bool:
        """Not now: wait as told. A batch that fails again and again while others get through is given up."""
        if name and answer.status >= 400 and answer.status not in NO_FAULT:
            tries = self._count_try(name)
            if tries >= (BUSY_TRIES if answer.status < 500 or answer.status == 503 else POISON_TRIES):
                self._give_up(encoded, f"the server failed on the same batch {tries} times: {answer.status}")
                return True
        if answer.status == 401:
            self._back_off(
                "the server does not know our token (401): put a valid one into the token file", UNAUTHORISED_S
            )
        else:
            self._back_off(f"the server answers {answer.status} {answer.reason}", answer.retry_after_s)
        return False

    def _count_try(self, name: str) -> int:
        """How often this batch was turned away with another one accepted since the time before."""
        tries, n_accepted = self._poison.get(name, (0, -1))
        if self._n_accepted > n_accepted:
            tries += 1
        self._poison = {name: count for name, count in self._poison.items() if name in self._spool}
        self._poison[name] = tries, self._n_accepted
        return tries

    def _back_off(self, why: str, asked_s: float | None = None) -> None:
        """No sooner than the server asked for, nor all at once: a fleet that was turned away together must not return so."""
        ceiling = min(BACKOFF_S * 2**self._failures, BACKOFF_S_MAX)
        wait_s = max(random.uniform(ceiling / 2, ceiling), (asked_s or 0.0) * random.uniform(1.0, 1.5))
        self._failures = min(self._failures + 1, 10)
        self._is_down = True
        self._retry_at = time.monotonic() + wait_s
        if why != self._said:
            self._said = why
            LOG.warning("%s; batches wait in %s", why, self._spool.folder)

    def _came_back(self) -> None:
        if self._is_down:
            LOG.info("the server answers again; %d batches in the spool", len(self._spool))
        self._is_down, self._failures, self._said = False, 0, ""

    def _give_up(self, encoded: bytes, why: str) -> None:
        self._losses.add_batch(encoded, "refused_batches")
        LOG.warning("%s; dropped and counted", why)

    def _spool_fresh(self) -> None:
        while self._fresh:
            with self._wake:
                fresh = self._take_fresh()
            if not fresh.name:
                self._store(fresh.encoded)

    def _store(self, encoded: bytes) -> None:
        gone = self._spool.put(encoded)
        for lost in gone:
            self._losses.add_batch(lost, "spool_batches")
        if gone:
            LOG.warning("the spool %s is full or cannot be written: %d batches lost", self._spool.folder, len(gone))
