"""Stage vectors out of what people have already: TraceML's final summary, and traces of PyTorch's profiler.

TraceML's `final_summary.json` (schema 1.x) holds means per rank, so it is one step of every rank. A Kineto trace holds the
ranges that record_function made; those whose names are stages, or known to mean one, are added up within each range `step`
(or the profiler's own ProfilerStep). Both are untrusted: sizes are capped, numbers are checked, and what cannot be read is
refused with a sentence.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, DEFAULT, FORWARD, OPTIMIZER, OTHER
from rca.frontier.accounting import Seconds
from rca.frontier.report import StageWindow
from rca.plain import window_hint

BYTES_MAX: Final = 2 * 2**30
STEPS_MAX, RANKS_MAX = 10_000, 10_000
TO_DEVICE: Final = "data.to_device"
_TRACEML: Final = {
    "input_wait_ms": DATA, "h2d_ms": TO_DEVICE, "forward_ms": FORWARD, "backward_ms": BACKWARD,
    "optimizer_ms": OPTIMIZER, "optimizer_step_ms": OPTIMIZER, "residual_ms": OTHER,
}  # fmt: skip
_TRACEML_ORDER: Final = (DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, OTHER)
_RANGES: Final = (
    (re.compile(r"^enumerate\(DataLoader\)"), DATA), (re.compile(r"^Optimizer\.step"), OPTIMIZER),
    (re.compile(r"^(forward|## ?forward ?##)$", re.IGNORECASE), FORWARD),
    (re.compile(r"^(DistributedDataParallel|FullyShardedDataParallel)\.forward$"), FORWARD),
    (re.compile(r"^(backward|## ?backward ?##)$", re.IGNORECASE), BACKWARD),
    (re.compile(r"^(callbacks?|logging|checkpoint)$", re.IGNORECASE), CALLBACKS),
)  # fmt: skip
_ENGINE: Final = re.compile(r"^autograd::engine::evaluate_function")
"""What autograd does, on whatever thread: from its first to its last in a step is backward, where nobody named one."""
NAMED: Final = ("data", "forward", "backward", "optimizer", "callbacks")
_STEP: Final = re.compile(r"^(?:ProfilerStep#(\d+)|step(?:[ #](\d+))?)$")
_RANK: Final = re.compile(r"(\d+)(?!.*\d)")


Range = tuple[float, float, str, Any]
"""Start, end (µs), name, thread."""


class BadImport(ValueError):
    """The file cannot be read as stages; the message says why."""


@dataclass(frozen=True, slots=True)
class Imported:
    """window: to be labelled. source: what the file is. told: what had to be left out or assumed, in sentences."""

    window: StageWindow
    source: str
    told: tuple[str, ...]


def read_imported(paths: Sequence[Path]) -> Imported:
    """One TraceML summary, or the profiler traces of several ranks. Raises BadImport."""
    if not paths:
        raise BadImport("No file was given.")
    if len(paths) > RANKS_MAX:
        raise BadImport(f"More than {RANKS_MAX:,} files.")
    first = _json(paths[0])
    if "traceEvents" in first:
        return _kineto(paths, first)
    if len(paths) > 1:
        raise BadImport(f"{paths[0].name} is no profiler trace; of TraceML one file holds all ranks.")
    return _traceml(paths[0], first)


def _json(path: Path) -> dict[str, Any]:
    """The file as a JSON object, unpacked when it is gzipped."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
        if len(raw) > BYTES_MAX:
            raise BadImport(f"{path.name} holds more than {BYTES_MAX // 2**30} GiB.")
        found = json.loads(raw)
    except OSError as error:
        raise BadImport(f"{path.name} cannot be read: {error.strerror or error}.") from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise BadImport(f"{path.name} is not JSON.{window_hint(path)}") from error
    if not isinstance(found, dict):
        raise BadImport(f"{path.name} is not a JSON object.")
    return found


# ---- TraceML -----------------------------------------------------------------------------------------------------------


def _traceml(path: Path, raw: Mapping[str, Any]) -> Imported:
    """The means of every rank. H2D has no stage of ours, so it is a sub-stage of data; what is missing is zero and said."""
    rows, told = (
        _rank_rows(path, raw),
        ["Means of the whole run: of one step per rank, so that no leader can be steady."],
    )
    ranks = sorted(rows)
    durations = np.zeros((1, len(ranks), len(_TRACEML_ORDER)))
    missing = dict.fromkeys(_TRACEML_ORDER, 0)
    for at, rank in enumerate(ranks):
        held = {
            stage: _ms(rows[rank].get(name))
            for name, stage in _TRACEML.items()
            if _ms(rows[rank].get(name)) is not None
        }
        for place, stage in enumerate(_TRACEML_ORDER):
            value = held.get(stage)
            missing[stage] += value is None
            durations[0, at, place] = (value or 0.0) / 1e3
    told += [f"{stage} is missing on {n} of {len(ranks)} ranks and taken as 0." for stage, n in missing.items() if n]
    if not durations.any():
        raise BadImport(f"{path.name}: no rank has a stage with a time.")
    trouble = tuple(one for one in told if "missing" in one)
    window = StageWindow(
        durations, _TRACEML_ORDER, tuple(ranks), trouble=trouble, why="a summary holds no communicators", is_mean=True
    )
    return Imported(window, f"TraceML {raw.get('schema_version', 'of unknown schema')}"[:40], tuple(told))


def _rank_rows(path: Path, raw: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Rank → metrics, of the section on step time, wherever this schema keeps it."""
    major = str(raw.get("schema_version", "1")).partition(".")[0]
    if major != "1":
        raise BadImport(f"{path.name} has schema {raw.get('schema_version')}; this version reads 1.x.")
    for section in _sections(raw, 4):
        groups = section.get("groups")
        rows = groups.get("rows") if isinstance(groups, dict) else None
        if not isinstance(rows, dict) or len(rows) > RANKS_MAX:
            continue
        found: dict[int, Mapping[str, Any]] = {}
        for key, row in rows.items():
            metrics = row.get("metrics") if isinstance(row, dict) else None
            if (
                str(key).isascii()
                and str(key).isdigit()
                and len(str(key)) < 8
                and isinstance(metrics, dict)
                and _TRACEML.keys() & metrics.keys()
            ):
                found[int(key)] = metrics
        if found:
            return found
    raise BadImport(
        f"{path.name} holds no step times per rank: it is no final_summary.json of TraceML, or of a failed run."
    )


def _sections(raw: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
    """Every object of the file down to a depth, those about step time first."""
    found: list[Mapping[str, Any]] = [raw]
    if depth:
        keys = sorted(
            (key for key, value in raw.items() if isinstance(value, dict)), key=lambda key: "step_time" not in key
        )
        for key in keys:
            found += _sections(raw[key], depth - 1)
    return found


def _ms(value: Any) -> float | None:
    """A time in ms; None for what is none, or is below zero."""
    found = _finite(value)
    return found if found is not None and found >= 0 else None


def _finite(value: Any) -> float | None:
    """A number; None for what is none, and for an integer that no clock has counted."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


# ---- PyTorch's profiler ------------------------------------------------------------------------------------------------


def _kineto(paths: Sequence[Path], first: Mapping[str, Any]) -> Imported:
    """The steps that every rank's trace holds, cut to the same stages."""
    by_rank: dict[int, dict[int, Seconds]] = {}
    for number, path in enumerate(paths):
        raw = first if number == 0 else _json(path)
        rank = _rank_of(path, raw, number)
        if rank in by_rank:
            raise BadImport(f"{path.name} is of rank {rank}, and so is another file.")
        by_rank[rank] = _steps(path, raw)
    numbers = sorted(set.intersection(*(set(steps) for steps in by_rank.values())))
    if not numbers:
        raise BadImport("The traces have no step in common: each needs ranges called ProfilerStep#N or step N.")
    ranks, told = sorted(by_rank), list[str]()
    n_left = sum(len(steps) for steps in by_rank.values()) - len(numbers) * len(ranks)
    if n_left:
        told.append(f"{n_left} steps are not in the traces of every rank and are left out.")
    cut = np.array([[by_rank[rank][step] for rank in ranks] for step in numbers])  # (T, R, 2, S)
    order = _order(cut[:, :, 1])
    if cut[:, :, 0, -1].sum() > cut[:, :, 0].sum() / 2:
        told.append(
            'Most of the time is in no stage: name it in the program, as in `with torch.profiler.record_function("forward"):`'
            f" ({', '.join(NAMED)})."
        )
    window = StageWindow(
        cut[:, :, 0, order], tuple(DEFAULT.stages[at] for at in order), tuple(ranks),
        n_missing=_missing(first, len(ranks)), first_step=numbers[0], why="a trace is read for its ranges only",
    )  # fmt: skip
    return Imported(window, f"PyTorch profiler, {len(ranks)} {'rank' if len(ranks) == 1 else 'ranks'}", tuple(told))


def _order(began: Seconds) -> list[int]:
    """The stages as they follow each other in these traces, the residual last: callbacks may come after the optimizer."""
    is_seen: list[bool] = (~np.all(np.isnan(began), axis=(0, 1))).tolist()
    middle = [float(np.nanmedian(began[:, :, at])) if seen else math.inf for at, seen in enumerate(is_seen)]
    return [*sorted(range(len(middle) - 1), key=lambda at: (middle[at], at)), len(middle) - 1]


def _rank_of(path: Path, raw: Mapping[str, Any], number: int) -> int:
    held = raw.get("distributedInfo")
    rank = held.get("rank") if isinstance(held, dict) else None
    if isinstance(rank, int) and 0 <= rank < 10_000_000:
        return rank
    found = _RANK.search(path.name.partition(".")[0])
    return int(found[1]) if found and len(found[1]) < 8 else number


def _missing(raw: Mapping[str, Any], n_ranks: int) -> int:
    held = raw.get("distributedInfo")
    world = held.get("world_size") if isinstance(held, dict) else None
    return max(world - n_ranks, 0) if isinstance(world, int) and world < 10_000_000 else 0


def _steps(path: Path, raw: Mapping[str, Any]) -> dict[int, Seconds]:
    """Step → (2, S) seconds of the default stages, and when they began. Ranges are those of the thread that makes the steps."""
    events = raw["traceEvents"]
    if not isinstance(events, list):
        raise BadImport(f"{path.name}: traceEvents is no list.")
    marked = [one for one in map(_range, events) if one is not None]
    steps = [(at, to, _number(name), thread) for at, to, name, thread in marked if _STEP.match(name)]
    if len(steps) > STEPS_MAX:
        raise BadImport(f"{path.name} holds more than {STEPS_MAX:,} steps.")
    steps.sort(key=lambda one: one[0])
    by_thread: dict[Any, list[tuple[float, float, int]]] = {}
    for at, to, name, thread in [*marked, *_backwards(marked, steps)]:
        if (stage := _stage(name)) is not None:
            by_thread.setdefault(thread, []).append((at, to, stage))
    held = {thread: sorted(ranges, key=lambda one: (one[0], -one[1])) for thread, ranges in by_thread.items()}
    return {
        order if number is None else number: _within(at, to, held.get(thread, []))
        for order, (at, to, number, thread) in enumerate(steps)
    }


def _backwards(marked: Sequence[Range], steps: Sequence[tuple[float, float, int | None, Any]]) -> list[Range]:
    """A range of backward for each step that autograd's engine works in and nobody named one in; it has threads of its own."""
    backward = DEFAULT.stages.index(BACKWARD)
    if any(_stage(name) == backward for _, _, name, _ in marked):
        return []
    engine = sorted((at, to) for at, to, name, _ in marked if _ENGINE.match(name))
    found = []
    for at, to, _, thread in steps:
        own = engine[bisect_left(engine, (at, 0.0)) : bisect_left(engine, (to, 0.0))]
        if own:
            found.append((own[0][0], min(max(end for _, end in own), to), BACKWARD, thread))
    return found


def _within(at: float, to: float, ranges: Sequence[tuple[float, float, int]]) -> Seconds:
    """(2, S) time of each stage inside [at, to), outermost ranges only, and when it first began; what no stage covers is
    the residual."""
    spent, began, reached = np.zeros(len(DEFAULT.stages)), np.full(len(DEFAULT.stages), np.nan), at
    for start, end, stage in ranges[bisect_left(ranges, at, key=lambda one: one[0]) :]:
        if start >= to:
            break
        if start < reached or end > to:
            continue  # nested in one that is counted, or not of this step alone
        spent[stage] += (end - start) / 1e6
        began[stage] = start - at if math.isnan(began[stage]) else began[stage]
        reached = end
    spent[-1] = max((to - at) / 1e6 - spent[:-1].sum(), 0.0)
    return np.stack([spent, began])


def _range(one: Any) -> Range | None:
    """Start, end (µs), name and thread of a complete range that somebody named; None of anything else."""
    if not isinstance(one, dict) or one.get("ph") != "X" or one.get("cat") not in ("user_annotation", "cpu_op", None):
        return None
    name, at, took = one.get("name"), _finite(one.get("ts")), _finite(one.get("dur"))
    if not isinstance(name, str) or at is None or took is None or took < 0:
        return None
    return at, at + took, name[:200], (one.get("pid"), one.get("tid"))


def _number(name: str) -> int | None:
    found = _STEP.match(name)
    digits = (found[1] or found[2]) if found else None
    return int(digits[:12]) if digits else None


def _stage(name: str) -> int | None:
    """Which of the default stages a range is."""
    if name in DEFAULT.stages:
        return DEFAULT.stages.index(name)
    return next((DEFAULT.stages.index(stage) for pattern, stage in _RANGES if pattern.match(name)), None)
