"""How far a finding of something that stopped reaches, and since when: flow → NIC or rank → node → rack → job.

    3 of 32 flows stand still, 1 of 8 ranks of node2, 1 of 128 nodes of the job

Findings about all ranks of one node are one finding about the node; a tie among ranks of one node names the node, which is
as far as the evidence goes. The count at each step says how large a part of the next larger whole is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rca.findings import Component, Cover, Finding, Subject
from rca.hang.pairs import Pairs
from rca.hang.progress import Progress
from rca.keys import Ints, Mask, distinct, mix
from rca.racks import rack_cover
from rca.ranks import PORT_DOWN
from rca.settings import Settings
from rca.words import named, score, waiting


def with_extent(state: Progress, findings: Sequence[Finding], settings: Settings) -> tuple[Finding, ...]:
    """`findings`, those that cover a node as one, each with the count at every step and when it began."""
    found = [_counted(state, _at_node(state, one), settings) for one in _by_node(state, findings)]
    return tuple(sorted(found, key=lambda finding: -finding.score))


def _by_node(state: Progress, findings: Sequence[Finding]) -> list[Finding]:
    """Findings of one kind whose culprits are together all ranks of a node, as one about the node."""
    groups: dict[tuple[str, str, str, int], list[Finding]] = {}
    for one in findings:
        nodes = np.unique(state.ranks.node[_at(state, one.culprits)])
        node = int(nodes[0]) if len(nodes) == 1 and not one.tied else -1
        groups.setdefault((one.component, one.kind, one.grade, node), []).append(one)
    found = []
    for (*_, node), group in groups.items():
        ranks = {rank for one in group for rank in one.culprits}
        is_whole = node >= 0 and len(group) > 1 and len(ranks) == int((state.ranks.node == node).sum())
        found += [_joined(state, group, tuple(sorted(ranks)), node)] if is_whole else group
    return found


def _joined(state: Progress, group: list[Finding], ranks: tuple[int, ...], node: int) -> Finding:
    name, places = str(state.window.nodes["name"][node]), _at(state, ranks).tolist()
    n_waiters = len({at for at in state.graph.reaching(places) if at < state.n_ranks} - set(places))
    said = group[0].sentence.rsplit(";", 1)[0]
    return replace(
        group[0], subject=Subject("node", name, ranks, name), culprits=ranks,
        score=score(group[0].grade, n_waiters, state.n_ranks),
        sentence=f"All {len(ranks)} ranks of {name}: {said[:1].lower()}{said[1:]}, and so for the others; {waiting(n_waiters)}.",
        evidence=tuple(fact for one in group for fact in one.evidence[:2])[:16],
    )  # fmt: skip


def _at_node(state: Progress, one: Finding) -> Finding:
    """A tie among ranks of one node, all that could have started it, as a finding about that node."""
    tied = sorted({rank for subject in one.tied for rank in subject.ranks})
    nodes = np.unique(state.ranks.node[_at(state, tied)])
    if one.rule != "hang" or one.culprits or one.component in (Component.NIC, Component.NETWORK) or len(tied) < 2:
        return one
    if len(nodes) != 1 or nodes[0] < 0 or set(one.subject.ranks) != set(tied):
        return one
    name = str(state.window.nodes["name"][int(nodes[0])])
    place = f"It is on {name}; which of {named(tied)} it is, the network does not see."
    return replace(one, subject=Subject("node", name, tuple(tied), name), sentence=f"{one.sentence} {place}")


def _counted(state: Progress, one: Finding, settings: Settings) -> Finding:
    ranks = one.culprits or one.subject.ranks
    at = _at(state, ranks)
    if not len(at):
        return one
    return replace(
        one, cover=_steps(state, one, at, settings), began_ns=one.began_ns or _began_ns(state, at, one.component)
    )


def _steps(state: Progress, one: Finding, at: Ints, settings: Settings) -> tuple[Cover, ...]:
    pairs, found = state.pairs, []
    touching = np.isin(pairs.sender, at) | np.isin(pairs.receiver, at)
    stands = touching & (pairs.still_ns >= settings.still_ns)
    if stands.any():
        n, of = _connections(pairs, stands), _connections(pairs, touching)
        found.append(Cover("flow in progress", n, of, named(state.ranks.names(at))))
    node = np.unique(state.ranks.node[at])
    node = node[node >= 0]
    if len(node) == 1:
        n_here = int((state.ranks.node == node[0]).sum())
        found.append(Cover("rank", len(at), n_here, str(state.window.nodes["name"][int(node[0])])))
    if len(node):
        found += rack_cover(state.window, node)
        found.append(Cover("node", len(node), len(state.window.nodes), "the job"))
    return tuple(found)


def _connections(pairs: Pairs, mask: Mask) -> int:
    """How many flows these are, as the lanes count them: a flow with several ops in progress is one, each direction another."""
    return len(distinct(mix(pairs.comm, pairs.channel, pairs.sender, pairs.receiver)[mask]))


def _began_ns(state: Progress, at: Ints, component: Component) -> int:
    """The last sign of progress at these ranks; where a port or process was seen to fall, as far as that lies between its last
    tick before and its first after."""
    ranks, process, nic = state.ranks, state.window.rows("process"), state.window.rows("nic")
    if component is Component.NIC and (ranks.port[at] == PORT_DOWN).any():
        row = ranks.nics[int(ranks.nic[at][ranks.port[at] == PORT_DOWN][0])]
        mine = nic[(nic["node"] == row["node"]) & (nic["index"] == row["index"])]
        return _between(mine["tick_ns"], mine["port_state"] == PORT_DOWN, _last_moved_ns(state, at))
    fell = at[ranks.is_gone[at] | ranks.is_stopped[at]]
    if len(fell):
        mine = process[process["rank"] == ranks.rank[fell[0]]]
        is_so = (mine["state"] == ranks.state[fell[0]]) | (mine["alive"] == 0)
        return _between(mine["tick_ns"], is_so, _last_moved_ns(state, fell))
    return max(_last_moved_ns(state, at), _last_enqueued_ns(state, at))


def _between(tick_ns: Ints, is_so: Mask, sign_ns: int) -> int:
    """`sign_ns`, no earlier than the tick before the last unbroken run and no later than its first; 0 where nothing says so."""
    before = int(tick_ns[~is_so].max(initial=0))
    after = tick_ns[is_so & (tick_ns > before)]
    return min(max(sign_ns, before), int(after.min())) if len(after) else 0


def _last_moved_ns(state: Progress, at: Ints) -> int:
    """When an op of these ranks last ended or a flow of theirs last moved."""
    known = state.known
    done = known.progress["last_done_ns"][np.isin(known.progress_at, at)]
    moved = (known.flow["tick_ns"] - known.flow["stuck_ns"])[np.isin(known.flow_at, at)]
    return max(int(done.max(initial=0)), int(moved.max(initial=0)))


def _last_enqueued_ns(state: Progress, at: Ints) -> int:
    known = state.known
    return int(known.progress["last_enqueued_ns"][np.isin(known.progress_at, at)].max(initial=0))


def _at(state: Progress, ranks: Sequence[int]) -> Ints:
    at = state.ranks.position(np.array(ranks, np.int64))
    return at[at >= 0]
