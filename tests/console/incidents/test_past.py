"""The grid at an earlier moment: as the rows of that time tell it, and nobody well of whom nothing is stored."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from console.incidents.models import Incident, TimelineEntry
from console.incidents.pictures import moments
from console.incidents.pictures.grid import SECOND, STATES
from console.incidents.pictures.past import NEVER, Fault, Past, decode_past, encode_past, make_past
from console.incidents.watching import watch
from ingest.models import Attempt, Node, Team
from ingest.traces.held import read_held
from ingest.window import Window
from rca.diagnose import diagnose
from rca.settings import DEFAULT
from rca.triggers.look import look
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.windows import make_window

__all__ = ["ingest", "no_traces"]  # fixtures
QUICK = dataclasses.replace(DEFAULT, delta_max_ns=DEFAULT.delta_min_ns)
GOLDEN = Path(__file__).parents[2] / "golden" / "grid-past.bin"
CULPRIT = 3


def states(past: Past) -> list[str]:
    return [STATES[state] for state in past.state]


def heard(window: Window, **but: int) -> dict[str, int]:
    """Every node was heard at the window's end, but for those that are said."""
    return {str(name): window.end_ns - 1 for name in window.nodes["name"]} | but


def past_of(window: Window, heard_ns: Mapping[str, int] | None = None, fault: Fault | None = None) -> Past:
    return make_past(window, heard(window) if heard_ns is None else heard_ns, fault)


def fault_of(window: Window, **changes: Any) -> Fault:
    """With the real diagnosis of what the real trigger saw."""
    diagnosis = diagnose(window, look(window, settings=QUICK).symptoms[0])
    return dataclasses.replace(Fault(diagnosis, 1, window.start_ns, None), **changes)


def without(window: Window, rank: int) -> Window:
    """`window` with nothing of the node of `rank` in it."""
    node = int(window.ranks["node"][window.ranks["rank"] == rank][0])
    tables = {name: rows[rows["node"] != node] for name, rows in window.tables.items()}
    return dataclasses.replace(window, tables=tables)


def test_in_a_healthy_job_every_rank_is_ok() -> None:
    past = past_of(make_window())
    assert Counter(states(past)) == {"ok": 8}
    assert set(past.note) == {0} and not past.said


def test_of_a_time_of_which_nothing_is_stored_nobody_is_well() -> None:
    window = make_window()
    past = past_of(dataclasses.replace(window, tables={}), {})
    assert Counter(states(past)) == {"unknown": 8}
    assert set(past.seen_ms) == {NEVER}
    assert past.said == "Nothing is stored of this time."


def test_who_is_to_blame_is_not_said_of_a_time_of_which_nothing_is_stored() -> None:
    window = make_window(stuck_before=5)
    past = past_of(dataclasses.replace(window, tables={}), {}, fault_of(window))
    assert Counter(states(past)) == {"unknown": 8}


@pytest.mark.parametrize(("age_s", "state"), [(1, "ok"), (5, "unknown"), (12, "silent")])
def test_a_node_of_which_nothing_came_is_first_unknown_and_then_silent(age_s: int, state: str) -> None:
    window = make_window()
    node = int(window.ranks["node"][window.ranks["rank"] == 2][0])
    name = str(window.nodes["name"][node])
    past = past_of(without(window, 2), heard(window, **{name: window.end_ns - 1 - age_s * SECOND}))
    mates = window.ranks["rank"][window.ranks["node"] == node]
    assert {states(past)[rank] for rank in mates} == {state}
    assert past.seen_ms[2] == age_s * 1000
    assert Counter(states(past))["ok"] == 8 - (0 if state == "ok" else len(mates))


def test_a_node_that_reported_only_later_is_not_silent_but_unknown() -> None:
    window = make_window()
    nodes = window.nodes.copy()
    nodes["first_ns"][1] = window.end_ns + SECOND
    there = {str(name): window.end_ns - 1 for at, name in enumerate(nodes["name"]) if at != 1}
    past = make_past(dataclasses.replace(without(window, 2), nodes=nodes), there, None)
    theirs = window.ranks["rank"][window.ranks["node"] == 1]
    assert {states(past)[rank] for rank in theirs} == {"unknown"}


def test_ranks_that_never_reported_are_there_and_unknown() -> None:
    past = past_of(dataclasses.replace(make_window(), world_size=12))
    assert states(past)[8:] == ["unknown"] * 4
    assert past.notes[past.note[11]] == "never reported"


def test_a_dead_process_that_nobody_blames_is_dead() -> None:
    assert states(past_of(make_window(killed=2)))[2] == "dead"


def test_the_culprit_stands_out_from_those_who_wait() -> None:
    window = make_window(stuck_before=5)
    past = past_of(window, fault=fault_of(window))
    assert states(past)[5] == "culprit"
    assert set(states(past)) - {"culprit"} == {"waiting"}
    assert all(past.notes[note] for note in past.note)
    assert past.revision == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_nobody_is_blamed_outside_the_time_of_the_fault(when: str) -> None:
    window = make_window(stuck_before=5)
    outside = {"from_ns": window.end_ns + 1} if when == "before" else {"until_ns": window.start_ns}
    past = past_of(window, fault=fault_of(window, **outside))
    assert Counter(states(past)) == {"ok": 8}
    assert past.revision is None


def test_during_a_hang_only_who_stands_still_is_blamed_and_who_goes_on_is_ok() -> None:
    window = make_window(stuck_before=5)
    moving = window.rows("progress").copy()
    moving["last_done_ns"][np.isin(moving["rank"], [2, 5])] = window.end_ns - 1
    past = past_of(dataclasses.replace(window, tables={**window.tables, "progress": moving}), fault=fault_of(window))
    assert (states(past)[2], states(past)[5], states(past)[1]) == ("ok", "ok", "waiting")


def test_who_stands_still_for_reasons_unknown_is_unknown() -> None:
    window = make_window(stuck_before=5)
    fault = fault_of(window)
    partly = dataclasses.replace(fault.diagnosis, victims=tuple(one for one in fault.diagnosis.victims if one != 2))
    past = past_of(window, fault=dataclasses.replace(fault, diagnosis=partly))
    assert states(past)[2] == "unknown"


def test_bytes_become_the_same_grid_again() -> None:
    window = make_window(stuck_before=5)
    past = past_of(window, fault=fault_of(window))
    again, is_settled = decode_past(encode_past(past, is_settled=True))
    assert is_settled
    for field in dataclasses.fields(Past):
        assert np.array_equal(getattr(again, field.name), getattr(past, field.name)), field.name


@pytest.mark.parametrize("body", [b"", b"DGSP", b"x" * 40])
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no grid"):
        decode_past(body)


def test_the_bytes_are_those_the_page_is_tested_with() -> None:
    """frontend/tests/scrub.test.ts reads the same file."""
    past = Past(
        1_795_421_021_000_000_000, np.array([0, 2, 1, 5], np.uint8), np.array([400, 1400, 0, NEVER], np.uint32),
        np.array([0, 1, 2, 3], np.uint16), ("", "Rank 1 entered no op.", "waits for rank 1: op 7", "never reported"), 3,
    )  # fmt: skip
    assert encode_past(past, is_settled=False) == GOLDEN.read_bytes()


# ---- over REST, of a real job ----


@dataclasses.dataclass
class Told:
    """An incident of a job that ran for ten seconds, then stood still. Of node-2 nothing is stored from second 3 to 8."""

    incident: Incident
    started_ns: int

    def at(self, second: float) -> int:
        return self.started_ns + int(second * SECOND)


@pytest.fixture
async def told(ingest: Ingest) -> Told:
    job = StallingJob(ingest)
    await job.run(3)
    await job.run(5, nodes=(0, 1, 3))
    await job.run(2)
    job.stall()
    await job.run(14)
    await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)
    first = await Node.objects.order_by("first_ns").afirst()
    assert first is not None
    incident = await Incident.objects.select_related("team", "job", "attempt").alatest("pk")
    return Told(incident, first.first_ns - SECOND)  # it is the end of the first batch


@sync_to_async
def get(team: Team, path: str, **headers: str) -> Any:
    user, _ = User.objects.get_or_create(username=f"asks {team.name}")
    Membership.objects.get_or_create(user=user, team=team, role=Role.VIEWER)
    browser = APIClient()
    browser.force_login(user)
    return browser.get(f"/api/v1/{path}", headers=headers)


async def past_at(told: Told, second: float, query: str = "") -> Past:
    answer = await get(told.incident.team, f"incidents/{told.incident.pk}/grid/at?at_ns={told.at(second)}{query}")
    assert answer.status_code == 200, answer.content
    return decode_past(answer.content)[0]


async def test_one_sees_who_stopped_and_who_waits_only_once_it_had_happened(told: Told) -> None:
    healthy, hung = await past_at(told, 2.5), await past_at(told, 20)
    assert Counter(states(healthy)) == {"ok": 8} and healthy.revision is None
    assert states(hung)[CULPRIT] == "culprit"
    assert Counter(states(hung)) == {"culprit": 1, "waiting": 7}


async def test_of_the_seconds_that_are_missing_the_nodes_ranks_are_unknown(told: Told) -> None:
    past = await past_at(told, 7.5)
    assert [rank for rank, state in enumerate(states(past)) if state == "unknown"] == [4, 5]
    assert Counter(states(past)) == {"ok": 6, "unknown": 2}
    assert Counter(states(await past_at(told, 9.5))) == {"ok": 8}, "it was heard again"


async def test_what_retention_has_dropped_is_unknown_and_not_held(told: Told) -> None:
    @sync_to_async
    def drop_all() -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM ingest_trace_batch")
            cursor.execute("DELETE FROM ingest_pinned_batch")

    await drop_all()
    past = await past_at(told, 20)
    assert Counter(states(past)) == {"unknown": 8} and past.said == "Nothing is stored of this time."
    assert (await get(told.incident.team, f"incidents/{told.incident.pk}/moments")).json()["held"] == []


async def test_the_grid_of_the_job_shows_the_same(told: Told) -> None:
    answer = await get(told.incident.team, f"jobs/{told.incident.job_id}/grid/at?at_ns={told.at(20)}")
    assert states(decode_past(answer.content)[0]) == states(await past_at(told, 20))


async def test_an_answer_that_is_asked_again_is_not_read_again_until_more_is_stored(told: Told) -> None:
    path = f"incidents/{told.incident.pk}/grid/at?at_ns={told.at(9)}&revision=1"
    first = await get(told.incident.team, path)
    again = await get(told.incident.team, path, if_none_match=first["ETag"])
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert "Cookie" in first["Vary"]

    @sync_to_async
    def lose_a_batch() -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM ingest_trace_batch WHERE end_ns = (SELECT min(end_ns) FROM ingest_trace_batch)")
            cursor.execute("DELETE FROM ingest_pinned_batch")

    await lose_a_batch()
    assert (await get(told.incident.team, path, if_none_match=first["ETag"])).status_code == 200


async def test_only_what_nothing_can_change_may_be_kept(told: Told) -> None:
    async def policy(second: float, query: str) -> str:
        path = f"incidents/{told.incident.pk}/grid/at?at_ns={told.at(second)}{query}"
        return str((await get(told.incident.team, path))["Cache-Control"])

    assert "immutable" in await policy(5, "&revision=1") and "private" in await policy(5, "&revision=1")
    assert await policy(5, "") == "private, no-cache", "a newer diagnosis may blame others"
    assert await policy(23, "&revision=1") == "private, no-cache", "a node may still tell of it"
    await Node.objects.filter(name="node-1").aupdate(catching_up=True)
    assert await policy(5, "&revision=1") == "private, no-cache", "a node still tells of earlier times"


async def test_whom_a_fault_blames_is_not_kept_of_times_after_it_was_last_seen_until_it_is_over(told: Told) -> None:
    path = f"incidents/{told.incident.pk}/grid/at?at_ns={told.at(20)}&revision=1"
    await Node.objects.aupdate(watermark_ns=told.at(60))
    of_incident = Incident.objects.filter(pk=told.incident.pk)
    await of_incident.aupdate(condition="clearing", last_seen_ns=told.at(19), triggered_ns=told.at(19))
    clearing = await get(told.incident.team, path)
    assert "culprit" in states(decode_past(clearing.content)[0]) and "immutable" not in clearing["Cache-Control"]
    earlier = await get(told.incident.team, path.replace(str(told.at(20)), str(told.at(18))))
    assert "immutable" in earlier["Cache-Control"]
    await of_incident.aupdate(condition="clear")
    over = await get(told.incident.team, path)
    assert "culprit" not in states(decode_past(over.content)[0]) and "immutable" in over["Cache-Control"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "required"),
        ("?at_ns=soon", "integer"),
        ("?at_ns=-1", "greater than"),
        ("?at_ns=99999999999999999999", "less than"),
        ("?at_ns=1", "Nothing was known then: the first data of this attempt is of 20"),
        ("?at_ns=9000000000000000000", "not known yet: the newest data of this attempt is of 20"),
        ("?at_ns=1&colour=red", "no such field"),
    ],
)
async def test_a_time_that_cannot_be_shown_is_refused_and_says_why(told: Told, query: str, says: str) -> None:
    for path in (f"incidents/{told.incident.pk}", f"jobs/{told.incident.job_id}"):
        answer = await get(told.incident.team, f"{path}/grid/at{query}")
        assert answer.status_code == 400
        assert says in answer.content.decode()


async def test_a_diagnosis_that_was_never_made_is_not_there(told: Told) -> None:
    path = f"incidents/{told.incident.pk}/grid/at?at_ns={told.at(9)}"
    assert (await get(told.incident.team, f"{path}&revision=99")).status_code == 404
    assert (await get(told.incident.team, f"{path}&revision=0")).status_code == 400


async def test_for_another_team_no_moment_is_there(told: Told) -> None:
    others = await Team.objects.acreate(name="others")
    for what in (f"incidents/{told.incident.pk}", f"jobs/{told.incident.job_id}"):
        for path in (f"grid/at?at_ns={told.at(9)}", "moments"):
            assert (await get(others, f"{what}/{path}")).status_code == 404
            assert (await get(told.incident.team, f"{what}/{path}")).status_code == 200


async def test_moments_are_by_time_and_within_the_minutes_shown(told: Told) -> None:
    answer = (await get(told.incident.team, f"incidents/{told.incident.pk}/moments")).json()
    times = [one["at_ns"] for one in answer["moments"]]
    assert times == sorted(times)
    assert all(answer["from_ns"] <= at < answer["to_ns"] for at in times)
    kinds = {one["kind"] for one in answer["moments"]}
    assert "symptom" in kinds
    assert answer["later"] > 0, "the look was taken by the real clock, which is ahead of this job's"
    assert answer["is_live"]
    assert answer["from_ns"] == answer["first_ns"] == told.at(1)
    assert answer["to_ns"] == answer["newest_ns"] + 1


async def test_of_more_moments_than_the_limit_the_newest_are_shown_the_others_counted_and_the_fault_is_always_there(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (await get(told.incident.team, f"incidents/{told.incident.pk}/moments")).json()
    fault = [one for one in whole["moments"] if one["kind"] in ("began", "symptom", "trigger")]
    for second in (4, 5, 6):
        at = datetime.fromtimestamp(told.at(second) / 1e9, UTC)
        entry = {"actor": f"rita{second}", "actor_kind": "user", "verb": "acknowledged"}
        await TimelineEntry.objects.acreate(incident=told.incident, at=at, **entry)
    monkeypatch.setattr(moments, "MOMENTS_MAX", 2)
    less = (await get(told.incident.team, f"incidents/{told.incident.pk}/moments")).json()
    acts = [one["word"] for one in less["moments"] if one["kind"] == "act"]
    assert acts == ["rita5 acknowledged", "rita6 acknowledged"]
    assert [one for one in less["moments"] if one["kind"] != "act"] == fault
    assert (less["omitted"], whole["omitted"]) == (1, 0)


async def test_what_came_after_the_minutes_is_named_and_counted(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "AFTER_MAX", 1)
    for day in (1, 2):
        at = datetime.now(UTC) + timedelta(days=day)
        entry = {"actor": "rita", "actor_kind": "user", "verb": "commented"}
        await TimelineEntry.objects.acreate(incident=told.incident, at=at, **entry)
    answer = (await get(told.incident.team, f"incidents/{told.incident.pk}/moments")).json()
    assert len(answer["after"]) == 1 and answer["after"][0]["at_ns"] >= answer["to_ns"]
    assert answer["later"] >= 3, "the diagnosis of the real clock, and the two comments"


async def test_where_no_node_sent_anything_nothing_is_held(ingest: Ingest) -> None:
    job = StallingJob(ingest)
    await job.run(4)
    job.number += 8
    await job.run(4)
    attempt = await Attempt.objects.select_related("job__team").alatest("pk")
    answer = (await get(attempt.job.team, f"jobs/{attempt.job_id}/moments")).json()
    (before, after) = answer["held"]
    assert before["from_ns"] == answer["from_ns"]
    assert after["to_ns"] == answer["to_ns"]
    assert 6 * SECOND <= after["from_ns"] - before["to_ns"] <= 10 * SECOND


def test_nobody_asks_for_endless_steps(db: None) -> None:
    with pytest.raises(ValueError, match="steps"):
        read_held(1, 0, 10**18, 1)
