"""Reads and diagnoses a stored job as a look does that has just noticed its trouble, in a process of its own (rca.py).

The evidence is read as console/incidents/watching/revise.py reads it, by a worker that has looked at the job before and knows
who belongs to it. Late tables that a rule asks for are cut while it analyses. `mb` is what this process had in memory at most.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import django

django.setup()

from console.incidents.watching.revise import evidence_start_ns, onset_ns  # noqa: E402  (models need Django set up)
from ingest.models import Attempt  # noqa: E402
from ingest.read import latest_data_ns  # noqa: E402
from ingest.traces.narrow import SlowEvidence, read_evidence, read_glance  # noqa: E402
from ingest.window import TRACE_TABLES, Ints, LateTables, Window, save_window  # noqa: E402
from rca.diagnose import diagnose  # noqa: E402
from rca.findings import Diagnosis, Symptom, SymptomKind, to_json  # noqa: E402
from rca.narrowed import diagnose_slow  # noqa: E402
from rca.settings import DEFAULT, SECOND_NS  # noqa: E402
from rca.triggers.look import look  # noqa: E402
from rca.triggers.normal import Normal  # noqa: E402
from rca.triggers.sampling import sampled_ranks  # noqa: E402

LOOK_NS = 15 * SECOND_NS


def main(kind: str, began_ns: int, usual_s: float, saved: Path | None) -> None:
    attempt = Attempt.objects.latest("pk")
    end_ns = latest_data_ns(attempt.pk) + 1
    read_glance(attempt.pk, end_ns - LOOK_NS, end_ns, lambda frame: sampled_ranks(frame, DEFAULT).tolist(), end_ns)
    symptom = _symptom(attempt, kind, began_ns, usual_s, end_ns)
    start_ns = min(evidence_start_ns(symptom, end_ns), end_ns - LOOK_NS)
    if kind == "hang" or saved is not None:
        window, diagnosis, took = _whole(attempt, kind, symptom, start_ns, end_ns)
    else:
        window, diagnosis, took = _in_parts(attempt, symptom, start_ns, end_ns)
    rows = {name: len(window.tables[name]) for name in TRACE_TABLES if is_cut(window, name)}
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said: dict[str, Any] = {name: round(seconds, 3) for name, seconds in took.items()}
    said |= {"mb": round(mb), "rows": rows, "nodes_unread": len(window.unread)}
    if saved is not None:
        save_window(saved, window, {"symptom": to_json(diagnosis)["symptom"]})
    print(json.dumps({**said, "culprits": list(diagnosis.culprits)[:20], "window_s": (end_ns - start_ns) / SECOND_NS}))


Took = dict[str, float]
"""read_s, analyse_s, read_cpu_s, analyse_cpu_s."""


def _whole(attempt: Attempt, kind: str, symptom: Symptom, start_ns: int, end_ns: int) -> tuple[Window, Diagnosis, Took]:
    """All of the evidence, and then the diagnosis."""
    began, cpu = time.perf_counter(), time.process_time()
    window = read_evidence(attempt.pk, start_ns, end_ns, onset_ns(symptom), end_ns)
    took = {"read_s": time.perf_counter() - began, "read_cpu_s": time.process_time() - cpu}
    if kind == "hang":  # what the trigger itself makes of it
        symptom = look(window, Normal(), DEFAULT).symptoms[0]
    began, cpu = time.perf_counter(), time.process_time()
    diagnosis = diagnose(window, symptom, DEFAULT)
    took |= {"analyse_s": time.perf_counter() - began, "analyse_cpu_s": time.process_time() - cpu}
    return window, diagnosis, took


def _in_parts(attempt: Attempt, symptom: Symptom, start_ns: int, end_ns: int) -> tuple[Window, Diagnosis, Took]:
    """What of the evidence the diagnosis of a slow job asks for; late tables are cut while it analyses."""
    began, cpu = time.perf_counter(), time.process_time()
    source = Timed(SlowEvidence(attempt.pk, start_ns, end_ns, symptom.at_ns, end_ns))
    source.took_s, source.cpu_s = time.perf_counter() - began, time.process_time() - cpu
    window, diagnosis = diagnose_slow(source, symptom, DEFAULT)
    all_s, all_cpu_s = time.perf_counter() - began, time.process_time() - cpu
    took = {"read_s": source.took_s, "read_cpu_s": source.cpu_s}
    return window, diagnosis, took | {"analyse_s": all_s - source.took_s, "analyse_cpu_s": all_cpu_s - source.cpu_s}


class Timed:
    """A source that says how long it took to read from it."""

    def __init__(self, source: SlowEvidence) -> None:
        self._source, self.took_s, self.cpu_s = source, 0.0, 0.0

    def frame(self) -> Window:
        return self._timed(self._source.frame)

    def glimpse(self, start_ns: int, end_ns: int, columns: Collection[str]) -> Window:
        return self._timed(lambda: self._source.glimpse(start_ns, end_ns, columns))

    def whole(self, nodes: Ints | None) -> Window:
        return self._timed(lambda: self._source.whole(nodes))

    def _timed(self, read: Callable[[], Window]) -> Window:
        began, cpu = time.perf_counter(), time.process_time()
        window = read()
        self.took_s += time.perf_counter() - began
        self.cpu_s += time.process_time() - cpu
        return window


def is_cut(window: Window, table: str) -> bool:
    """Whether rows were made of the table as a whole."""
    return not isinstance(window.tables, LateTables) or window.tables.is_cut(table)


def _symptom(attempt: Attempt, kind: str, began_ns: int, usual_s: float, end_ns: int) -> Symptom:
    straggler = kind == "slowdown"
    return Symptom(
        kind=SymptomKind.STRAGGLER if straggler else SymptomKind.FAILURE, job="bench", attempt=attempt.number,
        at_ns=began_ns, seen_ns=end_ns, comm_id=0, ranks=(), sentence="",
        numbers={"iteration_usual_s": usual_s, "iteration_s": 2 * usual_s} if straggler else {},
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
