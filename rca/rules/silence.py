"""Somebody sends nothing any more while others do: a node, or a rank whose process is gone.

    node A ▮▮▮▮▮▮▮▮▮▮      node B ▮▮▮▮▮………… silent      node C ▮▮▮ (draining its spool: late, not silent)

Says where, not why: a silent node may be down, cut off, or have lost its agent. Abstains when everybody is silent (then
it is the server or the network) and for processes that ended with nothing in progress and nobody waiting.
"""

from __future__ import annotations

import numpy as np

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.progress import Progress
from rca.ranks import silent_nodes
from rca.settings import SECOND_NS, Settings
from rca.words import named, score, waiting

RULE = "silence"
VERSION = 1


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per silent node; only for the silence symptom, or one that a person or watchdog raised."""
    if symptom.kind not in (SymptomKind.SILENCE, SymptomKind.EXTERNAL):
        return ()
    nodes = np.flatnonzero(silent_nodes(state.window, settings)[:-1])
    return tuple(_silent_node(state, int(node)) for node in nodes[: settings.findings_max])


def _silent_node(state: Progress, node: int) -> Finding:
    row = state.window.nodes[node]
    places = np.flatnonzero(state.ranks.node == node)
    ranks = state.ranks.names(places)
    waiters = {at for at in state.graph.reaching(places.tolist()) if at < state.n_ranks} - set(places.tolist())
    silent_s = round((state.window.now_ns - int(row["watermark_ns"])) / SECOND_NS, 1)
    # Others wait in ops with its ranks: then it is more than a lost agent.
    grade = Grade.STRONG if waiters else Grade.MODERATE
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("node", str(row["name"]), ranks, str(row["name"])),
        component=Component.NODE, kind=FaultKind.SILENCE, culprits=ranks,
        score=score(grade, len(waiters), state.n_ranks), grade=grade,
        sentence=f"Node {row['name']} ({named(ranks)}) has sent nothing for {silent_s:g} s while others report; "
        f"{waiting(len(waiters))}.",
        evidence=(Evidence("no data since", silent_s, "s", "nodes", None),),
        advice="Is the node up? Is its agent running, and can it reach the server?",
    )  # fmt: skip
