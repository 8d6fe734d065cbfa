"""Ad-hoc questions about a job's ops: what is measured, of which ops, how it is put into rows, over which time.

    measure   duration (mean, p50, p90, p99, max), bandwidth, bus bandwidth, bytes, ops
    of        a kind of op, a communicator or its family ("dp" is dp0, dp1, …)
    per       time, kind, communicator: from the roll-ups, kept for weeks;   rank, node: from the traces, kept for hours

There is no query language: every question is one of these, reads a bounded amount, and says what its answer rests on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from console.incidents.lifecycle import BadAct
from console.incidents.pictures.export import RANK_SECONDS_MAX, SECONDS_MAX
from console.incidents.rows import iso_from_ns
from ingest.models import Attempt, Communicator, Rank
from ingest.read import read_window
from ingest.sums.summed import Asked, Summed, TooMuch, funcs_of, read_summed
from ingest.window import Rows, Window
from nccl_instrument.tables import FUNCS

SECOND: Final = 1_000_000_000
BUCKET_S: Final = 10
STEPS_MAX: Final = 240
ROWS_SHOWN_MAX: Final = 5000
COMMUNICATORS_OFFERED: Final = 200
DAYS_MAX: Final = 31
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MEASURES: Final = {
    "duration": "ms", "bandwidth": "GB/s", "bus_bandwidth": "GB/s", "bytes": "GB", "ops": "ops",
}  # fmt: skip
OF: Final = ("mean", "p50", "p90", "p99", "max")
PER: Final = ("time", "kind", "communicator", "rank", "node")
_FAMILY: Final = re.compile(r"[\d_./-]+$")


@dataclass(frozen=True, slots=True)
class Question:
    """of: which duration is meant, ignored for other measures. kind, comm: empty for all."""

    measure: str
    of: str
    kind: str
    comm: str
    per: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Column:
    """kind: time (ISO 8601), text or number; unit in words, empty for none."""

    name: str
    kind: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of the columns; None where something is not known. rests_on: what was read, in a sentence; left_out: rows beyond
    the limit. step_s: length of a step of time, 0 where rows are no steps. value_at: the column that was asked for; those before
    it name the row, one after it says of how many ops.
    """

    columns: list[Column]
    rows: list[list[Any]]
    rests_on: str
    left_out: int
    step_s: int
    value_at: int


def answer(attempt: Attempt, question: Question) -> Answer:
    """Raises BadAct for what is too much, or makes no sense together."""
    span_s = (question.end_ns - question.start_ns) / SECOND
    if not 0 < span_s <= DAYS_MAX * 86400:
        raise BadAct(f"A question covers more than nothing and at most {DAYS_MAX} days.")
    try:
        return _from_traces(attempt, question) if question.per in ("rank", "node") else _from_rollups(attempt, question)
    except TooMuch as error:
        raise BadAct(f"{error} Ask about a shorter time, one communicator or one kind of op.") from error


def offered(attempt: Attempt, start_ns: int, end_ns: int) -> dict[str, list[str]]:
    """What a question may name: kinds that occur in this time, families and communicators of the attempt."""
    named = Communicator.objects.filter(attempt=attempt).exclude(name="").order_by("name")
    names = list(dict.fromkeys(named.values_list("name", flat=True)[: COMMUNICATORS_OFFERED * 10]))
    families = dict.fromkeys(family_of(name) for name in names)
    return {
        "kinds": [FUNCS[func] for func in funcs_of(attempt.pk, start_ns, end_ns) if 0 <= func < len(FUNCS)],
        "families": [one for one in families if one and one not in names][:COMMUNICATORS_OFFERED],
        "communicators": names[:COMMUNICATORS_OFFERED],
    }


def family_of(name: str) -> str:
    """dp of dp0, dp_12 and dp.3: communicators that do the same for other ranks."""
    return _FAMILY.sub("", name)


# ---- from roll-ups -----------------------------------------------------------------------------------------------------


def _from_rollups(attempt: Attempt, question: Question) -> Answer:
    step_s = _step_s(question) if question.per == "time" else 0
    found = read_summed(
        Asked(attempt.pk, question.start_ns, question.end_ns, step_s * SECOND, _comm_ids(attempt, question.comm),
              _funcs(question.kind), by_comm=question.per == "communicator"),
        with_bins=question.measure == "duration" and question.of in QUANTILES,
    )  # fmt: skip
    names = dict(Communicator.objects.filter(attempt=attempt).values_list("comm_id", "name"))
    keys: dict[str, Callable[[Summed], list[Any]]] = {
        "time": lambda one: [iso_from_ns(one.at_ns), FUNCS[one.func]],
        "kind": lambda one: [FUNCS[one.func]],
        "communicator": lambda one: [names.get(one.comm_id) or f"{one.comm_id % 2**64:016x}", FUNCS[one.func]],
    }
    key = keys[question.per]
    rows = [[*key(one), _number(_measured(one, question)), one.n_ops] for one in found]
    columns = {"time": [Column("at", "time"), Column("kind", "text")], "kind": [Column("kind", "text")],
               "communicator": [Column("communicator", "text"), Column("kind", "text")]}[question.per]  # fmt: skip
    said = "Roll-ups of ten seconds: an op counts once for each rank that reported it."
    if found and step_s and found[-1].at_ns + step_s * SECOND > question.end_ns:
        said += " The last step is not over, so it holds less."
    return _made(question, columns, rows, "op records", said, step_s)


def _made(
    question: Question, key: list[Column], rows: list[list[Any]], counted: str, said: str, step_s: int = 0
) -> Answer:
    """The rows within the limit; how many ops they rest on is no column of its own where it is what was asked."""
    columns = [*key, _value_column(question), Column("n_ops", "number", counted)]
    if question.measure == "ops":
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Answer(columns, rows[:ROWS_SHOWN_MAX], said, max(len(rows) - ROWS_SHOWN_MAX, 0), step_s, len(key))


def _step_s(question: Question) -> int:
    """The shortest multiple of ten seconds of which at most STEPS_MAX cover the time."""
    span_s = (question.end_ns - question.start_ns) / SECOND
    return BUCKET_S * max(1, -(-int(span_s) // (BUCKET_S * STEPS_MAX)))


def _measured(one: Summed, question: Question) -> float | None:
    match question.measure:
        case "ops":
            return one.n_ops
        case "bytes":
            return one.bytes / 1e9
        case "bandwidth":
            return _scaled(one.bytes_per_s, 1e-9)
        case "bus_bandwidth":
            return _scaled(one.bus_bytes_per_s, 1e-9)
    if question.of in QUANTILES:
        return _scaled(one.quantile_ns(QUANTILES[question.of]), 1e-6)
    if not one.n_timed:
        return None
    return (one.duration_max_ns if question.of == "max" else one.duration_sum_ns / one.n_timed) / 1e6


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _number(value: float | None) -> float | int | None:
    """Six digits tell all that is known."""
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")


def _value_column(question: Question) -> Column:
    name = f"duration_{question.of}" if question.measure == "duration" else question.measure
    return Column(name, "number", MEASURES[question.measure])


def _funcs(kind: str) -> list[int] | None:
    if not kind:
        return None
    if kind not in FUNCS:
        raise BadAct(f"There is no kind of op named {kind[:40]}.")
    return [FUNCS.index(kind)]


def _comm_ids(attempt: Attempt, comm: str) -> list[int] | None:
    """As stored: of the communicators of this name, of this family, or of this id in hexadecimal digits."""
    if not comm:
        return None
    known = dict(Communicator.objects.filter(attempt=attempt).values_list("comm_id", "name"))
    found = [comm_id for comm_id, name in known.items() if comm in (name, f"{comm_id % 2**64:016x}")]
    found = found or [comm_id for comm_id, name in known.items() if name and family_of(name) == comm]
    if not found:
        raise BadAct(f"This attempt has no communicator named {comm[:40]}.")
    return found


# ---- from traces -------------------------------------------------------------------------------------------------------


def _from_traces(attempt: Attempt, question: Question) -> Answer:
    """Ops that ended in this time, by who took part: one row per rank or node."""
    if question.measure == "bus_bandwidth":
        raise BadAct("Bus bandwidth is one of a communicator: ask per time, kind or communicator.")
    n_ranks = max(Rank.objects.filter(attempt=attempt, replaced=False).count(), 1)
    longest_s = max(1, min(SECONDS_MAX, RANK_SECONDS_MAX // n_ranks))
    if question.end_ns - question.start_ns > longest_s * SECOND:
        raise BadAct(
            f"Per rank or node the traces are read, of this job ({n_ranks} ranks) at most {longest_s} s of them."
        )
    window = read_window(attempt.pk, question.start_ns, question.end_ns, ("op",))
    ops = _wanted(window.rows("op"), _comm_ids(attempt, question.comm), _funcs(question.kind))
    of_node = question.per == "node"
    members, place = np.unique(ops["node" if of_node else "rank"], return_inverse=True)
    values, counts = _grouped(ops, place, len(members), question)
    named = _node_names(window)
    names = [named.get(int(one), "unknown") if of_node else int(one) for one in members]
    rows = [[name, _number(value), int(n)] for name, value, n in zip(names, values, counts, strict=True)]
    unknown = f" Ranks whose number is not known are {-1}." if not of_node and -1 in names else ""
    kept = "" if len(ops) else " None are stored: traces are kept for about a day, around incidents longer."
    key_column = Column(question.per, "text" if of_node else "number")
    return _made(
        question, [key_column], rows, "ops", f"Traces: {len(ops):,} ops that ended in this time.{unknown}{kept}"
    )


def _wanted(ops: Rows, comm_ids: Sequence[int] | None, funcs: Sequence[int] | None) -> Rows:
    keep = np.ones(len(ops), np.bool_)
    if comm_ids is not None:
        keep &= np.isin(ops["comm_id"], np.array([one % 2**64 for one in comm_ids], np.uint64))
    if funcs is not None:
        keep &= np.isin(ops["func"], funcs)
    return ops[keep]


def _grouped(ops: Rows, place: Any, n: int, question: Question) -> tuple[list[float | None], Any]:
    """(n,) the measure of each member's ops, None where no end is known, and how many ops it had."""
    counts = np.bincount(place, minlength=n)
    if question.measure == "ops":
        return [int(one) for one in counts], counts
    if question.measure == "bytes":
        return list(np.bincount(place, ops["bytes"] / 1e9, n)), counts
    start = np.where(ops["started_ns"] > 0, ops["started_ns"], ops["enqueued_ns"])
    took = np.where((ops["done_ns"] > 0) & (start > 0), ops["done_ns"] - start, 0)
    timed = took > 0
    if question.measure == "bandwidth":
        moved, spent = (np.bincount(place[timed], column[timed], n) for column in (ops["bytes"], took))
        return [float(b / t) if t else None for b, t in zip(moved, spent, strict=True)], counts
    return [_of(took[timed & (place == at)] / 1e6, question.of) for at in range(n)], counts


def _of(ms: Any, of: str) -> float | None:
    if not len(ms):
        return None
    return float(np.quantile(ms, QUANTILES[of]) if of in QUANTILES else ms.max() if of == "max" else ms.mean())


def _node_names(window: Window) -> Mapping[int, str]:
    return {at: str(name) for at, name in enumerate(window.nodes["name"])}


def series_of(found: Answer) -> dict[str, list[tuple[Any, Any]]]:
    """Text column after the first → (first column, value) of its rows, for a figure."""
    at = found.value_at
    series: dict[str, list[tuple[Any, Any]]] = {}
    for row in found.rows:
        series.setdefault(str(row[1]) if at == 2 else "", []).append((row[0], row[at]))
    return series


def cells(rows: Iterable[Sequence[Any]]) -> Iterable[list[Any]]:
    """Rows for a spreadsheet: text that it would take for a formula is made plain, as names come from outside."""
    for row in rows:
        yield [f"'{one}" if isinstance(one, str) and one[:1] in "=+-@\t\r" else one for one in row]
