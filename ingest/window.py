"""Window: everything known of one job in [start, end), as numpy columns.

This is what ingest hands to rca: no database, no Django, so that a saved window can be diagnosed on a laptop
(`python -m rca window.npz`) and every rule can be tested without a server. Its tables are the trace tables of
nccl_instrument/tables.py with two columns added: `rank`, the job's global rank (-1 when the communicator's members are
not known), and `node`, an index into `nodes`. Points in time are already unix nanoseconds on the server's clock
(0 stays unknown); durations are untouched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.columns import rows_at
from ingest.traces.saved import BYTES_MAX, read_arrays
from nccl_instrument.tables import DTYPE, empty_rows

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]

FORMAT: Final = 1

NODE: Final = np.dtype(
    [
        ("name", "U128"),
        ("watermark_ns", "<i8"),  # newest data time received; complete up to here, unless the node is catching up
        ("received_ns", "<i8"),  # server time of the newest arrival
        ("first_ns", "<i8"),  # data time of the first batch of this attempt
        ("clock_offset_ns", "<i8"),  # node's wall clock minus the server's, when it was found wrong; else 0
        ("batches_lost", "<u8"),  # counted by the agent: rows or batches that never arrived
        ("catching_up", "?"),  # draining a spool: late, not silent
        ("n_ranks", "<i4"),
    ]
)
"""One row per node of the job's attempt that has ever sent a batch."""

RANK: Final = np.dtype(
    [
        ("rank", "<i4"),
        ("node", "<i4"),
        ("pid", "<i4"),
        ("local_rank", "<i4"),
        ("tp", "<i2"), ("pp", "<i2"), ("dp", "<i2"), ("ep", "<i2"),
        ("rank_inferred", "?"),  # from the largest communicator, not from the launcher's environment
        ("coordinates_inferred", "?"),
        ("transport", "u1"),
        ("counters_seen", "u1"),  # bits as in nccl_instrument/tables.py
        ("gpu_bus_id", "U20"), ("gpu_uuid", "U44"), ("nic", "U16"), ("ip", "U40"),
    ]
)  # fmt: skip
"""One row per global rank known in this attempt, ordered by rank; coordinates are -1 where unknown."""

MEMBER: Final = np.dtype(
    [
        ("comm_id", "<u8"),
        ("comm_rank", "<i4"),
        ("rank", "<i4"),
        ("n_ranks", "<i4"),
        ("n_nodes", "<i4"),
        ("name", "U32"),
    ]
)
"""One row per known member of a communicator. Members that never reported are absent: compare with `n_ranks`."""

JOINED: Final = (("rank", "<i4"), ("node", "<i4"))
TRACE_TABLES: Final = ("op", "live_op", "flow", "progress", "process", "nic", "loss", "status")
STAGE_TABLES: Final = ("schema", "recorder", "stage", "side")
"""Of training loops that record their stages: read only where they are asked for."""
TRAFFIC_TABLES: Final = ("traffic",)
"""What each op moved over each flow, as measured on the node: read where bytes on the wire are judged."""
WINDOW_DTYPE: Final[dict[str, np.dtype[np.void]]] = {
    table: np.dtype([*DTYPE[table].descr, *JOINED]) for table in (*TRACE_TABLES, *STAGE_TABLES, *TRAFFIC_TABLES)
}


Cutting = Callable[[str, Ints | None, npt.NDArray[np.uint64] | None], Rows]


class BadWindow(ValueError):
    """The file is not a saved window of this format; the message says why."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Window:
    """What is known of one job attempt in [start_ns, end_ns).

    start_ns, end_ns, now_ns: unix ns in data time; now_ns is when the look was taken. world_size: ranks of the job (0 unknown).
    nodes: (N,) NODE. ranks: (R,) RANK. members: (M,) MEMBER, of the whole attempt. tables: name → (n,) rows of
    WINDOW_DTYPE[name], in no particular order: `op` holds completions inside the window, `live_op` and `flow` what the
    ticks inside the window saw in progress, `stage` steps that ended inside it, `traffic` ops whose last bytes moved
    inside it; a long one may be Columns (ingest/columns.py), which are read as rows are. heard_since_ns: since when some node
    of the job has been heard at any time, unix ns on the server's clock; before that the server, its database or the network
    was away. 0: always. unreadable: node → table groups of it that are stored and cannot be read: what they said is unknown.
    unread: nodes of which all rows are left out, as nothing in one slow iteration of theirs stood out (rca/narrowed.py).
    racks: node → the rack it stands in, of those whose agents declare one.
    """

    job: str
    attempt: int
    start_ns: int
    end_ns: int
    now_ns: int
    world_size: int
    nodes: Rows
    ranks: Rows
    members: Rows
    tables: Mapping[str, Rows] = field(default_factory=dict)
    heard_since_ns: int = 0
    unreadable: Mapping[str, int] = field(default_factory=dict)
    unread: Collection[str] = ()
    racks: Mapping[str, str] = field(default_factory=dict)

    def rows(self, table: str) -> Rows:
        """(n,) rows of a trace table, empty when nothing was seen. KeyError for a table that does not exist."""
        found = self.tables.get(table)
        return np.zeros(0, WINDOW_DTYPE[table]) if found is None else found

    def rows_on(self, table: str, nodes: Ints) -> Rows:
        """(n,) rows of a trace table on these nodes. Of a late table no others are made."""
        if isinstance(self.tables, LateTables):
            return self.tables.on(table, nodes)
        rows = self.rows(table)
        return rows_at(rows, np.isin(rows["node"], nodes))

    def newest_on(self, table: str, nodes: Ints, comms: npt.NDArray[np.uint64]) -> Rows:
        """(n,) rows on these nodes of these communicators (sorted) that say what was in progress. Of a late table some rows
        are left out that a newer one of the same op and flow follows."""
        if isinstance(self.tables, LateTables) and not self.tables.is_cut(table):
            return self.tables.newest(table, nodes, comms)
        rows = self.rows_on(table, nodes)
        return rows_at(rows, np.isin(rows["comm_id"], comms))


class LateTables(Mapping[str, Rows]):
    """Tables of which some are cut out of their batches when they are first asked for.

    A diagnosis of a slow job may need the flows of a few nodes, of all, or none, and they are most of what is stored.
    cut: the rows of a late table on these nodes (indices); None: on all; of these communicators the newest of each
    op and flow alone, where some are given.
    """

    def __init__(self, known: Mapping[str, Rows], late: Collection[str], cut: Cutting) -> None:
        self._known, self._late, self._cut = dict(known), tuple(late), cut

    def __getitem__(self, table: str) -> Rows:
        if table not in self._known and table in self._late:
            self._known[table] = self._cut(table, None, None)
        return self._known[table]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._known, *self._late)))

    def __len__(self) -> int:
        return len({*self._known, *self._late})

    def is_cut(self, table: str) -> bool:
        """Whether all of the table's rows have been made."""
        return table in self._known

    def on(self, table: str, nodes: Ints) -> Rows:
        """(n,) rows of a table on these nodes; what was cut for some is not kept."""
        if table in self._late and table not in self._known:
            return self._cut(table, nodes, None)
        rows = self[table]
        return rows_at(rows, np.isin(rows["node"], nodes))

    def newest(self, table: str, nodes: Ints, comms: npt.NDArray[np.uint64]) -> Rows:
        """See Window.newest_on; of a table that has not been cut."""
        return self._cut(table, nodes, comms) if table in self._late else self[table]


def save_window(path: Path, window: Window, asked: Mapping[str, Any] | None = None) -> None:
    """Write `window` as a compressed .npz without pickled objects. asked: what it was diagnosed for, plain JSON."""
    numbers = {name: getattr(window, name) for name in _NUMBERS}
    arrays = {name: getattr(window, name) for name in _ARRAYS} | {f"table_{k}": v for k, v in window.tables.items()}
    named = {
        "job": window.job,
        "unreadable": dict(window.unreadable),
        "unread": list(window.unread),
        **({"racks": dict(window.racks)} if window.racks else {}),
        **({"asked": dict(asked)} if asked else {}),
    }
    head = np.array(json.dumps({"format": FORMAT, **named, **numbers}))
    with path.open("wb") as file:
        np.savez_compressed(file, head=head, **arrays)


def load_window(path: Path, bytes_max: int = BYTES_MAX) -> Window:
    """Read a window written by `save_window`, of at most bytes_max in memory. Raises BadWindow; never loads pickles."""
    return load_question(path, bytes_max)[0]


def load_question(path: Path, bytes_max: int = BYTES_MAX) -> tuple[Window, dict[str, Any]]:
    """The window, and what it was diagnosed for as it was saved, unchecked; {} when nothing was. Raises BadWindow."""
    try:
        text, arrays = read_arrays(path, _STORED, bytes_max)
        head = json.loads(text)
    except OSError as error:
        raise BadWindow(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise BadWindow(f"{path} is not a saved window: {error}.") from error
    written = head.get("format") if isinstance(head, dict) else None
    if type(written) is not int or written != FORMAT:
        raise BadWindow(f"{path} has window format {ascii(written)[:20]}; this version reads {FORMAT}.")
    tables = {name.removeprefix("table_"): rows for name, rows in arrays.items() if name.startswith("table_")}
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise BadWindow(f"{path} lacks {', '.join(missing)}.")
    for name, rows in (*tables.items(), ("ranks", arrays["ranks"])):
        if len(rows) and not -1 <= rows["node"].min() <= rows["node"].max() < len(arrays["nodes"]):
            raise BadWindow(f"{path}: {name} speaks of a node that is not in it.")
    nodes, ranks, members = (arrays[name] for name in _ARRAYS)
    asked = head.pop("asked", {})
    window = Window(**_checked(path, head), nodes=nodes, ranks=ranks, members=members, tables=tables)
    return window, asked if isinstance(asked, dict) else {}


def _checked(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The head's fields, each of its type."""
    found = {name: head[name] for name in ("job", "unreadable", "unread", "racks", *_NUMBERS) if name in head}
    is_whole = {"job", *_NUMBERS[:5]} <= found.keys() and head.keys() <= {*found, "format"}
    are_numbers = all(type(found[name]) is int and abs(found[name]) < 2**62 for name in _NUMBERS if name in found)
    unreadable = found.get("unreadable", {})
    is_said = isinstance(unreadable, dict) and all(type(n) is int for n in unreadable.values())
    unread = found.get("unread", [])
    is_said &= isinstance(unread, list) and all(type(name) is str for name in unread)
    racks = found.get("racks", {})
    is_said &= isinstance(racks, dict) and all(type(rack) is str for rack in racks.values())
    if not (is_whole and are_numbers and is_said and isinstance(found["job"], str)):
        raise BadWindow(f"{path} does not say of which job and time it is.")
    return found


_NUMBERS = ("attempt", "start_ns", "end_ns", "now_ns", "world_size", "heard_since_ns")
_ARRAYS = ("nodes", "ranks", "members")


def _blank(table: str) -> Rows:
    """(1,) a row of which nothing is known."""
    row, of_agent = np.zeros(1, WINDOW_DTYPE[table]), empty_rows(table, 1)
    for name in DTYPE[table].names or ():
        row[name] = of_agent[name]
    return row


_STORED: Final[dict[str, Rows]] = {
    "nodes": np.zeros(1, NODE), "ranks": np.zeros(1, RANK), "members": np.zeros(1, MEMBER),
    **{f"table_{name}": _blank(name) for name in WINDOW_DTYPE},
}  # fmt: skip
