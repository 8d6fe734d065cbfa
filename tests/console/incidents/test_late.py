"""What comes late, from a spool, can take a name back: the whole data of the same time is the better witness."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.incidents.models import Incident
from console.incidents.watching import revise
from ingest.models import Attempt, Node
from ingest.window import Window
from rca.findings import Diagnosis, diagnosis_from_json
from rca.settings import DEFAULT
from tests.console.incidents.making import make_diagnosis, make_incident, make_symptom
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_watch import job, late, look, quick, the_incident
from tests.ingest.conftest import ingest, no_traces
from tests.windows import make_window

__all__ = ["ingest", "job", "no_traces", "quick"]  # fixtures
NOBODY = "Something is wrong, but the evidence names nobody."


async def look_late(job: StallingJob) -> None:
    """A look some seconds after the last diagnosis, by the job's clock, which is not ours."""
    await Incident.objects.aupdate(analysed_at=datetime.fromtimestamp(job.ingest.clock_ns / 1e9, UTC))
    await job.run(5)
    await look()


async def test_a_silent_node_whose_spool_tells_that_it_lived_is_blamed_no_longer(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.traces.frame.heard_since_ns", lambda *_: 0)  # though the job's clock is not ours
    began = job.number
    for _ in range(3):
        await job.run(10, nodes=(0, 2, 3))
        await look()
    blamed = await the_incident()
    assert (blamed.symptom, blamed.culprits, blamed.grade) == ("silence", [2, 3], "moderate")
    await late(job, range(began, job.number), node=1)
    await look_late(job)
    after = await the_incident()
    assert (after.pk, after.certainty, after.culprits, after.grade) == (blamed.pk, "suspected", [], "")
    assert after.headline.startswith("Silence: ")
    assert (await after.timeline.filter(verb="revised").alatest("id")).note.startswith(NOBODY)


@pytest.fixture
def named(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Incident:
    """An incident with a strong name and news from a spool."""
    strong = make_diagnosis(make_symptom(attempt))
    incident = make_incident(attempt)
    monkeypatch.setattr(revise, "_evidence", lambda *_: (make_window(), strong))
    revise.revise(incident, strong.symptom, make_window(), DEFAULT)
    late_ns = time.time_ns()
    Node.objects.create(attempt=attempt, name="n3", late_received_ns=late_ns, received_ns=late_ns)
    Incident.objects.update(analysed_at=timezone.now() - timedelta(seconds=6))
    monkeypatch.setattr(revise, "has_new_batches", lambda *_: True)
    return incident


Reads = Callable[[Window, bool], None]


@pytest.fixture
def reads(named: Incident, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """What the stored traces are, and whether the time of the first diagnosis alone still names somebody."""
    strong = diagnosis_from_json(named.revisions.get().body)
    nobody = dataclasses.replace(strong, findings=())
    first = named.revisions.get().window_start_ns, named.revisions.get().window_end_ns

    def set_up(window: Window, names: bool) -> None:
        def read(_: int, span: tuple[int, int], *args: Any, **kwargs: Any) -> tuple[Window, Diagnosis]:
            return window, strong if span == first and names else nobody

        monkeypatch.setattr(revise, "read_and_diagnose", read)

    return set_up


@pytest.mark.parametrize(
    ("window", "names", "left"),
    [
        (make_window(), False, []),
        (make_window(), True, [3]),
        (make_window(catching_up=(1,)), False, [3]),
        (dataclasses.replace(make_window(), tables={}), False, [3]),
    ],
    ids=["all is there", "the job has gone on since", "a node drains still", "nothing is stored any more"],
)
def test_late_data_takes_a_strong_name_back_where_the_same_time_is_whole_and_names_nobody(
    named: Incident, reads: Reads, window: Window, names: bool, left: list[int]
) -> None:
    reads(window, names)
    revise.revise_late(named.attempt_id)
    named.refresh_from_db()
    assert named.culprits == left
    assert named.certainty == ("diagnosed" if left else "suspected")
    assert named.timeline.filter(verb="revised", note__startswith=NOBODY).exists() == (not left)
