"""How far a finding of something that stopped reaches, and since when: flow → NIC or rank → node → rack → job.

    3 of 32 flows stand still, 1 of 8 ranks of node2, 1 of 128 nodes of the job

Findings about all ranks of one node are one finding about the node, those about all nodes of a rack one about the rack. A tie
among ranks of one node names the node, which is as far as the evidence goes. The count at each step says how large a part of
the next larger whole is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rca.findings import Component, Cover, Finding, Grade, Subject
from rca.hang.behind import heard_ns
from rca.hang.pairs import Pairs
from rca.hang.paths import vertices_of
from rca.hang.progress import Progress
from rca.keys import Ints, Mask, distinct, mix
from rca.racks import Weighed, by_rack, rack_cover
from rca.ranks import PORT_DOWN
from rca.settings import Settings
from rca.words import lowered, named, score, waiting


def with_extent(
    state: Progress, findings: Sequence[Finding], settings: Settings, weighed: Weighed | None = None
) -> tuple[Finding, ...]:
    """`findings`, those that cover a node as one, each with the count at every step and when it began. weighed: of a rack, None:
    by who waits for it."""
    at_nodes = [_at_node(state, one) for one in _by_node(state, findings)]
    at_racks = by_rack(state.window, state.ranks, at_nodes, partial(_alike, state), weighed or partial(_weighed, state))
    found = [_counted(state, one, settings) for one in at_racks]
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
    name, weight = str(state.window.nodes["name"][node]), _weighed(state, group[0].grade, _at(state, ranks))
    said = lowered(group[0].sentence.rsplit(";", 1)[0])
    return replace(
        group[0], subject=Subject("node", name, ranks, name), culprits=ranks,
        score=weight[0], sentence=f"All {len(ranks)} ranks of {name}: {said}, and so for the others; {weight[1]}.",
        evidence=tuple(fact for one in group for fact in one.evidence[:2])[:16],
    )  # fmt: skip


def _weighed(state: Progress, grade: Grade, at: Ints) -> tuple[float, str]:
    """Score and last words of a finding about the ranks at these positions, by who waits for any of them."""
    reached = state.graph.reaching(vertices_of(state, at.tolist()))
    n_waiters = len({vertex for vertex in reached if vertex < state.n_ranks} - set(at.tolist()))
    return score(grade, n_waiters, state.n_ranks), waiting(n_waiters)


def _alike(state: Progress, one: Finding) -> Mask | None:
    """(R,) of whom the same is seen directly as of all this finding blames: the sinks may be too many to have one each."""
    ranks, at = state.ranks, _at(state, one.culprits)
    seen = {
        Component.NIC: ((ranks.port == PORT_DOWN) | (ranks.fallen >= 0),),
        Component.NODE: (unheard(state),),
        Component.PROCESS: (ranks.is_gone, ranks.is_stopped),
        Component.PROXY: (state.is_deaf,),
    }
    return next((mask for mask in seen.get(one.component, ()) if mask[at].all()), None)


def unheard(state: Progress) -> Mask:
    """(R,) whose node is silent, or was last heard of before the job came to rest and is not known to be late."""
    nodes, ranks = state.window.nodes, state.ranks
    is_away = np.append((nodes["watermark_ns"] <= heard_ns(state.known)) & ~nodes["catching_up"], False)
    found: Mask = ranks.is_silent | (state.behind & is_away)[ranks.node]
    return found


def _at_node(state: Progress, one: Finding) -> Finding:
    """A tie among ranks of one node, all that could have started it, as a finding about that node."""
    tied = sorted({rank for subject in one.tied for rank in subject.ranks})
    nodes = np.unique(state.ranks.node[_at(state, tied)])
    if one.rule != "hang" or one.culprits or one.component in (Component.NIC, Component.NETWORK) or len(tied) < 2:
        return one
    if len(nodes) != 1 or nodes[0] < 0 or set(one.subject.ranks) != set(tied):
        return one
    name = str(state.window.nodes["name"][int(nodes[0])])
    place = f"It is on {name}; which of them it is, the network does not see."
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
