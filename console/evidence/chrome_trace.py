"""A window as a Chrome trace, which Perfetto and chrome://tracing draw: a process per rank, tracks for ops and flows.

    rank 3 · node-1          dp0 ops          ▬▬▬▬ AllReduce 811 ▬▬▬▬┃▬▬▬▬ AllReduce 812 (not finished) ▬▬▬▬▬▬▬▬▬▬▬▬▬▬
                             dp0 ch 0 → 4     ▬ 811 ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬┃▬ 812 ▬▬▬┃▒▒▒ stands: transmitted, not delivered ▒▒▒

A pure function of a window and its diagnosis. Times are microseconds since the window's start, as the format has it; culprits
stand first. Arrows lead from who waits to whom it waits for. Everything beyond the limits is counted in `otherData`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ingest.window import Rows, Window
from nccl_instrument.tables import DIRECTIONS, FUNCS, TRANSPORTS
from rca.findings import Diagnosis

EVENTS_MAX: Final = 300_000
RANKS_MAX: Final = 512
TRACKS_MAX: Final = 24
"""Ops of one communicator that run side by side; a track cannot draw two at once."""
STILL_NS: Final = 500_000_000  # as the lanes of the page mark a flow that stands
PATH_TRACK: Final = 0
PATH_NS: Final = 1_000_000_000
"""How long the bars of the waiting path are, at the window's end."""
NAMES: Final = {"send": ("posted", "GPU ready", "transmitted", "done"),
                "receive": ("posted", "received", "flushed", "consumed")}  # fmt: skip
_FLOW: Final = ("comm_id", "channel", "peer", "direction", "op")

Event = dict[str, Any]


@dataclass
class _Trace:
    """What has been drawn, and what had no room."""

    window: Window
    names: dict[int, str]
    events: list[Event] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def put(self, what: str, drawn: Event) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(drawn)
        else:
            self.left_out[what] += 1

    def us(self, at_ns: int) -> float:
        return round((at_ns - self.window.start_ns) / 1000, 3)

    def slice(self, what: str, rank: int, track: int, name: str, start_ns: int, end_ns: int, args: Event) -> None:
        """A bar from start to end; what lies outside the window is cut off."""
        start_ns, end_ns = max(start_ns, self.window.start_ns), min(end_ns, self.window.end_ns)
        if end_ns > start_ns:
            self.put(what, {"ph": "X", "cat": what, "name": name, "pid": rank, "tid": track, "ts": self.us(start_ns),
                            "dur": round((end_ns - start_ns) / 1000, 3), "args": args})  # fmt: skip

    def track(self, rank: int, track: int, name: str) -> None:
        self.events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}})
        self.events.append(
            {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": track, "args": {"sort_index": track}}
        )


def chrome_trace(window: Window, diagnosis: Diagnosis | None, marks: Sequence[tuple[str, int]] = ()) -> dict[str, Any]:
    """The trace as JSON values. marks: (what, unix ns) drawn across everything."""
    names = {int(one["comm_id"]): str(one["name"]) for one in window.members}
    trace = _Trace(window, names)
    ranks = _ordered(window, diagnosis)
    for place, rank in enumerate(ranks[:RANKS_MAX]):
        _draw_rank(trace, rank, place, diagnosis)
    trace.left_out["ranks"] += max(len(ranks) - RANKS_MAX, 0)
    for what, at_ns in marks:
        if window.start_ns <= at_ns <= window.end_ns:
            trace.events.append(
                {"ph": "i", "s": "g", "name": what, "ts": trace.us(at_ns), "pid": ranks[0] if ranks else 0, "tid": 0}
            )
    _draw_waits(trace, set(ranks[:RANKS_MAX]), diagnosis)
    return {
        "traceEvents": trace.events, "displayTimeUnit": "ms",
        "otherData": {
            "job": window.job, "attempt": window.attempt, "start_ns": str(window.start_ns), "end_ns": str(window.end_ns),
            "left_out": {what: n for what, n in trace.left_out.items() if n},
        },
    }  # fmt: skip


def _ordered(window: Window, diagnosis: Diagnosis | None) -> list[int]:
    """Culprits, of a tie who may be, who waits for them, other victims, then everybody."""
    known = [int(rank) for rank in window.ranks["rank"]]
    if diagnosis is None:
        return known
    near = [edge.waiter for edge in diagnosis.path if edge.waits_for in diagnosis.suspects]
    there = set(known)
    first = (*diagnosis.suspects_in_order, *near, *diagnosis.victims)
    return list(dict.fromkeys([*(rank for rank in first if rank in there), *known]))


def _draw_rank(trace: _Trace, rank: int, place: int, diagnosis: Diagnosis | None) -> None:
    window = trace.window
    row = window.ranks[window.ranks["rank"] == rank][0]
    node = str(window.nodes["name"][row["node"]]) if 0 <= row["node"] < len(window.nodes) else "unknown node"
    role = " · culprit" if diagnosis and rank in diagnosis.culprits else ""
    for name, args in (
        ("process_name", {"name": f"rank {rank} · {node}{role}"}),
        ("process_sort_index", {"sort_index": place}),
    ):
        trace.events.append({"ph": "M", "name": name, "pid": rank, "tid": 0, "args": args})
    track = _draw_ops(trace, rank, 1)
    _draw_flows(trace, rank, track)


def _draw_ops(trace: _Trace, rank: int, track: int) -> int:
    """Ops of each communicator on tracks of their own; the next free track."""
    done, live = (_of_rank(trace.window.rows(table), rank) for table in ("op", "live_op"))
    for comm_id in np.unique(np.concatenate([done["comm_id"], live["comm_id"]])):
        bars = sorted(
            _bars(trace, done[done["comm_id"] == comm_id], live[live["comm_id"] == comm_id]), key=lambda bar: bar[0]
        )
        track += _side_by_side(trace, rank, track, _name(trace, int(comm_id)), bars)
    return track


Bar = tuple[int, int, str, Event]


def _bars(trace: _Trace, done: Rows, live: Rows) -> Iterator[Bar]:
    """(start_ns, end_ns, name, args) of ops that ended, and of those seen in progress that did not."""
    for row in done:
        start = int(row["started_ns"] or row["enqueued_ns"])
        if start and row["done_ns"] > start:
            yield start, int(row["done_ns"]), f"{_func(row)} {row['op']}", _op_args(row)
    ended = set(done["op"].tolist())
    for op in np.unique(live["op"]):
        if int(op) not in ended:
            row = live[live["op"] == op][-1]
            start = int(row["started_ns"] or row["enqueued_ns"])
            if start:
                yield (
                    start,
                    trace.window.end_ns,
                    f"{_func(row)} {op} (not finished)",
                    {**_op_args(row), "not_finished": True},
                )


def _op_args(row: np.void) -> Event:
    return {"op": int(row["op"]), "bytes": int(row["bytes"]), "channels": int(row["channels"]), "seq": int(row["seq"])}


def _side_by_side(trace: _Trace, rank: int, track: int, name: str, bars: list[Bar]) -> int:
    """Each bar on the first track that is free; how many tracks that took."""
    free_ns: list[int] = []
    for start_ns, end_ns, what, args in bars:
        at = next((n for n, until in enumerate(free_ns) if until <= start_ns), len(free_ns))
        if at == TRACKS_MAX:
            trace.left_out["ops side by side"] += 1
            continue
        if at == len(free_ns):
            free_ns.append(0)
            trace.track(rank, track + at, f"{name} ops" + (f" ({at + 1})" if at else ""))
        free_ns[at] = end_ns
        trace.slice("op", rank, track + at, what, start_ns, end_ns, args)
    return len(free_ns)


def _draw_flows(trace: _Trace, rank: int, track: int) -> None:
    """Each flow's ops, and below them the stretches in which it stood still."""
    rows = _of_rank(trace.window.rows("flow"), rank)
    if not len(rows):
        return
    rows = rows[np.lexsort((rows["tick_ns"], *(rows[name] for name in reversed(_FLOW))))]
    starts = np.flatnonzero(np.append(True, _differs(rows, _FLOW)))
    last_flow: tuple[int, ...] | None = None
    for part in np.split(rows, starts[1:]):
        flow = tuple(int(part[0][name]) for name in _FLOW[:-1])
        if flow != last_flow:
            track, last_flow = track + 1, flow
            trace.track(rank, track, _flow_name(trace, flow))
        _draw_flow(trace, rank, track, part)


def _draw_flow(trace: _Trace, rank: int, track: int, part: Rows) -> None:
    first, last = part[0], part[-1]
    args = {**_counters(last), "transport": TRANSPORTS[int(last["transport"])], "bytes": int(last["bytes"])}
    trace.slice(
        "flow", rank, track, f"{_func(first)} {first['op']}", int(first["tick_ns"]), int(last["tick_ns"]) + 1, args
    )
    still = part[part["stuck_ns"] > STILL_NS]
    for at in np.flatnonzero(np.append(still["stuck_ns"][:-1] > still["stuck_ns"][1:], True)) if len(still) else ():
        row = still[at]  # the last tick of a stretch: from when it last moved
        began = int(row["tick_ns"] - row["stuck_ns"])
        trace.slice(
            "stands still",
            rank,
            track,
            "stands still",
            max(began, int(first["tick_ns"])),
            int(row["tick_ns"]),
            _counters(row),
        )


def _draw_waits(trace: _Trace, drawn: set[int], diagnosis: Diagnosis | None) -> None:
    """Arrows from each waiting rank to the one it waits for, at the end of the window.

    An arrow is held by a bar at either end, or it is not drawn; who never entered an op has none, so each rank of the path gets
    a track for it.
    """
    edges = [edge for edge in (diagnosis.path if diagnosis else ()) if {edge.waiter, edge.waits_for} <= drawn]
    trace.left_out["arrows"] += len(diagnosis.path) - len(edges) if diagnosis else 0
    why = {edge.waits_for: "others wait for it" for edge in edges} | {edge.waiter: edge.why for edge in edges}
    end_ns = trace.window.end_ns
    room = (EVENTS_MAX - len(trace.events)) // 5  # a bar for either end, and both ends of the arrow
    trace.left_out["arrows"] += max(len(edges) - room, 0)
    shown = {rank for edge in edges[:room] for rank in (edge.waiter, edge.waits_for)}
    for rank in sorted(shown):
        trace.track(rank, PATH_TRACK, "waiting path")
        trace.slice("waits for", rank, PATH_TRACK, why[rank], end_ns - PATH_NS, end_ns, {})
    at = trace.us(end_ns - PATH_NS // 2)
    for number, edge in enumerate(edges[:room]):
        both = {"cat": "waits for", "name": edge.why, "id": number + 1, "ts": max(at, 0.0), "tid": PATH_TRACK}
        trace.put("arrows", {**both, "ph": "s", "pid": edge.waiter})
        trace.put("arrows", {**both, "ph": "f", "bp": "e", "pid": edge.waits_for})


def _of_rank(rows: Rows, rank: int) -> Rows:
    return rows[rows["rank"] == rank]


def _differs(rows: Rows, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    differs = np.zeros(len(rows) - 1, np.bool_)
    for name in names:
        differs |= rows[name][1:] != rows[name][:-1]
    return differs


def _counters(row: np.void) -> Event:
    names = NAMES[DIRECTIONS[int(row["direction"])]]
    counted = dict(zip(names, (int(n) for n in row["counters"]), strict=True))
    return {**counted, "of chunks": int(row["total_chunks"]), "stuck_ms": int(row["stuck_ns"]) // 1_000_000}


def _func(row: np.void) -> str:
    return FUNCS[int(row["func"])]


def _name(trace: _Trace, comm_id: int) -> str:
    return trace.names.get(comm_id) or f"{comm_id:016x}"


def _flow_name(trace: _Trace, flow: tuple[int, ...]) -> str:
    comm_id, channel, peer, direction = flow
    members = trace.window.members
    found = members["rank"][(members["comm_id"] == np.uint64(comm_id)) & (members["comm_rank"] == peer)]
    other = f"rank {int(found[0])}" if len(found) else f"member {peer}"
    return f"{_name(trace, comm_id)} ch {channel} {'→' if DIRECTIONS[direction] == 'send' else '←'} {other}"
