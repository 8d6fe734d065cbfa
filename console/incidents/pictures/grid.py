"""The topology grid: one cell per rank of the job, with its state, as parallel columns.

A pure function of a window and the diagnosis of its incident. Every rank of the world is present; what was never seen
is `unknown`, what cannot be seen from the network is `not_visible`, and neither is ever drawn as healthy.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.window import Rows, Window
from rca.findings import Diagnosis, SymptomKind

STATES: Final = ("ok", "waiting", "culprit", "silent", "dead", "unknown", "not_visible", "suspect")
OK, WAITING, CULPRIT, SILENT, DEAD, UNKNOWN, NOT_VISIBLE, SUSPECT = range(8)
SUSPECTED: Final = "may be where it started: the evidence does not tell which of these it is"
TABLES: Final = ("process", "progress")
SECOND: Final = 1_000_000_000
SILENT_NS: Final = 10 * SECOND
WORLD_MAX: Final = 200_000
NO_RACKS: Final[Mapping[str, str]] = {}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns of the grid, one place per rank 0 … world_size − 1; `state` and `node` are indices, −1 unknown node.

    racks: of each of `nodes` where it stands, as its agent declares; empty where it does not.
    """

    at: str
    nodes: list[str]
    racks: list[str]
    states: list[str]
    rank: list[int]
    node: list[int]
    local_rank: list[int]
    tp: list[int]
    pp: list[int]
    dp: list[int]
    ep: list[int]
    state: list[int]
    note: list[str]
    nic: list[str]
    gpu: list[str]
    pid: list[int]
    last_seen_ms_ago: list[int | None]
    inferred: bool
    world_size: int


def make_grid(
    window: Window, diagnosis: Diagnosis | None, at: str, unheard_ns: int = 0, racks: Mapping[str, str] = NO_RACKS
) -> Grid:
    """The grid at the end of `window`. Culprits and victims are the diagnosis', everything else is measured.

    unheard_ns: for how long nothing at all has been heard of the job since: after a while nobody is known to be well.
    racks: names of nodes → the racks they declare.
    """
    window = _by_node_name(window)
    n_ranks = _world_size(window)
    known = _known_ranks(window, n_ranks)
    seen_ns = _seen_ns(window, known, n_ranks)
    state, note = _measured(window, known, seen_ns)
    _blame(state, note, diagnosis)
    _doubt(state, note, window, diagnosis)
    if unheard_ns > SILENT_NS:
        _mark(state, note, np.flatnonzero(state == OK).tolist(), SILENT, "nothing was heard of its job since")
    return Grid(
        at=at,
        nodes=[str(name) for name in window.nodes["name"]],
        racks=[racks.get(str(name), "") for name in window.nodes["name"]],
        states=list(STATES),
        rank=list(range(n_ranks)),
        state=state.tolist(),
        note=note,
        last_seen_ms_ago=_ages_ms(window, seen_ns),
        inferred=bool(len(known.rows) and (known.rows["rank_inferred"] | known.rows["coordinates_inferred"]).any()),
        world_size=n_ranks,
        nic=known.texts("nic"),
        gpu=known.texts("gpu_bus_id"),
        **{name: known.numbers(name) for name in ("node", "local_rank", "tp", "pp", "dp", "ep", "pid")},
    )


def _by_node_name(window: Window) -> Window:
    """`window` with its nodes in the order people count them (node2 before node10), not that of their arrival."""
    order = sorted(range(len(window.nodes)), key=lambda at: _natural(str(window.nodes["name"][at])))
    place = np.full(len(order) + 1, -1, np.int64)  # the last place: no node
    place[order] = np.arange(len(order))
    ranks = window.ranks.copy()
    ranks["node"] = place[np.where((ranks["node"] >= 0) & (ranks["node"] < len(order)), ranks["node"], -1)]
    return dataclasses.replace(window, nodes=window.nodes[order], ranks=ranks)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


@dataclass(frozen=True, slots=True)
class _Known:
    """Rows of the ranks that reported, and their places in the grid."""

    rows: Rows
    place: Ints
    n_ranks: int

    def numbers(self, column: str) -> list[int]:
        values = np.full(self.n_ranks, -1, np.int64)
        values[self.place] = self.rows[column]
        return [int(value) for value in values]

    def texts(self, column: str) -> list[str]:
        values = [""] * self.n_ranks
        for place, text in zip(self.place, self.rows[column], strict=True):
            values[place] = str(text)
        return values


def _world_size(window: Window) -> int:
    reported = int(window.ranks["rank"].max(initial=-1)) + 1
    return min(max(window.world_size, reported), WORLD_MAX)


def _known_ranks(window: Window, n_ranks: int) -> _Known:
    rows = window.ranks[(window.ranks["rank"] >= 0) & (window.ranks["rank"] < n_ranks)]
    return _Known(rows, rows["rank"].astype(np.int64), n_ranks)


def _seen_ns(window: Window, known: _Known, n_ranks: int) -> Ints:
    """(n_ranks,) when the rank's process was last seen, else its node; 0 never."""
    seen = np.zeros(n_ranks, np.int64)
    on_node = (known.rows["node"] >= 0) & (known.rows["node"] < len(window.nodes))
    seen[known.place[on_node]] = window.nodes["watermark_ns"][known.rows["node"][on_node]]
    processes = _alive(window, n_ranks)
    latest = np.zeros(n_ranks, np.int64)
    np.maximum.at(latest, processes["rank"], processes["tick_ns"])
    return np.where(latest > 0, latest, seen)


def _alive(window: Window, n_ranks: int) -> Rows:
    rows = window.rows("process")
    return rows[(rows["rank"] >= 0) & (rows["rank"] < n_ranks)]


def _measured(window: Window, known: _Known, seen_ns: Ints) -> tuple[Ints, list[str]]:
    """State and note of every rank, before anybody is blamed."""
    state = np.full(known.n_ranks, UNKNOWN, np.int64)
    state[known.place] = OK
    # What nodes have told is as of now, and the window may be of a time long past: what came later says nothing of it.
    newest = min(max(int(window.nodes["watermark_ns"].max(initial=0)), window.start_ns), window.end_ns)
    is_silent = (state == OK) & (newest - seen_ns > SILENT_NS) & ~_catching_up(window, known)
    state[is_silent] = SILENT
    is_later = (state == OK) & (seen_ns - window.end_ns > SILENT_NS)
    state[is_later] = UNKNOWN
    state[only_inside_nodes(window, known.n_ranks) & (state == OK)] = NOT_VISIBLE
    state[is_dead(window, known.n_ranks)] = DEAD
    notes = {OK: "", SILENT: "no data for more than 10 s", DEAD: "the process is gone", UNKNOWN: "never reported"}
    notes[NOT_VISIBLE] = "its ops stay inside the node, where progress cannot be seen"
    note = [notes[int(one)] for one in state]
    _mark(
        state, note, np.flatnonzero(is_later & (state == UNKNOWN)).tolist(), UNKNOWN, "nothing is stored of that time"
    )
    return state, note


def _catching_up(window: Window, known: _Known) -> npt.NDArray[np.bool_]:
    late = np.zeros(known.n_ranks, np.bool_)
    on_node = (known.rows["node"] >= 0) & (known.rows["node"] < len(window.nodes))
    late[known.place[on_node]] = window.nodes["catching_up"][known.rows["node"][on_node]]
    return late


def only_inside_nodes(window: Window, n_ranks: int) -> npt.NDArray[np.bool_]:
    """(n_ranks,) ranks all of whose communicators stay on one node."""
    rank, inside = window.members["rank"], window.members["n_nodes"] == 1  # columns: whole rows would be copied
    known = (rank >= 0) & (rank < n_ranks)
    some, outside = np.zeros(n_ranks, np.bool_), np.zeros(n_ranks, np.bool_)
    some[rank[known & inside]] = True
    outside[rank[known & ~inside]] = True
    return some & ~outside


def is_dead(window: Window, n_ranks: int) -> npt.NDArray[np.bool_]:
    """(n_ranks,) ranks whose newest row says that the process is gone."""
    rows = _alive(window, n_ranks)
    rows = rows[rows["tick_ns"].argsort(kind="stable")]
    alive = np.ones(n_ranks, np.bool_)
    alive[rows["rank"]] = rows["alive"] != 0  # of equal places the last, newest, one stays
    return ~alive


def _blame(state: Ints, note: list[str], diagnosis: Diagnosis | None) -> None:
    if diagnosis is None:
        return
    _mark(state, note, diagnosis.victims, WAITING, "waits")
    for edge in diagnosis.path:
        if 0 <= edge.waiter < len(note) and state[edge.waiter] == WAITING:
            note[edge.waiter] = f"waits for rank {edge.waits_for}: {edge.why}"
    if diagnosis.findings:
        _mark(state, note, sorted(diagnosis.suspects), SUSPECT, SUSPECTED)
        _mark(state, note, diagnosis.culprits, CULPRIT, diagnosis.findings[0].sentence)


def _doubt(state: Ints, note: list[str], window: Window, diagnosis: Diagnosis | None) -> None:
    """While a hang lasts, a rank nobody knows a reason for is well only if it was seen to go on since."""
    if diagnosis is None or diagnosis.symptom.kind != SymptomKind.FAILURE:
        return
    rows = window.rows("progress")
    since_ns = diagnosis.symptom.at_ns + SECOND
    went_on = np.maximum(rows["last_enqueued_ns"], rows["last_done_ns"]) > since_ns
    stands = np.setdiff1d(np.flatnonzero(state == OK), rows["rank"][went_on])
    _mark(state, note, stands.tolist(), UNKNOWN, "stands still since the first symptom; for whom it waits is not known")


def _mark(state: Ints, note: list[str], ranks: Iterable[int], to: int, why: str) -> None:
    for rank in ranks:
        if 0 <= rank < len(note):
            state[rank], note[rank] = to, why


def _ages_ms(window: Window, seen_ns: Ints) -> list[int | None]:
    return [int(max(window.now_ns - seen, 0) // 1_000_000) if seen else None for seen in seen_ns.tolist()]
