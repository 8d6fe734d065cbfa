"""What was on the wire, and for how long: stragglers that hide in ops which last equally long at everybody (Pulse §6.2).

    rank 0 ══════════════════════▶  actual time 40 ms of 40: the straggler
    rank 1 ══ ·· ══ ·· ══ ·· ══ ▶   actual time 20 ms of 40: pauses, in which it waits for rank 0

Asked where nodes measure bytes per epoch. A connection whose bytes take longer is the network's; an op that lasts longer with the
usual time on the wire is computation, at the rank that notices late what has gone, else somewhere in the group. Beside each
stands what epochs of this length cannot show (§6.1). Abstains without measured iterations of both times, and where the
actual time, the bytes and the waits are as usual. docs/rules/actual_time.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom
from rca.flows import analyzer
from rca.flows.analyzer import By, Verdict, What
from rca.flows.granularity import sight_of
from rca.flows.measured import incomplete_share, measured_in, other_epochs_share
from rca.keys import Rows
from rca.settings import Settings
from rca.slow.slow_words import MS, PER_ITERATION, finding_of, node_name
from rca.slow.slowdown import Slowdown
from rca.words import communicator_names, lower, named

RULE = "actual_time"
VERSION = 12

TOLD_NIC = "`ip -s link`, `ethtool -S DEVICE`, `rdma statistic show`, `lspci -vv | grep -i lnksta`"
TOLD_PROXY = "`top -H -b -n 1 | head -40`, `cat /proc/pressure/cpu`, `cat /sys/fs/cgroup/cpu.stat`"
TOLD_BY = "told by"
UNMEASURED = "No bytes on the wire were measured: whether the network itself is slower is told by the ops' waits alone."
SAID = {
    By.ACTUAL: "What {who} sends and is sent is on the wire longer, pauses left out",
    By.PASSES: "The proxy of {who} is late at all that it passes on, to the network and to the GPU",
    By.PORTS: "The network of {who} is taken by other traffic: what it sends and is sent is on the wire longer",
    By.RATE: "What {who} sends in custom collectives goes at a lower rate than its own and the others'",
    By.WAITS: "The proxy of {who} notices late what has long left: its bytes are on the wire no longer than usual",
    By.BYTES: "{who} is sent far more than usual by its group, computes longer and starts its next ops last",
}
SAID_OF_SEVERAL = {
    By.ACTUAL: "What {who} send and are sent is on the wire longer, pauses left out",
    By.PASSES: "The proxies of {who} are late at all that they pass on, to the network and to the GPU",
    By.PORTS: "The network of {who} is taken by other traffic: what they send and are sent is on the wire longer",
    By.RATE: "What {who} send in custom collectives goes at a lower rate than their own and the others'",
    By.WAITS: "The proxies of {who} notice late what has long left: their bytes are on the wire no longer than usual",
    By.BYTES: "{who} are sent far more than usual by their group, compute longer and start their next ops last",
}


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding for each verdict about ranks; () when nothing is unusual. What ranks are sent is known without measuring."""
    del symptom
    measured = measured_in(slowdown)
    found = analyzer.hot_ranks(slowdown, measured)
    if analyzer.is_measured(slowdown, measured):
        wire = analyzer.communications(slowdown, measured, settings)
        found = (*found, *analyzer.proxies(slowdown, measured), *wire)
    return tuple(_told(slowdown, one) for one in _agreeing(found))


def explain_group(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """That ops last longer by computation, where no machine can be named; () when they do not."""
    del symptom, settings
    measured = measured_in(slowdown)
    if not analyzer.is_measured(slowdown, measured):
        return ()
    return tuple(_of_group(slowdown, one) for one in analyzer.groups(slowdown, measured))


def missing(slowdown: Slowdown) -> tuple[str, ...]:
    """What was not measured, in sentences."""
    window, measured = slowdown.window, measured_in(slowdown)
    rows = window.rows("traffic")
    if not len(rows):
        return (UNMEASURED,)
    found, of = [], _sending_nodes(slowdown)
    blind = of - set(rows["node"].tolist())
    if blind:
        seen = f"{len(of) - len(blind)} of {len(of)} nodes"
        found.append(f"Bytes on the wire were measured on {seen}: what rests on them is graded down.")
    share = incomplete_share(window)
    if share:
        found.append(
            f"{share:.0%} of what was measured on the wire belongs to iterations that lost something: left out."
        )
    others = other_epochs_share(window)
    if others:
        found.append(
            f"{others:.0%} of what was measured on the wire was in epochs of another length than the rest: left out, "
            "since longer ones would look like a slow wire, and what rests on the rest is graded down."
        )
    usual, slow = measured.seen(slowdown.usual), measured.seen(slowdown.slow)
    if min(usual, slow) < analyzer.MEASURED_MIN:
        found.append(
            f"Of the time before {usual} iterations were measured on the wire, since then {slow}: too few to compare."
        )
    return tuple(found)


def is_whole(slowdown: Slowdown) -> bool:
    """Whether all nodes that send measured, in epochs of one length, and lost nothing."""
    window = slowdown.window
    told = set(window.rows("traffic")["node"].tolist())
    return _sending_nodes(slowdown) <= told and not incomplete_share(window) and not other_epochs_share(window)


def _sending_nodes(slowdown: Slowdown) -> set[int]:
    """Nodes of ranks that do not only receive: the root of an all-to-one has nothing to measure."""
    iterations = slowdown.iterations
    rank_at = np.unique(iterations.rank_at[iterations.func != FUNC_RECV])
    return set(slowdown.nodes[rank_at].tolist()) - {-1}


def _agreeing(found: tuple[Verdict, ...]) -> list[Verdict]:
    """Without those about ranks of which a verdict before says why: hot experts make ways long, late proxies too."""
    kept: list[Verdict] = []
    for one in found:
        told = {rank for other in kept for rank in other.ranks}
        if not told & {*one.ranks, *one.rivals}:
            kept.append(one)
    return kept


def _told(slowdown: Slowdown, one: Verdict) -> Finding:
    if not one.ranks:
        return _of_everybody(slowdown, one)
    component, kind = _component(slowdown, one), FaultKind.COMPUTATION_FAIL_SLOW
    told = TOLD_PROXY if component is Component.PROXY else TOLD_NIC
    if one.what is What.COMMUNICATION:
        kind = FaultKind.COMMUNICATION_FAIL_SLOW
    who = tuple(sorted({*one.ranks, *one.rivals}))
    said, whose = (SAID, "its") if len(who) == 1 else (SAID_OF_SEVERAL, "their")
    found = finding_of(
        RULE, VERSION, slowdown, who, component, kind, one.excess_ns, f"in {one.n} of {one.of} of {whose} {_counted(one)}",
        said[one.by], f"{one.by.value}, more than usual", told, (one.n, one.of),
    )  # fmt: skip
    found = replace(found, evidence=(*found.evidence, *_sight(slowdown, one)))
    found = found if one.by is By.BYTES else _graded(slowdown, found)
    return _tied(found) if one.rivals else found


def _component(slowdown: Slowdown, one: Verdict) -> Component:
    """Several NICs do not break at once, but those of one node share how they reach its memory, and nothing else alone."""
    if one.by in (By.WAITS, By.PASSES):
        return Component.PROXY
    if one.by is By.BYTES:
        return Component.GPU
    is_nic = one.n_ends == 1 or bool(node_name(slowdown, one.ranks))
    return Component.NIC if is_nic and one.by is not By.PORTS else Component.NETWORK


def _counted(one: Verdict) -> str:
    return {By.WAITS: "ops", By.PASSES: "ops", By.BYTES: "ranks of the group"}.get(one.by, "connections")


def _tied(found: Finding) -> Finding:
    """Nobody blamed: which end of the way it is, nothing tells."""
    tied = tuple(Subject("nic", named((rank,)), (rank,)) for rank in found.culprits)
    name = "link " + " to ".join(one.name for one in tied)
    said = f"The {name} is slow, and which end of it cannot be told: {found.sentence.split(': ', 1)[1]}"
    return replace(
        found, subject=Subject("link", name, found.culprits), culprits=(), tied=tied, grade=Grade.WEAK, sentence=said
    )


def _of_everybody(slowdown: Slowdown, one: Verdict) -> Finding:
    said = (
        f"All connections carry data more slowly: {one.n} of {one.of}, {one.excess_ns / MS:.0f} ms of every iteration."
    )
    return _group_finding(slowdown, one, Component.NETWORK, Subject("job", slowdown.window.job), said, TOLD_NIC)


def _of_group(slowdown: Slowdown, one: Verdict) -> Finding:
    names = communicator_names(slowdown.window, one.comm_ids)
    ranks = _members(slowdown, one.comm_ids)
    subject = Subject("job", slowdown.window.job)
    if one.comm_ids:
        subject = Subject("communicator", ", ".join(names.get(str(c)) or f"{c:#x}" for c in one.comm_ids[:4]), ranks)
    said = (
        f"Ops of {subject.name} last {one.excess_ns / MS:.0f} ms of every iteration longer, though they begin in time and their "
        "bytes are on the wire no longer: computation inside them, a CPU or GPU, not the network. On which node, nothing tells."
    )
    return _group_finding(slowdown, one, Component.PROXY if one.comm_ids else Component.GPU, subject, said, TOLD_PROXY)


def _group_finding(
    slowdown: Slowdown, one: Verdict, component: Component, subject: Subject, said: str, told: str
) -> Finding:
    evidence = Evidence(f"{one.by.value}, more than usual", round(one.excess_ns / MS, 1), PER_ITERATION, "traffic")
    return _graded(slowdown, Finding(
        rule=RULE, version=VERSION, subject=subject, component=component, kind=FaultKind.GROUP_ANOMALY, culprits=(), score=0.7,
        grade=Grade.MODERATE, sentence=said, evidence=(evidence, *_sight(slowdown, one)), advice=f"On all of its nodes: {told}.",
    ))  # fmt: skip


def _members(slowdown: Slowdown, comm_ids: tuple[int, ...]) -> tuple[int, ...]:
    members = slowdown.window.members
    mine = members["rank"][[int(one) in comm_ids for one in members["comm_id"]]]
    return tuple(sorted({int(rank) for rank in mine if rank >= 0}))


def _graded(slowdown: Slowdown, found: Finding) -> Finding:
    """One grade less where not all was measured."""
    if is_whole(slowdown):
        return found
    return replace(found, grade=lower(found.grade), score=round(found.score - 0.2, 4))


def _sight(slowdown: Slowdown, one: Verdict) -> tuple[Evidence, ...]:
    """By which of what was measured, and what these epochs hide."""
    if one.by is By.BYTES:
        return (Evidence(TOLD_BY, one.by.value, "", "op"),)
    said = (Evidence(TOLD_BY, one.by.value, "", "traffic"),)
    sight = sight_of(_own_rows(slowdown, one), slowdown.window.rows("nic"))
    if sight is None:
        return said
    return (
        *said, Evidence("epoch", sight.epoch_ns / 1e3, "µs", "traffic"),
        Evidence("pauses hidden above this share of a sender's rate", round(100 * sight.hidden_above), "%", "traffic"),
    )  # fmt: skip


def _own_rows(slowdown: Slowdown, one: Verdict) -> Rows:
    """(n,) what was measured of the flows of a verdict's ranks or communicators; all of it where they send nothing."""
    rows = measured_in(slowdown).rows
    mine = np.isin(rows["rank"], slowdown.iterations.ranks[[*one.ranks, *one.rivals]])
    if one.comm_ids:
        mine = np.isin(rows["comm_id"], np.array(one.comm_ids, rows["comm_id"].dtype))
    found: Rows = rows[mine] if mine.any() else rows
    return found
