"""Less than everything: what a look needs of a job that goes on, and a diagnosis of one that stands still or is slow.

Everything of 10,000 GPUs is 150 MB for each second of the job. A look needs the sampled ranks and who is silent or gone;
of a job that stands still only the end is of interest, node by node, also of those that fell silent. Nodes of which
somebody asks how they came there (a process gone, a port that fell) are read whole, so that narrow readings give the same
answers as wide ones (tests/console/incidents/test_narrow.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ingest.jobs.endings import some_process
from ingest.traces.cutting import GROUP_OF, Group, Groups
from ingest.traces.frame import Frame, read_frame
from ingest.traces.stacked import OF_ONE
from ingest.traces.stored import Reading, read_groups
from ingest.window import Ints, LateTables, Rows, Window
from nccl_instrument.tables import GROUPS, PORT_STATES

SECOND_NS: Final = 1_000_000_000
LAGS_NS: Final = 3 * SECOND_NS
"""A node that is further behind the others than this may be on its way to silence."""
REST_NS: Final = {"live": 7 * SECOND_NS // 2, "flow": 2 * SECOND_NS}
"""Rows of what was in progress are compared over so long at most (rca: IO_SPAN_NS, fresh_ns), and the last sweep of a node
may be half a second older than its last batch."""
BEFORE_NS: Final = 5 * SECOND_NS
"""What the state of a slow iteration is made from begins so long before it (rca/rules/slow_proxy.py)."""
LATE: Final = ("flow", "live_op", "traffic")
"""What is in progress of a slow job: rules ask for that of a few nodes, or for all of it when nothing else names anybody."""
ALL: Final = tuple(sorted(set(GROUPS) - {"stage", "traffic"}))
"""Groups that looks and diagnoses read."""
SLOW: Final = (*ALL, "traffic")
"""And those of a diagnosis of a slow job."""
LAST: Final = ("traffic",)
"""What was sent before all stood still."""
TICKED: Final = ("progress",)
"""Of which a diagnosis of a slow job asks no more than when each rank was last told of."""
NARROW: Final[Mapping[str, Collection[str] | None]] = {"op": None}
"""Of which a diagnosis has millions of rows: with all columns."""
_DOWN: Final = PORT_STATES.index("down")


def read_glance(
    attempt_id: int,
    start_ns: int,
    end_ns: int,
    ranks_of: Callable[[Window], Collection[int]],
    now_ns: int | None = None,
) -> Window:
    """A window for a look: of `ranks_of(the window without rows)` what they did, of their nodes all else; of the others their
    processes, if any node lags or any process is gone.
    """
    frame = read_frame(attempt_id, start_ns, end_ns, now_ns)
    ranks = np.array(sorted(ranks_of(frame.window({}, {}, ()))), np.int64)
    sampled = frame.roster.nodes_of((), ranks.tolist())
    found, unreadable = read_groups(_resting(frame, ALL, sampled))
    if _lags(frame) or some_process(attempt_id, "gone_ns > 0"):
        others = sorted(set(frame.roster.node_ids.tolist()) - set(sampled))
        more, also = read_groups(_resting(frame, ("live",), others))
        found, unreadable = _joined(found, more), unreadable + also
    return frame.window(found, unreadable, ranks=ranks)


def read_ops_of(
    attempt_id: int, start_ns: int, end_ns: int, ranks: Collection[int], columns: Collection[str]
) -> Window:
    """The ops of these ranks in [start_ns, end_ns), as Columns with these alone; what else is known of the job as ever."""
    frame = read_frame(attempt_id, start_ns, end_ns)
    nodes = frame.roster.nodes_of((), ranks)
    found, unreadable = read_groups(Reading(attempt_id, start_ns, end_ns, (GROUP_OF["op"],), nodes))
    theirs = np.array(sorted(ranks), np.int64)
    return frame.window(found, unreadable, ("op",), ranks=theirs, narrow={"op": columns})


class SlowEvidence:
    """What is stored of a slow job in [start_ns, end_ns), read node by node as it is asked for (rca/narrowed.py).

    onset_ns: since when the job is slow. What was read is kept, and read once.
    """

    def __init__(self, attempt_id: int, start_ns: int, end_ns: int, onset_ns: int, now_ns: int | None = None) -> None:
        self._frame = read_frame(attempt_id, start_ns, end_ns, now_ns)
        self._since_ns = {"flow": onset_ns - BEFORE_NS}
        self._groups: dict[str, list[Group]] = {group: [] for group in SLOW}
        self._unreadable = Counter[int]()
        self._known = np.zeros(len(self._frame.roster.node_ids), bool)

    def frame(self) -> Window:
        """The window without rows."""
        return self._frame.window({}, {}, ())

    def glimpse(self, start_ns: int, end_ns: int, columns: Collection[str]) -> Window:
        """These columns of the ops of all nodes in [start_ns, end_ns)."""
        part = replace(self._frame, start_ns=start_ns, end_ns=end_ns)
        found, _ = read_groups(Reading(self._frame.attempt.pk, start_ns, end_ns, ("ops",)))
        return part.window(found, {}, ("op",), narrow={"op": columns})

    def whole(self, nodes: Ints | None) -> Window:
        """All that these nodes (indices) told; None: all of them."""
        wanted = np.arange(len(self._known)) if nodes is None else nodes
        self._read(wanted[~self._known[wanted]])
        ids = set(self._frame.roster.node_ids[wanted].tolist())
        held = {group: [one for one in told if one.node_id in ids] for group, told in self._groups.items()}
        return self._frame.window(held, self._unreadable, last=TICKED, late=LATE, narrow=NARROW)

    def _read(self, nodes: Ints) -> None:
        frame, ids = self._frame, self._frame.roster.node_ids[nodes].tolist()
        reading = Reading(frame.attempt.pk, frame.start_ns, frame.end_ns, SLOW, ids, since_ns=self._since_ns)
        found, unreadable = read_groups(reading)
        for group, told in found.items():
            self._groups[group] += told
        self._unreadable += unreadable
        self._known[nodes] = True


def read_evidence(
    attempt_id: int, start_ns: int, end_ns: int, onset_ns: int | None = None, now_ns: int | None = None
) -> Window:
    """A window for a diagnosis. onset_ns: since when the job is slow, and its late tables are LATE; None: it stands still."""
    if onset_ns is not None:
        return SlowEvidence(attempt_id, start_ns, end_ns, onset_ns, now_ns).whole(None)
    frame = read_frame(attempt_id, start_ns, end_ns, now_ns)
    found, unreadable = read_groups(_resting(frame, ALL, None))
    live = frame.window({"live": found["live"]}, unreadable, GROUPS["live"], last=tuple(OF_ONE))
    whole = _with_a_past(frame, live)
    if not whole:
        held = {group: found[group] for group in ("ops", "flow")}
        rest = frame.window(held, {}, ("op", "flow"), last=tuple(OF_ONE), narrow=NARROW)
        damaged = Counter(live.unreadable) + Counter(rest.unreadable)
        return _with_traffic(frame, replace(live, tables={**live.tables, **rest.tables}, unreadable=damaged))
    more, also = read_groups(Reading(attempt_id, start_ns, end_ns, ALL, whole))
    found = {group: [one for one in held if one.node_id not in whole] for group, held in found.items()}
    unread = Counter({**unreadable, **also})
    return _with_traffic(frame, frame.window(_joined(found, more), unread, last=tuple(OF_ONE), narrow=NARROW))


def _with_traffic(frame: Frame, window: Window) -> Window:
    """The same, with what had been sent when all stood still, which is opened where nothing else tells who it is."""
    held, _ = read_groups(Reading(frame.attempt.pk, frame.start_ns, frame.end_ns, LAST))
    later = frame.window(held, {}, (), late=LAST).tables
    assert isinstance(later, LateTables)
    return replace(window, tables=LateTables(window.tables, LAST, lambda table, nodes, _: _cut(later, table, nodes)))


def _cut(tables: LateTables, table: str, nodes: Ints | None) -> Rows:
    return tables[table] if nodes is None else tables.on(table, nodes)


def _resting(frame: Frame, groups: Collection[str], node_ids: list[int] | None) -> Reading:
    """Ops of all the time; of what was in progress, what each node told last."""
    rest_ns = {group: ns for group, ns in REST_NS.items() if group in groups}
    return Reading(frame.attempt.pk, frame.start_ns, frame.end_ns, tuple(groups), node_ids, rest_ns=rest_ns)


def _joined(first: Groups, second: Groups) -> dict[str, list[Group]]:
    return {group: [*first.get(group, []), *second.get(group, [])] for group in {*first, *second}}


def _lags(frame: Frame) -> bool:
    """Whether some node is behind the newest."""
    told = frame.nodes["watermark_ns"]
    return bool(len(told)) and int(told.max() - told.min()) > LAGS_NS


def _with_a_past(frame: Frame, live: Window) -> list[int]:
    """Ids of nodes whose last rows do not tell all: a process is gone or unheard of, or a port is down that a rank
    uses, or may use; ports that nobody uses may never have been connected."""
    process, nic, ranks = live.rows("process"), live.rows("nic"), live.ranks
    unheard = ranks["node"][~np.isin(ranks["rank"], process["rank"])]
    down = nic[nic["port_state"] == _DOWN]
    used = set(zip(ranks["node"].tolist(), ranks["nic"].tolist(), strict=True))
    names = np.char.decode(down["name"], "ascii", "replace").tolist()
    is_used = [
        {(node, name), (node, "")} & used != set() for node, name in zip(down["node"].tolist(), names, strict=True)
    ]
    fallen = down["node"][np.array(is_used, bool)]
    nodes = np.unique(np.concatenate([process["node"][process["alive"] == 0], unheard, fallen]))
    ids: list[int] = frame.roster.node_ids[nodes[nodes >= 0]].tolist()
    return ids
