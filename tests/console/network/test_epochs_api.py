"""Raw epochs of a simulated job as they were fetched, up to the curves a browser draws: with ops' bounds, pauses, microbatches,
and why ranks have nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from console.accounts.models import Role
from console.network.microbatches import marks_of
from ingest.door.dumps import ask_dumps, store_dumps
from ingest.models import Attempt, DumpRequest, Job, StoredDump
from ingest.read import latest_data_ns, read_window
from ingest.window import Window
from nccl_instrument.dumps import EPOCHS, Dumps, Part
from nccl_instrument.epochs import CELL, FLOW, ITERATION, Epochs, write_epochs
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.flows.measured import usable_rows
from tests.console.conftest import make_persona
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.nccl_instrument.simulate.jobs import run, window_of

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)
FOUR = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
PIPELINE = Layout(tp=1, pp=4, dp=2, ranks_per_node=1)
MEASURED = replace(TESTBED, traffic_rows=10**6)
EPOCH_NS = 32_000


async def fed(ingest: Ingest, seconds: float = 6.0) -> Attempt:
    for one in run(FOUR, seconds=seconds, physics=MEASURED):
        ingest.clock_ns = one.arrives_ns
        assert (await ingest.post(one.encoded)).status == 200
    return await Attempt.objects.select_related("job").alatest("pk")


def epochs_of(window: Window, rank: int) -> Epochs:
    """Epochs that agree with what the rank's agent has told of its ops: the bytes of each lie evenly between its bounds."""
    rows = usable_rows(window)
    rows = rows[rows["rank"] == rank]
    keys = sorted(set(zip(*(rows[name].tolist() for name in ("comm_id", "comm_rank", "peer", "channel")), strict=True)))
    flows, cells = np.zeros(len(keys), FLOW), []
    for at, key in enumerate(keys):
        for name, value in zip(("comm_id", "comm_rank", "peer", "channel"), key, strict=True):
            flows[name][at] = value
        mine = rows[(rows["comm_id"] == key[0]) & (rows["peer"] == key[2]) & (rows["channel"] == key[3])]
        held: dict[int, int] = {}
        for row in mine:
            first, last = int(row["start_ns"]) // EPOCH_NS, -(-int(row["end_ns"]) // EPOCH_NS)
            for epoch in range(first, last):
                held[epoch] = held.get(epoch, 0) + int(row["n_bytes"]) // (last - first)
        cells += [(at, epoch, held[epoch]) for epoch in sorted(held)]
    span = int(rows["start_ns"].min()), int(rows["end_ns"].max())
    iterations = np.array([(41, *span, EPOCH_NS, 2, rank != 1)], ITERATION)
    return Epochs(rank, 9, "nic0", "plugin", 10**9, 10**9, iterations, flows, np.array(cells, CELL))


@sync_to_async
def fetched(attempt: Attempt, silent: dict[int, str]) -> tuple[DumpRequest, Window]:
    """A request that the nodes have answered; the last node has not."""
    newest = latest_data_ns(attempt.pk)
    window = read_window(attempt.pk, newest - 3 * 10**9, newest + 1, ("op", "traffic"))
    request = ask_dumps(attempt.pk, [EPOCHS], looks=1)
    for node in range(3):
        parts = []
        for rank in (2 * node, 2 * node + 1):
            part = Part(EPOCHS, rank, 9, 0, "", 1, silent.get(rank, ""), "kept by the agent")
            parts.append(part if rank in silent else part.holding(write_epochs(epochs_of(window, rank))))
        boot = f"{node:032x}"
        store_dumps(attempt.job.team_id, Dumps(attempt.job.name, f"node{node}", boot, request.pk, 1, tuple(parts)))
    return request, window


class Viewer:
    def __init__(self, ingest: Ingest, job: Job) -> None:
        self._browser = make_persona("vera", ingest.team, Role.VIEWER).browser
        self._path = f"/api/v1/jobs/{job.pk}/network/epochs"

    @sync_to_async
    def ask(self, query: str = "", status: int = 200) -> Any:
        answer = self._browser.get(f"{self._path}?{query}")
        assert answer.status_code == status, answer.content
        return answer.json()


async def viewer(ingest: Ingest, attempt: Attempt) -> Viewer:
    return await sync_to_async(Viewer)(ingest, attempt.job)


async def group_named(ingest: Ingest, attempt: Attempt, rank: int, name: str) -> str:
    persona = await sync_to_async(make_persona)(f"gerd{rank}", ingest.team, Role.VIEWER)
    shown = (await sync_to_async(persona.browser.get)(f"/api/v1/jobs/{attempt.job.pk}/network?rank={rank}")).json()
    return next(str(one["comm_id"]) for one in shown["groups"] if one["name"].startswith(name))


def traces(shown: Any, name: str) -> list[Any]:
    return [trace for trace in shown["figure"]["data"] if trace["name"] == name]


async def test_curves_of_the_ranks_have_their_ops_bounds_and_whoever_is_missing_says_why(ingest: Ingest) -> None:
    attempt = await fed(ingest)
    request, _ = await fetched(attempt, {4: "its profiler plugin records no transfers"})
    group, page = await group_named(ingest, attempt, 2, "dp"), await viewer(ingest, attempt)
    shown = await page.ask(f"rank=2&group={group}")
    assert (shown["request"], shown["iteration"], shown["epoch_us"], shown["pending"]) == (request.pk, 41, 32.0, True)
    assert shown["ranks"] == [0, 2] and shown["n_ranks"] == 4
    assert shown["silent"] == [
        {"rank": 4, "why": "its profiler plugin records no transfers"},
        {"rank": 6, "why": "its node has not answered"},
    ]
    assert len(traces(shown, "rate, GB/s")) == 2 and len(traces(shown, "op begins")) == 2
    assert [bool(one["showlegend"]) for one in traces(shown, "rate, GB/s")] == [True, False]
    assert "Pauses of rank 2" in shown["figure"]["text"]


async def test_a_shorter_stretch_is_drawn_finer_and_an_op_begins_where_its_curve_rises(ingest: Ingest) -> None:
    attempt = await fed(ingest)
    await fetched(attempt, {})
    group, page = await group_named(ingest, attempt, 0, "dp"), await viewer(ingest, attempt)
    wide = await page.ask(f"rank=0&group={group}")
    assert wide["column_us"] > 32 and len(traces(wide, "fullest epoch of it")) == 3
    begins = [x for x in traces(wide, "op begins")[0]["x"] if x is not None]
    from_us = round(begins[2] * 1000) - 1000
    close = await page.ask(f"rank=0&group={group}&from_us={from_us}&until_us={from_us + 4000}")
    assert close["column_us"] == 32.0 and not traces(close, "fullest epoch of it")
    assert close["figure"]["layout"]["xaxis"]["range"] == [from_us / 1000, from_us / 1000 + 4]
    x, y = np.array(traces(close, "rate, GB/s")[0]["x"]), np.array(traces(close, "rate, GB/s")[0]["y"])
    rises = x[1:][(y[:-1] == 0) & (y[1:] > 0)]
    began = [x for x in traces(close, "op begins")[0]["x"] if x is not None and from_us / 1000 < x]
    assert len(rises) and np.abs(rises - began[0]).min() <= 0.032


async def test_flows_of_a_rank_are_drawn_apart(ingest: Ingest) -> None:
    attempt = await fed(ingest)
    await fetched(attempt, {})
    group, page = await group_named(ingest, attempt, 0, "dp"), await viewer(ingest, attempt)
    shown = await page.ask(f"rank=0&group={group}&by=flow")
    names = [layout["title"]["text"] for key, layout in shown["figure"]["layout"].items() if key.startswith("yaxis")]
    assert names and all(name.startswith("to rank ") and ", ch " in name for name in names)
    assert shown["ranks"] == [0]


async def test_without_fetched_epochs_nothing_is_drawn_and_a_silly_question_is_refused(ingest: Ingest) -> None:
    attempt = await fed(ingest, 3.0)
    page = await viewer(ingest, attempt)
    nothing = await page.ask("rank=0")
    assert (nothing["request"], nothing["iterations"], nothing["figure"]["data"]) == (None, [], [])
    for query in ("by=node", "from_us=x", "group=zz", "rank=-1", "from_us=99999999999999999&until_us=1"):
        await page.ask(query, 400)


async def test_a_damaged_file_is_told_of_and_the_others_are_drawn(ingest: Ingest) -> None:
    attempt = await fed(ingest)
    request, window = await fetched(attempt, {2: ""})
    await sync_to_async(_damage)(request)
    group, page = await group_named(ingest, attempt, 0, "dp"), await viewer(ingest, attempt)
    shown = await page.ask(f"rank=0&group={group}")
    assert shown["ranks"] == [4] and "damaged" in {one["rank"]: one["why"] for one in shown["silent"]}[0]
    assert len(window.rows("traffic"))


def _damage(request: DumpRequest) -> None:
    part = Part(EPOCHS, 0, 9, 0, "", 1, "", "").holding(b"no epochs at all")
    StoredDump.objects.filter(answer__request=request, rank=0).update(length=part.length, packed=part.packed)


def test_microbatches_of_a_pipeline_are_marked_between_what_came_and_what_went() -> None:
    window = window_of(run(PIPELINE, seconds=6.0, physics=MEASURED))
    ops = window.rows("op")
    comm = next(int(row["comm_id"]) for row in window.members if row["name"].startswith("pp"))
    members = window.members[window.members["comm_id"] == np.uint64(comm)]
    rank = int(members["rank"][members["comm_rank"] == 1][0])
    marks = marks_of(ops, comm, rank, 1, 4, (1, 2**62))
    words = [mark.word for mark in marks]
    assert {"F0", "F1", "B0", "B1"} <= set(words) and len(set(words)) == len(words)
    assert all(mark.begins_ns < mark.ends_ns for mark in marks)
    forward = [mark for mark in marks if mark.word[0] == "F"]
    assert all(one.ends_ns <= two.ends_ns for one, two in pairwise(forward))
    assert not marks_of(ops, comm, rank, 1, 4, (0, 0)), "none of another iteration"
