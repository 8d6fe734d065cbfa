"""Windows with garbage in them that ingest would have let pass, and what must hold when they are looked at.

Denser than sending batches: a real hang's window is taken, columns get extreme values, rows repeat or vanish, ranks,
members and nodes go missing. Triggers and rules may abstain or be wrong about it; they must not raise, and what they
say must be JSON that a browser can read.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Final

import numpy as np

from ingest.door.impossible import impossible_rows
from ingest.window import Rows, Window
from rca.diagnose import diagnose
from rca.findings import Symptom, SymptomKind, diagnosis_from_json, to_json
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.eval.fuzz_bytes import EXTREMES
from tests.windows import make_window

MONO_NS: Final = 2**62
FAULTS: Final[tuple[dict[str, int], ...]] = (
    {}, {"nic_down": 1}, {"frozen": 2}, {"killed": 3}, {"stuck_before": 0}, {"proxy_asleep": 5}, {"gpu_hung": 6},
)  # fmt: skip


def garbled_window(draw: random.Random) -> Window:
    """A window of a job in trouble, with garbage in it."""
    window = make_window(8, **draw.choice(FAULTS))  # type: ignore[arg-type]
    for _ in range(draw.choice((1, 2, 4, 8))):
        window = draw.choice(_CHANGES)(window, draw)
    tables = {name: rows[~impossible_rows(name, rows, MONO_NS)] for name, rows in window.tables.items()}
    return replace(window, tables=tables)


def check_window(window: Window) -> int:
    """Look at it and run every rule; the number of findings. Raises whatever they raise."""
    seen = look(window, Normal(), DEFAULT)
    asked = Symptom(SymptomKind.EXTERNAL, window.job, window.attempt, window.start_ns, window.now_ns, 0, (), "Asked.")
    n_findings = 0
    for symptom in (*seen.symptoms, asked):
        found = diagnose(window, symptom, DEFAULT)
        text = json.dumps(to_json(found), allow_nan=False)
        assert to_json(diagnosis_from_json(json.loads(text))) == json.loads(text)
        n_findings += len(found.findings)
    return n_findings


def _cells(window: Window, draw: random.Random) -> Window:
    """A column takes one extreme value in some rows, or in all."""
    name = draw.choice(sorted(window.tables))
    rows = window.tables[name].copy()
    columns = [column for column in rows.dtype.names or () if column not in ("rank", "node")]
    if not len(rows):
        return window
    column = draw.choice(columns)
    chosen = slice(None) if draw.random() < 0.3 else [draw.randrange(len(rows)) for _ in range(draw.randint(1, 5))]
    _set(rows, column, chosen, draw.choice(EXTREMES))
    return _with(window, name, rows)


def _set(rows: Rows, column: str, chosen: object, value: int) -> None:
    kind = rows[column].dtype
    if kind.kind in "iu":
        raw = np.frombuffer((value % 2**64).to_bytes(8, "little")[: kind.itemsize], kind)[0]
        rows[column][chosen] = raw
    elif kind.kind == "S":
        rows[column][chosen] = (b"", b"\xff" * 16, b"\0x")[value % 3]


def _fewer(window: Window, draw: random.Random) -> Window:
    """Rows of a table vanish, or all do."""
    name = draw.choice(sorted(window.tables))
    rows, share = window.tables[name], draw.choice((0.0, 0.1, 0.5, 0.9))
    return _with(window, name, rows[[draw.random() < share for _ in rows]])


def _more(window: Window, draw: random.Random) -> Window:
    """Rows come twice, in another order."""
    name = draw.choice(sorted(window.tables))
    rows = window.tables[name]
    order = [draw.randrange(len(rows)) for _ in range(len(rows) + draw.randrange(20))] if len(rows) else []
    return _with(window, name, np.concatenate([rows, rows[order]]))


def _places(window: Window, draw: random.Random) -> Window:
    """Rows are of other ranks, of no known rank, of ranks beyond the job."""
    name = draw.choice(sorted(window.tables))
    rows = window.tables[name].copy()
    known = [*window.ranks["rank"].tolist(), -1]
    beyond = [10**6, 2**31 - 1] if name == "process" else []
    for row in range(len(rows)):
        if draw.random() < 0.2:
            rows["rank"][row] = draw.choice(known + beyond)
            rows["node"][row] = draw.randrange(max(len(window.nodes), 1))
    return _with(window, name, rows)


def _roster(window: Window, draw: random.Random) -> Window:
    """Ranks or members go missing, or have odd numbers."""
    what = draw.randrange(5)
    if what == 0:
        return replace(window, ranks=window.ranks[[draw.random() < 0.5 for _ in window.ranks]])
    if what == 1:
        return replace(window, members=window.members[[draw.random() < 0.5 for _ in window.members]])
    if what == 2:
        return replace(window, ranks=window.ranks[:0], members=window.members[:0])
    if what == 3:
        members = window.members.copy()
        _set(members, draw.choice(("n_ranks", "comm_rank", "n_nodes")), slice(None), draw.choice((0, 1, 3, 2**20, -1)))
        return replace(window, members=members)
    return replace(window, world_size=draw.choice((0, 1, 2**20)))


def _clocks(window: Window, draw: random.Random) -> Window:
    """Nodes' watermarks and clocks are far off; a node is catching up or has lost batches."""
    nodes = window.nodes.copy()
    column = draw.choice(("watermark_ns", "received_ns", "first_ns", "clock_offset_ns", "batches_lost", "catching_up"))
    if column == "catching_up":
        nodes[column] = True
    else:
        _set(nodes, column, draw.randrange(len(nodes)), draw.choice((0, 2**62, -(2**62), 1, 2**53)))
    return replace(window, nodes=nodes)


def _with(window: Window, name: str, rows: Rows) -> Window:
    return replace(window, tables={**window.tables, name: rows})


_CHANGES: Final = (_cells, _cells, _cells, _cells, _fewer, _more, _places, _roster, _clocks)
