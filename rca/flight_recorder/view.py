"""A recording as a page shows it: every process group with its members' progress, and the last ops of each rank.

Bounded: groups in which somebody waits come first, and of many rows those of ranks that are behind or wait. What a dump
does not say is null, never a guess; members of a group that no dump declares are marked as inferred.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from rca.flight_recorder.analysis import Waiting
from rca.flight_recorder.columns import COMPLETED, NOWHERE, SCHEDULED, STARTED
from rca.flight_recorder.progress import NEVER, GroupProgress, Standing, Stop
from rca.flight_recorder.recording import Recording
from rca.words import capitalised, named

GROUPS_MAX: Final = 500
ROWS_MAX: Final = 20_000
LAST_OPS_MAX: Final = 5_000
STATES: Final = {SCHEDULED: "scheduled", STARTED: "started", COMPLETED: "completed"}
_DTYPE: Final = re.compile(r"[A-Za-z]\w*")
REFUSED_MAX: Final = 200
SECOND: Final = 1_000_000_000

Json = dict[str, Any]


def recorder_view(state: Waiting, now_ns: int) -> Json:
    """version, backend, groups, last_ops, left_out: JSON of at most so many groups and rows. now_ns: unix, of the dumps."""
    recording = state.recording
    stops: dict[int, list[Stop]] = {}
    for stop in state.stops:
        stops.setdefault(stop.group, []).append(stop)
    order = sorted(range(len(state.groups)), key=lambda at: (at not in stops, -len(state.groups[at].standings)))
    rows_left, groups = ROWS_MAX, []
    for at in order[:GROUPS_MAX]:
        made = _group(state, state.groups[at], stops.get(at, []), now_ns, rows_left)
        rows_left -= len(made["ranks"])
        groups.append(made)
    n_rows = sum(len(one.standings) for one in state.groups)
    last_ops = _last_ops(recording)
    return {
        "version": ", ".join(recording.versions),
        "backend": _backend(recording),
        "groups": groups,
        "last_ops": last_ops[:LAST_OPS_MAX],
        "refused": dict(list(recording.refused.items())[:REFUSED_MAX]),
        "refused_count": len(recording.refused),
        "left_out": {
            "groups": max(len(state.groups) - GROUPS_MAX, 0),
            "rows": n_rows - sum(len(one["ranks"]) for one in groups),
            "last_ops": max(len(last_ops) - LAST_OPS_MAX, 0),
        },
    }


def _group(state: Waiting, group: GroupProgress, stops: list[Stop], now_ns: int, rows_max: int) -> Json:
    least = min((one.entered for one in group.standings), default=NEVER)
    telling = sorted(group.standings, key=lambda one: (one.entered > least, one.waits_in == NEVER, one.rank))
    members = sorted({one.rank for one in group.standings} | set(group.unheard))
    return {
        "name": group.name,
        "desc": group.what,
        "members": members if group.is_declared else None,
        "inferred": not group.is_declared,
        "said": said_of(group, stops),
        "ranks": [_row(state.recording, one, now_ns) for one in telling[: max(rows_max, 0)]],
        "unheard": list(group.unheard),
    }


def said_of(group: GroupProgress, stops: list[Stop]) -> str:
    """Where the members of a group stand, in one sentence."""
    if not stops:
        entered = {one.entered for one in group.standings}
        if entered <= {NEVER}:
            return "No collective of this group is recorded; no send or receive waits."
        if len(entered) == 1:
            known = "members" if group.is_declared and not group.unheard else "members that are known"
            return f"All {len(group.standings)} {known} have finished op {entered.pop()}."
        behind = [one.rank for one in group.standings if one.entered == min(entered)]
        return f"Nobody waits; {named(behind)} finished op {min(entered)} last, others op {max(entered)}."
    first = min(stops, key=lambda stop: (stop.is_p2p, stop.seq))
    waits = f"{named(first.waiting)} {'waits' if len(first.waiting) == 1 else 'wait'} in op {first.seq}"
    if first.is_p2p:
        waits = waits.replace(" in op ", " in p2p op ")
    if first.is_open:
        return capitalised(f"{waits}; members are inferred, so for whom cannot be told.")
    if first.is_joined:
        return capitalised(f"{waits}; {named(first.behind)} is in it, and another op holds its batch.")
    if not first.behind:
        return capitalised(f"{waits}; all members that are known have entered it.")
    unheard = set(group.unheard)
    heard = [rank for rank in first.behind if rank not in unheard]
    has = "has" if len(heard) == 1 else "have"
    late = f"; {named(heard)} {has} not entered it" if heard else ""
    unknown = f"; nothing is known of {named(unheard)}" if len(heard) < len(first.behind) else ""
    return capitalised(f"{waits}{late}{unknown}.")


def _row(recording: Recording, one: Standing, now_ns: int) -> Json:
    row = recording.entries[one.row] if one.row >= 0 else None
    shape = recording.shapes[row["shape"]] if row is not None and row["shape"] != NOWHERE else ""
    waits = one.waits_in != NEVER
    started = one.waits_in - (0 if row is not None and row["state"] >= STARTED else 1) if waits else one.entered
    kind = _DTYPE.search(shape)
    return {
        "rank": one.rank,
        "enqueued": _number(one.entered),
        "started": _number(started),
        "completed": _number(one.waits_in - 1 if waits else one.entered),
        "state": ("nothing" if row is None else STATES[int(row["state"])] if waits else "completed"),
        "op": recording.names[row["name"]] if row is not None else "",
        "size": shape,
        "dtype": kind[0] if kind else "",
        "age_s": _age_s(row, now_ns),
    }


def _number(seq: int) -> int | None:
    return None if seq < 0 else seq


def _age_s(row: Any, now_ns: int) -> float | None:
    if row is None or row["created_ns"] <= 0 or now_ns <= 0:
        return None
    return round(max(now_ns - int(row["created_ns"]), 0) / SECOND, 3)


def _last_ops(recording: Recording) -> list[Json]:
    """The newest op of each rank in each group, collectives and p2p apart: what the recorder knows of streams."""
    rows = recording.entries
    # One number per rank, group and stream: fewer than 2**31 ranks, GROUPS_MAX groups and two streams fit.
    keys = (rows["rank"].astype(np.int64) * max(len(recording.groups), 1) + rows["group"]) * 2 + rows["is_p2p"]
    _, newest = np.unique(keys[::-1], return_index=True)
    at = len(rows) - 1 - newest
    return [
        {
            "rank": int(rows["rank"][one]),
            "group": recording.groups[rows["group"][one]].name,
            "seq": int(rows["seq"][one]),
            "op": recording.names[rows["name"][one]],
            "state": "completed" if rows["is_finished"][one] else STATES[int(rows["state"][one])],
            "stream": "p2p" if rows["is_p2p"][one] else "collective",
        }
        for one in at.tolist()
    ]


def _backend(recording: Recording) -> str:
    found = sorted({name.split(":")[0] for name in recording.names if ":" in name})
    return ", ".join(found[:4])
