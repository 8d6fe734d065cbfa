"""The same cases through a real server: streamed at the pace of time, looked at by the watch itself, read from the REST API.

Hundreds of jobs at the pace of time would take a day, so this is for a handful of them: it shows that looking without a
database (tests/eval/watching.py) comes to the same answers.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, Final

from nccl_instrument.simulate.faults import truth
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import SimulatedJob
from nccl_instrument.simulate.stream import stream
from tests.eval.localization_cases import Case
from tests.eval.localization_run import PATIENCE_SECONDS, describe, node_name, score_json, seconds_at_most, true_of
from tests.eval.scoring import Truth, score_incident
from tests.eval.spine import await_diagnosis, await_incident
from tests.eval.stack import RunningStack

Row = dict[str, Any]
SETTLE_SECONDS: Final = 30.0


def run_through(stack: RunningStack, case: Case) -> Row:
    """The case's row, as `run_case` gives it."""
    began_s, over = time.monotonic(), threading.Event()
    name = f"case-{case.gpus}-{case.number}"
    settings = replace(case.settings, name=name, origin_ns=time.time_ns())
    sender = threading.Thread(target=_send, args=(stack, settings, seconds_at_most(case), over), daemon=True)
    sender.start()
    try:
        said = _follow(stack, name, settings.origin_ns / 1e9 + case.fault.start_s)
    finally:
        over.set()
        sender.join(30)
    true = true_of(truth(case.fault, case.layout, settings.origin_ns))
    took = {"took_s": round(time.monotonic() - began_s, 1), "cpu_s": 0.0}
    return {**describe(case), **took, "healthy": False, **_scored(case, true, said)}


def _send(stack: RunningStack, settings: Any, total_s: float, over: threading.Event) -> None:
    job = SimulatedJob(settings)
    try:
        batches = itertools.takewhile(lambda sent: not over.is_set(), in_order(job.batches(total_s)))
        stream(batches, settings.origin_ns, stack.ingest_url, stack.agent_token_file, 1.0)
    finally:
        job.close()


def _follow(stack: RunningStack, name: str, fault_at_s: float) -> Row:
    """What the REST API says: when the incident began, its first diagnosis and the one 30 s later."""
    row = await_incident(stack, name, fault_at_s + PATIENCE_SECONDS)
    if row is None:
        return {"detect_s": None, "seen": [], "false_incident": False}
    found_s = time.time() - fault_at_s
    first = await_diagnosis(stack, row["number"], time.time() + PATIENCE_SECONDS)
    time.sleep(SETTLE_SECONDS if first else 0.0)
    seen = [first, stack.get(f"incidents/{row['number']}")] if first else []
    return {"detect_s": round(found_s, 2), "seen": seen, "false_incident": found_s < 0}


def _scored(case: Case, true: Truth, said: Row) -> Row:
    seen = said.pop("seen")
    answers = [one["diagnosis"] for one in seen]
    score = score_incident(None if said["false_incident"] else true, answers, partial(node_name, case.layout))
    headlines = [one["incident"]["headline"] for one in seen]
    return {**said, "said": headlines, "truth": sorted(true.ranks)[:16], **score_json(case, true, score)}
