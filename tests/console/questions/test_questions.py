"""Ad-hoc questions: what is answered from roll-ups and from traces, what is refused, and files that others can read."""

from __future__ import annotations

import csv
import io
from typing import Any

import arro3.io
import numpy as np
import pytest
from asgiref.sync import sync_to_async
from rest_framework.test import APIClient

from console.accounts.models import Role
from console.questions import answering
from ingest.models import Attempt, Communicator, OpRollup, Team
from ingest.sums import summed
from ingest.sums.rollup import BIN, BINS_PER_OCTAVE, BUCKET_NS
from nccl_instrument.tables import FUNCS
from tests.console.conftest import Persona, make_persona
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
T0 = 1_800_000_000_000_000_000
MS = 1_000_000
RANGE = f"from={T0 // MS}&to={(T0 + 600 * 10**9) // MS}"


def roll_up(attempt: Attempt, at: int, comm: int, func: str, took_ms: float, n: int = 10, size: int = 10**9) -> None:
    """`n` ops of this length in the ten seconds number `at`."""
    took = int(took_ms * MS)
    bins = np.array([(int(np.log2(took) * BINS_PER_OCTAVE), n)], BIN)
    OpRollup.objects.create(
        attempt=attempt, comm_id=comm, func=FUNCS.index(func), bucket_ns=T0 + at * BUCKET_NS, part=np.random.randint(2**60),
        n_ops=n, n_timed=n, bytes=size * n, bytes_timed=size * n, duration_sum_ns=took * n, duration_max_ns=took,
        bins=bins.tobytes(),
    )  # fmt: skip


@pytest.fixture
def asked(attempt: Attempt, viewer: Persona) -> Any:
    for comm, name in ((1, "dp0"), (2, "dp1"), (3, "tp0")):
        Communicator.objects.create(attempt=attempt, comm_id=comm, n_ranks=2, name=name)
    roll_up(attempt, 0, 1, "AllReduce", 10)
    roll_up(attempt, 0, 1, "AllReduce", 1000, n=1)  # another writer's part
    roll_up(attempt, 1, 2, "AllReduce", 20)
    roll_up(attempt, 1, 3, "AllGather", 5)

    def ask(query: str, suffix: str = "") -> Any:
        return viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/question{suffix}?{RANGE}&{query}")

    return ask


def rows(answer: Any) -> list[list[Any]]:
    assert answer.status_code == 200, answer.content
    return list(answer.json()["rows"])


def test_nothing_known_is_said_so(attempt: Attempt, viewer: Persona) -> None:
    answer = viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/question").json()
    assert answer["rows"] == [] and answer["figure"]["text"].startswith("Nothing is known.")


def test_per_kind_parts_of_several_writers_add_up(asked: Any) -> None:
    assert rows(asked("per=kind&measure=ops")) == [["AllGather", 10], ["AllReduce", 21]]
    assert rows(asked("per=kind&measure=bytes&kind=AllReduce")) == [["AllReduce", 21.0, 21]]
    assert rows(asked("per=kind&of=max&kind=AllReduce")) == [["AllReduce", 1000.0, 21]]
    (row,) = rows(asked("per=kind&of=p50&kind=AllReduce&comm=dp0"))
    assert row[1] == pytest.approx(10, rel=0.05)
    (row,) = rows(asked("per=kind&of=p99&kind=AllReduce&comm=dp0"))
    assert row[1] == pytest.approx(1000, rel=0.05)


def test_a_communicator_a_family_and_an_id(asked: Any) -> None:
    assert rows(asked("per=communicator&measure=ops&comm=dp")) == [
        ["dp0", "AllReduce", 11],
        ["dp1", "AllReduce", 10],
    ]
    assert rows(asked("per=communicator&measure=ops&comm=0000000000000003")) == [["tp0", "AllGather", 10]]
    assert asked("comm=nobody").status_code == 400
    offered = asked("per=kind").json()["offered"]
    assert offered == {
        "kinds": ["AllGather", "AllReduce"], "families": ["dp", "tp"], "communicators": ["dp0", "dp1", "tp0"],
    }  # fmt: skip


def test_bandwidth_is_bytes_over_the_time_they_took(asked: Any) -> None:
    assert rows(asked("per=kind&measure=bandwidth&comm=dp1")) == [["AllReduce", 50.0, 10]]
    assert rows(asked("per=kind&measure=bus_bandwidth&comm=dp1")) == [
        ["AllReduce", 50.0, 10]
    ]  # 2 (n − 1) / n of two ranks is 1


def test_over_time_steps_grow_with_the_range_and_every_op_stays_in_one(asked: Any, attempt: Attempt) -> None:
    answer = asked("measure=ops")
    assert answer.json()["step_s"] == 10
    assert sum(row[2] for row in rows(answer)) == 31 and len(rows(answer)) == 3
    week = f"from={T0 // MS}&to={(T0 + 7 * 86400 * 10**9) // MS}&measure=ops"
    answer = asked(week)
    assert answer.json()["step_s"] == 2520
    assert [row[1:] for row in rows(answer)] == [["AllGather", 10], ["AllReduce", 21]]


def test_what_is_too_much_is_refused_with_what_to_do(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summed, "BINNED_ROWS_MAX", 2)
    refused = asked("of=p99")
    assert refused.status_code == 400 and "4 roll-ups; at most 2" in refused.json()["error"]
    assert "shorter time" in refused.json()["error"]
    assert asked("of=mean").status_code == 200
    monkeypatch.setattr(answering, "ROWS_SHOWN_MAX", 2)
    assert (len(rows(asked("of=mean"))), asked("of=mean").json()["left_out"]) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    ["measure=x", "of=p98", "kind=Nothing", "per=team", "attempt=99", "from=5", "from=9&to=5", "to=x", "per=rank",
     "per=rank&measure=bus_bandwidth&from=1&to=2", "comm=" + "x" * 65, f"from=0&to={2**53}"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(attempt: Attempt, viewer: Persona, wrong: str) -> None:
    given = wrong if "from" in wrong or "to" in wrong or wrong == "attempt=99" else f"{RANGE}&{wrong}"
    assert viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/question?{given}").status_code in (400, 404)


def test_another_teams_job_is_not_there(attempt: Attempt, stranger: Persona) -> None:
    for suffix in ("", ".csv", ".parquet"):
        assert stranger.browser.get(f"/api/v1/jobs/{attempt.job_id}/question{suffix}").status_code == 404


def test_csv_and_parquet_hold_the_rows_and_no_formulas(asked: Any, attempt: Attempt) -> None:
    Communicator.objects.filter(comm_id=3).update(name="=cmd()")
    text = asked("per=communicator&of=mean", ".csv").content.decode()
    head, *lines = list(csv.reader(io.StringIO(text)))
    assert head == ["communicator", "kind", "duration_mean [ms]", "n_ops [op records]"]
    assert ["'=cmd()", "AllGather", "5.0", "10"] in lines and len(lines) == 3
    file = io.BytesIO(asked("measure=ops", ".parquet").content)
    table = arro3.io.read_parquet(file).read_all()
    assert table.column_names == ["at", "kind", "ops_count"]
    assert sorted(table["ops_count"].to_pylist()) == [10.0, 10.0, 11.0]
    assert table["at"].to_pylist()[0].timestamp() == T0 / 1e9


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_that_was_cut_says_how_many_rows_it_lacks(
    asked: Any, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    assert asked("of=mean", suffix)["X-Left-Out"] == "0"
    monkeypatch.setattr(answering, "ROWS_SHOWN_MAX", 2)
    assert asked("of=mean", suffix)["X-Left-Out"] == "1"


def test_a_parquet_file_says_of_itself_how_many_rows_it_lacks_and_what_it_rests_on(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n_max, left_out in ((answering.ROWS_SHOWN_MAX, b"0"), (2, b"1")):
        monkeypatch.setattr(answering, "ROWS_SHOWN_MAX", n_max)
        file = arro3.io.read_parquet(io.BytesIO(asked("of=mean", ".parquet").content))
        metadata = file.schema.metadata
        assert metadata[b"left_out"] == left_out
        assert metadata[b"rests_on"].decode() == asked("of=mean").json()["rests_on"]
        assert len(file.read_all()) == 3 - int(left_out)


async def test_per_rank_and_node_the_traces_answer(ingest: Ingest) -> None:
    job = StallingJob(ingest)
    await job.run(10)
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    team = await Team.objects.aget(pk=attempt.job.team_id)
    browser: APIClient = (await sync_to_async(make_persona)("vera", team, Role.VIEWER)).browser
    newest = (await attempt.nodes.afirst()).watermark_ns // MS  # type: ignore[union-attr]
    at = f"/api/v1/jobs/{attempt.job_id}/question?from={newest - 8000}&to={newest}"
    ranks = (await sync_to_async(browser.get)(f"{at}&per=rank&measure=ops")).json()
    assert [row[0] for row in ranks["rows"]] == list(range(8)) and len({row[1] for row in ranks["rows"]}) == 1
    nodes = (await sync_to_async(browser.get)(f"{at}&per=node&of=p50")).json()
    assert [row[0] for row in nodes["rows"]] == [f"node-{n}" for n in range(4)]
    assert all(row[1] > 0 for row in nodes["rows"]) and "Traces:" in nodes["rests_on"]
