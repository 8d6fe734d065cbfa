"""The REST API of ad-hoc questions: one answer as rows and a figure, and the same as CSV and as Parquet."""

from __future__ import annotations

import csv
import dataclasses
import io
import time
from datetime import datetime
from typing import Any, Final

import arro3.io
import plotly.graph_objects as go
from arro3.core import Array, DataType, Table
from django.http import HttpResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard import jobs
from console.dashboard.axes import spare, with_gaps
from console.dashboard.figures import BARE, COLOURS, as_figure
from console.dashboard.job_api import find_job
from console.dashboard.schema import ERROR, an_object
from console.incidents.lifecycle import BadAct
from console.incidents.rows import iso
from console.questions.answering import (
    MEASURES,
    OF,
    PER,
    Answer,
    Column,
    Question,
    answer,
    cells,
    offered,
    series_of,
)
from ingest.models import Attempt
from nccl_instrument.tables import FUNCS

MS: Final = 1_000_000
LAST_S: Final = 30 * 60
LAST_OF_TRACES_S: Final = 30
SERIES_MAX: Final = 8
QUERY: Final = [
    OpenApiParameter("measure", str, enum=list(MEASURES)),
    OpenApiParameter("of", str, enum=list(OF), description="Which duration is meant."),
    OpenApiParameter("kind", str, description="Of one kind of op, such as AllReduce."),
    OpenApiParameter("comm", str, description="Of one communicator, by name or id, or of a family such as dp."),
    OpenApiParameter("per", str, enum=list(PER), description="rank and node are read from traces, at most two minutes of them."),
    OpenApiParameter("from", int, description="Unix milliseconds; with `to`. Left out: what is newest."),
    OpenApiParameter("to", int),
    OpenApiParameter("attempt", int, description="Number of the attempt; the newest if left out."),
]  # fmt: skip
FIGURE: Final = an_object(data=list[dict[str, Any]], layout=dict[str, Any], config=dict[str, Any], text=str)
ANSWER: Final = an_object(
    server_at=str, attempt=int, attempts=list[int], from_ms=int, to_ms=int, columns=list[Column], rows=list[list[Any]],
    rests_on=str, left_out=int, step_s=int, value_at=int, figure=FIGURE,
    offered=dict[str, list[str]],
)  # fmt: skip
WRONG: Final = {400: ERROR, 404: ERROR}


class QuestionQuery(serializers.Serializer[Any]):
    measure = serializers.ChoiceField(list(MEASURES), required=False, default="duration")
    of = serializers.ChoiceField(OF, required=False, default="p99")
    kind = serializers.ChoiceField(["", *FUNCS], required=False, default="", allow_blank=True)
    comm = serializers.CharField(max_length=64, required=False, default="", allow_blank=True)
    per = serializers.ChoiceField(PER, required=False, default="time")
    to = serializers.IntegerField(min_value=0, max_value=2**53, required=False)
    attempt = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False)

    def get_fields(self) -> Any:
        """`from` is no name for an attribute."""
        return {**super().get_fields(), "from": serializers.IntegerField(min_value=0, max_value=2**53, required=False)}


@method_decorator(gzip_page, name="dispatch")
class JobQuestion(APIView):
    @extend_schema("job_question", parameters=QUERY, responses={200: ANSWER, **WRONG})
    def get(self, request: Request, job_id: int) -> Response:
        """How long ops take, how fast they are, how many there were: of which, per what, over which time."""
        attempt, question = _asked(request, job_id)
        found = answer(attempt, question)
        numbers = Attempt.objects.filter(job=job_id).order_by("-number").values_list("number", flat=True)
        return Response(
            {
                "server_at": iso(timezone.now()), "attempt": attempt.number, "attempts": list(numbers[:50]),
                "from_ms": question.start_ns // MS, "to_ms": question.end_ns // MS,
                **dataclasses.asdict(found),
                "figure": figure_of(question, found), "offered": offered(attempt, question.start_ns, question.end_ns),
            }
        )  # fmt: skip


class JobQuestionCsv(APIView):
    @extend_schema("job_question_csv", parameters=QUERY, responses={(200, "text/csv"): OpenApiTypes.STR, **WRONG})
    def get(self, request: Request, job_id: int) -> HttpResponse:
        """The same rows as CSV; the head names columns and units, the header `X-Left-Out` counts rows beyond the limit."""
        found = answer(*_asked(request, job_id))
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([f"{one.name} [{one.unit}]" if one.unit else one.name for one in found.columns])
        writer.writerows(cells(found.rows))
        return _file(text.getvalue().encode(), "text/csv; charset=utf-8", f"job-{job_id}.csv", found.left_out)


class JobQuestionParquet(APIView):
    @extend_schema(
        "job_question_parquet", parameters=QUERY,
        responses={(200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY, **WRONG},
    )  # fmt: skip
    def get(self, request: Request, job_id: int) -> HttpResponse:
        """The same rows as a Parquet file, for notebooks: units in columns' names, `left_out` and `rests_on` in its metadata."""
        found = answer(*_asked(request, job_id))
        kind = "application/vnd.apache.parquet"
        return _file(parquet_of(found), kind, f"job-{job_id}.parquet", found.left_out)


def parquet_of(found: Answer) -> bytes:
    columns: dict[str, Any] = {}
    for at, one in enumerate(found.columns):
        values = [row[at] for row in found.rows]
        if one.kind == "time":
            ms = [round(datetime.fromisoformat(text).timestamp() * 1000) for text in values]
            made = Array(ms, type=DataType.int64()).cast(DataType.timestamp("ms", tz="UTC"))
        elif one.kind == "number":
            made = Array([None if value is None else float(value) for value in values], type=DataType.float64())
        else:
            made = Array(values, type=DataType.string())
        columns[f"{one.name}_{_unit(one.unit)}" if one.unit else one.name] = made
    file = io.BytesIO()
    said = {"left_out": str(found.left_out), "rests_on": found.rests_on}  # the file outlives the headers it came with
    arro3.io.write_parquet(Table.from_pydict(columns), file, key_value_metadata=said)
    return file.getvalue()


def figure_of(question: Question, found: Answer) -> dict[str, Any]:
    """Lines over time, bars else; beyond SERIES_MAX kinds the table alone has the rest."""
    value = found.columns[found.value_at]
    per = "UTC" if question.per == "time" else question.per
    kind = "date" if question.per == "time" else "category"
    axes = {
        "xaxis": {"type": kind, "title": {"text": per}},
        "yaxis": {"rangemode": "tozero", "title": {"text": value.unit}},
    }
    figure = go.Figure(layout={**BARE, **axes, "uirevision": "question"})
    series = series_of(found)
    for number, (name, points) in enumerate(list(series.items())[:SERIES_MAX]):
        colour = COLOURS[number % len(COLOURS)]
        if question.per == "time":
            xs, ys = with_gaps(points)
            figure.add_scatter(x=xs, y=ys, name=name, mode="lines+markers", marker={"size": 4, "color": colour},
                               line={"color": colour, "dash": ("solid", "dash", "dot")[number % 3]})  # fmt: skip
        else:
            ys = [y for _, y in points]
            figure.add_bar(x=[str(x) for x, _ in points], y=ys, name=name or value.name, marker={"color": colour})
    drawn = [[y for _, y in points] for points in list(series.values())[:SERIES_MAX]]
    beyond = spare(figure, drawn) if question.per == "time" else ""
    return as_figure(figure, _words(value, found, len(series)) + beyond)


def _words(value: Column, found: Answer, n_series: int) -> str:
    at = found.value_at
    known = [row for row in found.rows if row[at] is not None]
    if not known:
        return f"Nothing is known. {found.rests_on}"
    most, least = max(known, key=lambda row: row[at]), min(known, key=lambda row: row[at])
    step = f" in steps of {found.step_s} s" if found.step_s else ""
    more = f" {n_series - SERIES_MAX} more series are in the table." if n_series > SERIES_MAX else ""
    unit = f" in {value.unit}" if value.unit != value.name else ""
    return (
        f"{len(found.rows):,} rows{step}. {value.name.replace('_', ' ')}{unit}: from {least[at]:g} ({_named(found, least)}) to "
        f"{most[at]:g} ({_named(found, most)}).{more} {found.rests_on}"
    )


def _named(found: Answer, row: list[Any]) -> str:
    key = zip(found.columns[: found.value_at], row, strict=False)
    return ", ".join(f"{one.name} {value}" if one.name == "rank" else str(value) for one, value in key)


def _unit(unit: str) -> str:
    return {"GB/s": "gb_per_s", "GB": "gb", "op records": "records", "ops": "count"}.get(unit, unit)


def _file(body: bytes, kind: str, name: str, n_left_out: int) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Left-Out": str(n_left_out)}
    return HttpResponse(body, content_type=kind, headers=headers)


def _asked(request: Request, job_id: int) -> tuple[Attempt, Question]:
    """Attempt.DoesNotExist where the job has no such one."""
    job = find_job(caller_of(request.user), job_id)
    given = QuestionQuery(data=request.query_params)
    given.is_valid(raise_exception=True)
    asked = given.validated_data
    attempt = Attempt.objects.get(job=job, number=asked["attempt"]) if "attempt" in asked else jobs.newest_attempt(job)
    if attempt is None:
        raise Attempt.DoesNotExist
    start_ns, end_ns = _times(asked, attempt)
    return attempt, Question(
        asked["measure"], asked["of"], asked["kind"], asked["comm"], asked["per"], start_ns, end_ns
    )


def _times(asked: dict[str, Any], attempt: Attempt) -> tuple[int, int]:
    """As asked; else what is newest: half an hour of roll-ups, or the last seconds of traces."""
    if ("from" in asked) != ("to" in asked):
        raise BadAct("Give both `from` and `to`, or neither.")
    if "from" in asked:
        return asked["from"] * MS, asked["to"] * MS
    newest = time.time_ns() if attempt.ended_at is None else int(attempt.ended_at.timestamp() * 1e9)
    last_s = LAST_OF_TRACES_S if asked["per"] in ("rank", "node") else LAST_S
    return newest - last_s * 1000 * MS, newest
