"""The REST API of raw epochs: rate curves of a group's ranks, or of one rank's flows, as they were fetched.

A page asks for a stretch of time in microseconds since the request that fetched them was made, and gets as many points as it
can draw; without a stretch it gets the group's newest iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard import jobs
from console.dashboard.job_api import find_job
from console.dashboard.schema import ERROR, an_object
from console.dumps.wanted import requests_for
from console.incidents import read as incident_read
from console.incidents.rows import iso
from console.network.api import FIGURE, QUERY, NetworkQuery, kept
from console.network.epochs_figure import Strip, epochs_figure
from console.network.fetched import Fetched, Iteration, fetch, iterations_of, ranks_looked_for
from console.network.read import SECOND, Span, first_rank, groups_of_rank, places_of, read_traffic
from console.network.strips import pauses_of, strips_of_flows, strips_of_ranks, words_of
from ingest.door.dumps import requests_of
from ingest.models import Attempt, DumpRequest
from nccl_instrument.dumps import EPOCHS as KIND

ITERATIONS_MAX: Final = 64
SILENT_MAX: Final = 64
BEFORE_NS: Final = 12 * SECOND
"""What the groups serve shows in some iterations only."""
AFTER_NS: Final = 5 * SECOND
MICROSECONDS_MAX: Final = 10**15
EPOCHS: Final = an_object(
    request=int | None, pending=bool, asked_at=str | None, rank=int | None, group=str, by=str, from_us=int, until_us=int,
    reaches_us=list[int], epoch_us=float | None, column_us=float | None, iteration=int | None,
    iterations=list[dict[str, Any]], ranks=list[int], n_ranks=int, silent=list[dict[str, Any]], left_out=int, source=str,
    figure=FIGURE,
)  # fmt: skip
ASKED: Final = [
    *QUERY,
    OpenApiParameter("by", str, enum=["rank", "flow"], description="A curve for each rank, or for each flow of the rank."),
    OpenApiParameter("from_us", int, description="Begin of the stretch, since the request was made; may be negative."),
    OpenApiParameter("until_us", int, description="Its end."),
]  # fmt: skip


class EpochsQuery(NetworkQuery):
    by = serializers.ChoiceField(choices=["rank", "flow"], required=False, default="rank")
    from_us = serializers.IntegerField(required=False, min_value=-MICROSECONDS_MAX, max_value=MICROSECONDS_MAX)
    until_us = serializers.IntegerField(required=False, min_value=-MICROSECONDS_MAX, max_value=MICROSECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page asks for. stretch: (from, until) µs since the request was made, None for the newest iteration."""

    rank: int
    comm_id: int
    by: str
    stretch: tuple[int, int] | None

    @property
    def group(self) -> str:
        return f"{self.comm_id:016x}"


@method_decorator(gzip_page, name="dispatch")
class IncidentEpochs(APIView):
    @extend_schema("incident_epochs", parameters=ASKED, responses={200: EPOCHS, 400: ERROR, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Rate curves of the raw epochs that were fetched for the incident."""
        incident = incident_read.find_incident(number, caller_of(request.user).team_ids)
        return Response(
            _answer(request, incident.attempt, requests_for(incident), first_rank(incident.attempt, incident))
        )


@method_decorator(gzip_page, name="dispatch")
class JobEpochs(APIView):
    @extend_schema("job_epochs", parameters=ASKED, responses={200: EPOCHS, 400: ERROR, 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """The same of what was fetched last of the job's newest attempt."""
        attempt = jobs.newest_attempt(find_job(caller_of(request.user), job_id))
        requests = requests_of(attempt.pk) if attempt else []
        return Response(_answer(request, attempt, requests, first_rank(attempt, None) if attempt else None))


def _answer(
    request: Request, attempt: Attempt | None, requests: Sequence[DumpRequest], rank: int | None
) -> dict[str, Any]:
    query = EpochsQuery(data={name: request.GET[name] for name in EpochsQuery().fields if request.GET.get(name)})
    query.is_valid(raise_exception=True)
    given = query.validated_data
    rank = given.get("rank", rank)
    groups = groups_of_rank(attempt, rank) if attempt is not None and rank is not None else []
    known = [one.comm_id for one in groups]
    if attempt is None or rank is None or not known:
        return _nothing(rank, "", given["by"])
    group = given["group"] if given.get("group") in known else known[0]
    stretch = (given["from_us"], given["until_us"]) if {"from_us", "until_us"} <= set(given) else None
    asked = Asked(rank, int(group, 16), given["by"], stretch)
    newest = requests[0].pk if requests else 0
    shown = "_".join(map(str, stretch or ()))
    key = f"epochs:{attempt.pk}:{newest}:{asked.rank}:{group}:{asked.by}:{shown}"
    return kept(key, partial(_of_group, attempt, requests, asked))


def _of_group(attempt: Attempt, requests: Sequence[DumpRequest], asked: Asked) -> dict[str, Any]:
    members = places_of(attempt, asked.comm_id)
    wanted = [asked.rank] if asked.by == "flow" else ranks_looked_for(members, asked.rank)
    fetched = fetch(attempt, requests, asked.comm_id, members, wanted)
    found = _nothing(asked.rank, asked.group, asked.by) | {"n_ranks": len(members), "silent": _silent(fetched)}
    found["pending"] = any(one.state == DumpRequest.State.OPEN and KIND in one.kinds for one in requests)
    found |= {"request": fetched.request.pk, "asked_at": iso(fetched.request.asked_at)} if fetched.request else {}
    iterations = iterations_of(fetched.ranks, asked.comm_id)
    if fetched.request is None or not iterations:
        return found
    zero_ns = int(fetched.request.asked_at.timestamp() * 1e6) * 1000
    shown = _shown_iteration(iterations, asked.stretch, zero_ns)
    from_ns, until_ns = _stretch(asked.stretch, shown or iterations[-1], zero_ns)
    span = Span(iterations[0].begins_ns - BEFORE_NS, iterations[-1].ends_ns + AFTER_NS, 0)
    window = read_traffic(attempt, span, [one.node for one in fetched.ranks])
    own = next((one for one in fetched.ranks if one.rank == asked.rank), fetched.ranks[0])
    if asked.by == "rank":
        strips, left_out = strips_of_ranks(window, fetched, asked.comm_id, (from_ns, until_ns), shown), 0
    else:
        strips, left_out = strips_of_flows(window, own, asked.comm_id, (from_ns, until_ns))
    text = words_of(strips, (from_ns, until_ns)) + pauses_of(own, asked.comm_id, (from_ns, until_ns))
    lengths = np.concatenate([one.epochs.iterations["epoch_ns"] for one in fetched.ranks])
    return found | {
        "from_us": (from_ns - zero_ns) // 1000, "until_us": -((zero_ns - until_ns) // 1000),
        "reaches_us": [(iterations[0].begins_ns - zero_ns) // 1000, -((zero_ns - iterations[-1].ends_ns) // 1000)],
        "epoch_us": float(lengths.min()) / 1e3, "column_us": _column_us(strips),
        "iteration": shown.number if shown else None,
        "iterations": [_iteration(one, zero_ns) for one in iterations[-ITERATIONS_MAX:]],
        "ranks": [one.rank for one in fetched.ranks], "left_out": left_out, "source": fetched.ranks[0].epochs.source,
        "figure": epochs_figure(strips, zero_ns, from_ns, until_ns, text),
    }  # fmt: skip


def _shown_iteration(
    iterations: Sequence[Iteration], stretch: tuple[int, int] | None, zero_ns: int
) -> Iteration | None:
    """The newest whole one that most ranks have; of a stretch the one its middle lies in."""
    if stretch is not None:
        middle = zero_ns + 500 * (stretch[0] + stretch[1])
        return next((one for one in iterations if one.begins_ns <= middle < one.ends_ns), None)
    return max(iterations, key=lambda one: (one.n_ranks, one.is_whole, one.begins_ns))


def _stretch(stretch: tuple[int, int] | None, iteration: Iteration, zero_ns: int) -> tuple[int, int]:
    if stretch is None:
        return iteration.begins_ns, iteration.ends_ns
    from_ns = zero_ns + 1000 * stretch[0]
    return from_ns, max(zero_ns + 1000 * stretch[1], from_ns + 1000)


def _column_us(strips: Sequence[Strip]) -> float | None:
    widths = [int(strip.curve.edges_ns[1] - strip.curve.edges_ns[0]) for strip in strips if len(strip.curve.mean) > 1]
    return max(widths) / 1e3 if widths else None


def _iteration(one: Iteration, zero_ns: int) -> dict[str, Any]:
    return {
        "number": one.number, "from_us": (one.begins_ns - zero_ns) // 1000, "until_us": -((zero_ns - one.ends_ns) // 1000),
        "is_whole": one.is_whole, "every": one.every, "n_ranks": one.n_ranks,
    }  # fmt: skip


def _silent(fetched: Fetched) -> list[dict[str, Any]]:
    return [{"rank": rank, "why": why} for rank, why in fetched.silent[:SILENT_MAX]]


def _nothing(rank: int | None, group: str, by: str) -> dict[str, Any]:
    return {
        "request": None, "pending": False, "asked_at": None, "rank": rank, "group": group, "by": by, "from_us": 0,
        "until_us": 0, "reaches_us": [],
        "epoch_us": None, "column_us": None, "iteration": None, "iterations": [], "ranks": [], "n_ranks": 0, "silent": [],
        "left_out": 0, "source": "", "figure": {"data": [], "layout": {}, "config": {}, "text": ""},
    }  # fmt: skip
