"""Looks at a job that stalls: traces sent to a running ingest, looked at by the real trigger and the real rules."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as configured
from django.db import connection
from django.utils import timezone

from console.dashboard.jobs import read_job_row
from console.incidents import lifecycle
from console.incidents.live import JobRow
from console.incidents.models import ActorKind, ConditionState, Incident, JobNormal, Look
from console.incidents.pictures import evidence
from console.incidents.watching import watch
from ingest.jobs.endings import GONE_NS
from ingest.models import Attempt, Job, PinnedWindow
from ingest.read import read_window
from ingest.traces.narrow import read_glance
from ingest.window import Window
from rca.findings import diagnosis_from_json
from tests.builders import SECOND, WALL_NS
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.windows import make_window

__all__ = ["ingest", "no_traces"]  # fixtures
RITA = lifecycle.Actor("rita", ActorKind.USER)


@pytest.fixture
def quick(settings: Any) -> None:
    """Looks may follow each other at once."""
    settings.CLEAN_LOOK_SECONDS = 0.0
    settings.RESOLVE_AFTER_CLEAR_SECONDS = 0.0


@pytest.fixture
async def job(ingest: Ingest, quick: None) -> StallingJob:
    """A job that has run long enough for its normal to be known."""
    job = StallingJob(ingest)
    for _ in range(4):
        await job.run(5)
        await look()
    assert not await Incident.objects.aexists()
    return job


async def test_a_healthy_job_has_looks_and_a_normal_but_no_incident(job: StallingJob) -> None:
    assert await JobNormal.objects.aexists()
    newest = await Look.objects.alatest("pk")
    assert newest.kind == ""
    assert newest.saw.startswith("Nothing stands still on 8 watched ranks. Whether it is slow cannot be told yet: ")


async def test_a_stall_opens_one_incident_that_names_the_missing_rank(job: StallingJob) -> None:
    incident = await stall(job)
    assert (incident.symptom, incident.condition, incident.state) == ("failure", "firing", "open")
    assert (incident.certainty, incident.culprits) == ("diagnosed", [3])
    assert incident.headline
    assert incident.n_victims == 7
    assert await verbs(incident) == ["opened", "asked for dumps", "diagnosed"]


async def test_the_stored_diagnosis_reads_back_with_the_thresholds_in_force(job: StallingJob) -> None:
    incident = await stall(job)
    revision = await incident.revisions.afirst()
    assert revision is not None
    diagnosis = diagnosis_from_json(revision.body)
    assert diagnosis.culprits == (3,)
    assert diagnosis.thresholds["delta_max_s"] == 10.0


async def test_further_looks_at_the_same_stall_change_nothing_but_how_sure_it_is(job: StallingJob) -> None:
    first, grades = await stall(job), []
    for _ in range(5):
        await job.run(2)
        await look()
        grades.append((await the_incident()).grade)
    assert grades == ["moderate", *["strong"] * 4]
    assert await first.revisions.acount() == 2


async def test_a_look_without_new_traces_is_not_taken(job: StallingJob) -> None:
    before = await Look.objects.acount()
    await look()
    assert await Look.objects.acount() == before


async def test_the_condition_clears_after_three_clean_looks_and_the_detector_resolves(job: StallingJob) -> None:
    incident = await stall(job)
    job.go_on()
    seen = []
    for _ in range(5):
        await job.run(3)
        await look()
        incident = await the_incident()
        seen.append((incident.condition, incident.state))
    assert seen == [
        ("firing", "open"),
        ("clearing", "open"),
        ("clear", "open"),
        ("clear", "resolved"),
        ("clear", "resolved"),
    ]
    assert incident.resolution == "condition cleared"


async def test_traces_that_stop_coming_never_clear_a_condition(job: StallingJob) -> None:
    await stall(job)
    for _ in range(6):
        await look()
    assert (await the_incident()).condition == "firing"


@pytest.mark.parametrize(("heard_minutes", "state"), [(9, "open"), (11, "resolved")])
async def test_an_outage_of_ours_does_not_count_as_quiet_time(
    job: StallingJob, settings: Any, heard_minutes: int, state: str
) -> None:
    settings.RESOLVE_AFTER_CLEAR_SECONDS = 600.0
    incident = await stall(job)
    now = timezone.now()
    incident.condition, incident.cleared_at = ConditionState.CLEAR, now - timedelta(hours=1)
    heard_since = now - timedelta(minutes=heard_minutes)
    window = replace(make_window(), heard_since_ns=int(heard_since.timestamp() * 1e9))
    await sync_to_async(watch._calm)(incident, window)
    assert (await the_incident()).state == state


async def test_evidence_that_a_killed_look_did_not_keep_is_kept_by_the_next(job: StallingJob) -> None:
    await stall(job)
    kept = [(window.start_ns, window.end_ns) async for window in PinnedWindow.objects.all()]
    await PinnedWindow.objects.all().adelete()
    await job.run(1)
    await look()
    assert [(window.start_ns, window.end_ns) async for window in PinnedWindow.objects.all()] == kept


async def late(job: StallingJob, numbers: range, node: int) -> None:
    """The batches that this node cut in those seconds arrive only now, as from a spool."""
    now, job.number = job.number, numbers.start
    for job.number in numbers:
        reply = await job.ingest.send(job.batch(node), at_ns=WALL_NS + (now + 1) * SECOND)
        assert reply.status == 200
    job.number = now


async def test_late_batches_revise_the_diagnosis_whose_window_they_fall_in(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ingest.traces.frame.heard_since_ns", lambda *_: 0
    )  # at any time, though the job's clock is not ours
    began = job.number
    await job.run(20, nodes=(0, 2, 3))  # the culprit's node cannot reach us
    job.stall()
    stalled = job.number
    await job.run(8, nodes=(0, 2, 3))
    await look()
    first = await the_incident()
    assert await missing(first) != []
    job.go_on()
    await job.run(12)
    await look()  # the job goes on: nothing looks at the stall any more
    await Incident.objects.aupdate(analysed_at=datetime.fromtimestamp(job.ingest.clock_ns / 1e9, UTC))
    ended, job.stalls_from = job.number, stalled
    await late(job, range(began, stalled + 8), node=1)
    job.go_on()
    assert job.number == ended
    await look()
    revised = await the_incident()
    assert (revised.culprits, revised.condition) == ([3], first.condition)  # only the diagnosis is revised
    assert await missing(revised) == ["Still catching up: node-1."]
    await Incident.objects.aupdate(analysed_at=datetime.fromtimestamp(job.ingest.clock_ns / 1e9, UTC))
    await job.run(5)
    await look()
    assert await missing(revised) == []


async def test_the_same_trouble_soon_after_resolving_has_regressed(job: StallingJob) -> None:
    first = await stall(job)
    await recover(job)
    again = await stall(job)
    assert (again.pk, again.state, again.regressed, again.condition) == (first.pk, "open", True, "firing")
    assert again.culprits == [3]


async def test_the_same_trouble_later_is_a_new_incident_that_names_the_first(job: StallingJob, settings: Any) -> None:
    first = await stall(job)
    await recover(job)
    settings.REGRESSED_SECONDS = 0
    again = await stall(job)
    assert (again.pk != first.pk, again.recurrence_of_id) == (True, first.pk)


async def test_resolved_by_a_person_while_it_fires_stays_resolved(job: StallingJob) -> None:
    incident = await stall(job)
    await sync_to_async(lifecycle.move)(incident.pk, "resolve", RITA, note="known, being replaced")
    await job.run(3)
    await look()
    after = await the_incident()
    assert (after.state, after.condition, await Incident.objects.acount()) == ("resolved", "firing", 1)


async def test_an_attempt_that_ended_closes_its_incident(job: StallingJob) -> None:
    incident = await stall(job)
    now = timezone.now()
    await Attempt.objects.filter(pk=incident.attempt_id).aupdate(state="ended", ended_at=now)
    await sync_to_async(watch.close_ended)()
    after = await the_incident()
    assert (after.state, after.resolution, after.condition) == ("resolved", "job ended", "clear")


async def test_a_job_whose_processes_are_all_gone_has_not_hung(job: StallingJob) -> None:
    job.stall()
    job.kill(*range(8))
    await job.run(8)
    await look()
    assert not await Incident.objects.aexists()
    assert (await Look.objects.alatest("pk")).saw == "Every process of the job is gone."


async def test_a_job_cancelled_while_it_hangs_closes_its_incident_as_ended(job: StallingJob, ingest: Ingest) -> None:
    incident = await stall(job)
    job.kill(*range(8))
    await job.run(1)
    await ingest.write_ledger()
    await look()
    assert (await the_incident()).state == "open"  # a launcher's next processes may be on the way
    ingest.clock_ns += GONE_NS
    await look()
    after = await the_incident()
    assert (after.pk, after.state, after.resolution) == (incident.pk, "resolved", "job ended")
    assert (await job_row()).state == "ended"


async def test_while_one_process_is_left_the_others_end_is_an_incident(job: StallingJob) -> None:
    job.kill(*range(1, 8))
    assert (await stall(job)).condition == "firing"


async def test_a_silent_node_is_an_incident_while_the_others_report(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ingest.traces.frame.heard_since_ns", lambda *_: 0
    )  # at any time, though the job's clock is not ours
    await job.run(25, nodes=(0, 1, 2))  # longer than one with which the job goes on may be away
    await look()
    assert (await the_incident()).symptom in ("silence", "failure")


async def test_two_looks_at_once_are_one(job: StallingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second returns while the first still looks: it neither looks too nor waits."""
    entered, leave, windows = threading.Event(), threading.Event(), []

    def slow(*args: Any) -> Window:
        windows.append(read_glance(*args))
        entered.set()
        assert leave.wait(30)
        return windows[-1]

    def in_thread() -> None:
        try:
            watch.watch_job(attempt.pk)
        finally:
            connection.close()

    await job.run(1)
    before, attempt = await Look.objects.acount(), await Attempt.objects.alatest("pk")
    monkeypatch.setattr(watch, "read_glance", slow)
    first, second = (asyncio.create_task(asyncio.to_thread(in_thread)) for _ in range(2))
    assert await asyncio.to_thread(entered.wait, 30)
    await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert first.done() != second.done()
    leave.set()
    await asyncio.gather(first, second)
    assert (len(windows), await Look.objects.acount() - before) == (1, 1)


async def test_lanes_read_the_nodes_of_their_ranks_alone_and_a_minute_at_most(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident, asked = await stall(job), []

    def spied(*args: Any, **kwargs: Any) -> Window:
        asked.append(read_window(*args, **kwargs))
        return asked[-1]

    monkeypatch.setattr(evidence, "read_window", spied)
    lanes = await sync_to_async(evidence.incident_lanes)(incident, 0, 2**62, [3])
    assert lanes.to_ns - lanes.from_ns == 60 * 10**9
    lanes = await sync_to_async(evidence.incident_lanes)(incident, ranks=[2])
    assert {lane.rank for lane in lanes.lanes} == {2}
    assert set(asked[-1].rows("flow")["rank"].tolist()) == {2, 3}  # rank 3 lives on the same node
    lanes = await sync_to_async(evidence.incident_lanes)(incident)
    assert (lanes.lanes[0].rank, len({lane.rank for lane in lanes.lanes})) == (3, 8)


async def test_a_look_that_fails_is_shown_as_failed_and_the_job_as_unknown(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_well = (await job_row()).looked_at
    await fail_a_look(job, monkeypatch)
    assert (await Look.objects.alatest("pk")).saw == "The look failed: RuntimeError: a bug"
    row = await job_row()
    assert (row.state, row.looked_at) == ("unknown", seen_well)


async def test_a_look_that_failed_is_taken_again_without_new_traces(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        await fail_a_look(job, broken)
    await look()
    assert (await Look.objects.alatest("pk")).kind == ""
    assert (await job_row()).state != "unknown"


async def test_traces_that_nobody_looks_at_leave_the_job_unknown(job: StallingJob) -> None:
    long_ago = timezone.now() - timedelta(seconds=31)
    await Look.objects.all().aupdate(taken_at=long_ago)
    assert (await job_row()).state != "unknown"  # all there is has been seen
    await job.run(1)
    assert (await job_row()).state == "unknown"
    await look()
    assert (await job_row()).state != "unknown"


async def test_a_hang_that_nobody_looks_at_any_more_leaves_its_job_unknown(job: StallingJob) -> None:
    await stall(job)
    assert (await job_row()).state == "stuck"
    await Look.objects.all().aupdate(taken_at=timezone.now() - timedelta(seconds=31))
    await job.run(1)
    assert (await job_row()).state == "unknown"


async def test_a_hang_that_goes_on_keeps_its_job_stuck_whatever_people_resolve(job: StallingJob) -> None:
    incident = await stall(job)
    await sync_to_async(lifecycle.move)(incident.pk, "resolve", RITA, note="known")
    await job.run(2)
    await look()
    row = await job_row()
    assert (row.state, row.incident, row.ops_per_s) == ("stuck", None, 0.0)


async def fail_a_look(job: StallingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("rca.triggers.look.look", broken)
    await job.run(1)
    with pytest.raises(RuntimeError):
        await look()


async def job_row() -> JobRow:
    job = await Job.objects.select_related("team").alatest("pk")
    return await sync_to_async(read_job_row)(job)


async def stall(job: StallingJob) -> Incident:
    """Stall until it has been seen."""
    job.stall()
    await job.run(6)
    await look()
    return await the_incident()


async def recover(job: StallingJob) -> None:
    job.go_on()
    for _ in range(configured.CLEAN_LOOKS_TO_CLEAR + 1):
        await job.run(3)
        await look()
    assert (await the_incident()).state == "resolved"


async def look() -> None:
    attempt = await Attempt.objects.alatest("pk")
    await sync_to_async(watch.watch_job)(attempt.pk)


async def the_incident() -> Incident:
    return await Incident.objects.alatest("pk")


async def missing(incident: Incident) -> list[str]:
    """What the newest diagnosis says was not seen."""
    return list((await incident.revisions.alatest("number")).body["missing"])


async def verbs(incident: Incident) -> list[str]:
    return [entry.verb async for entry in incident.timeline.order_by("id")]
