"""Some experiments at the pace of time through a running server: how long an answer takes, read from the REST API.

Latency is wall time from the end of the first affected op (the first that a victim ended after the fault had begun; where none
ends any more, the fault itself) to the moment at which the first diagnosis that names somebody was stored. Jobs are those
that a core simulates faster than time; each of them once with the worst severity of a drawn row of Table 4. No answer, or one
without the right machine, counts as the whole time that was waited for.
"""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import numpy as np

from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.stream import stream
from tests.eval.pulse_cases import TABLE, Experiment, draw
from tests.eval.pulse_run import scored, truth_of
from tests.eval.spine import await_incident
from tests.eval.stack import RunningStack

Row = dict[str, Any]
LIGHT: Final = ("neighbour exchange", "GPT-2 32B, four GPUs a node", "Mixtral")
WAIT_SECONDS: Final = 40.0
NUMBERS_FROM: Final = 100_000  # of experiments that are drawn here


@dataclass
class Sender:
    """Streams a job at the pace of time; `ended_ns` is when each of the victims' ops ended, unix ns."""

    stack: RunningStack
    settings: JobSettings
    seconds: float
    ranks: tuple[int, ...]
    over: threading.Event = field(default_factory=threading.Event)
    ended_ns: list[int] = field(default_factory=list)

    def run(self) -> None:
        job = SimulatedJob(self.settings)
        read = job.engine.finished

        def finished() -> Any:
            rows = read()
            mine = rows["done_ns"][np.isin(rows["rank"], self.ranks) & (rows["done_ns"] > 0)]
            self.ended_ns += (self.settings.origin_ns + mine).tolist()
            return rows

        job.engine.finished = finished  # type: ignore[method-assign]
        try:
            batches = itertools.takewhile(lambda sent: not self.over.is_set(), in_order(job.batches(self.seconds)))
            stream(batches, self.settings.origin_ns, self.stack.ingest_url, self.stack.agent_token_file, 1.0)
        finally:
            job.close()


def latencies(seed: int, n_cases: int) -> Row:
    """{"latency_s", "latency", "settings_overridden"}: the mean, every case, and the settings in force."""
    made, rows = random.Random(f"{seed}/latency"), list[Row]()
    with RunningStack() as stack:
        overridden = stack.settings_overridden()
        for number, one in enumerate(_drawn(seed, n_cases, made)):
            rows.append(_timed(stack, one, f"pulse-{number}"))
            print(f"latency [{number + 1}/{n_cases}] {rows[-1]}", flush=True)
    mean = round(statistics.mean(row["latency_s"] for row in rows), 2) if rows else None
    return {"latency_s": mean, "latency": rows, "settings_overridden": overridden}


def _drawn(seed: int, n_cases: int, made: random.Random) -> Iterator[Experiment]:
    light = [row for row in TABLE if row.setting in LIGHT]
    for number, row in enumerate(made.sample(light, min(n_cases, len(light)))):
        yield draw(seed, NUMBERS_FROM + number, row, row.severities[-1])


def _timed(stack: RunningStack, one: Experiment, name: str) -> Row:
    settings = replace(one.job, name=name, origin_ns=time.time_ns())
    begins_s = settings.origin_ns / 1e9 + one.fault.start_s
    sender = Sender(stack, settings, one.fault.start_s + WAIT_SECONDS, one.fault.ranks)
    thread = threading.Thread(target=sender.run, daemon=True)
    thread.start()
    try:
        found = await_incident(stack, name, begins_s + WAIT_SECONDS)
        seen = _await_names(stack, found["number"], begins_s + WAIT_SECONDS) if found is not None else None
    finally:
        sender.over.set()
        thread.join(60)
    said = scored(one, truth_of(one), [seen["diagnosis"]] if seen else [])
    is_right = bool(said["machine_level"])
    took_s = _stored_s(seen) - _affected_s(sender, begins_s) if seen is not None and is_right else WAIT_SECONDS
    return {
        "failure": one.failure, "setting": one.setting.name, "severity": one.severity,
        "latency_s": round(took_s, 2), "machine_level": is_right, "answered": seen is not None,
    }  # fmt: skip


def _await_names(stack: RunningStack, number: int, deadline: float) -> Row | None:
    """The first diagnosis with a finding. The incident was read a moment before it, and may not say yet when it was made."""
    while time.time() < deadline:
        seen: Row = stack.get(f"incidents/{number}")
        if seen["diagnosis"] is not None and seen["diagnosis"]["findings"] and seen["incident"]["root_caused_at"]:
            return seen
        time.sleep(0.1)
    return None


def _stored_s(seen: Row) -> float:
    return datetime.fromisoformat(seen["incident"]["root_caused_at"]).timestamp()


def _affected_s(sender: Sender, begins_s: float) -> float:
    later = [ns / 1e9 for ns in sender.ended_ns if ns / 1e9 > begins_s]
    return min(later, default=begins_s)
