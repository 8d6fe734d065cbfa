"""What of an attempt's traces was lost, by kind and by node: a verdict rests on what is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from ingest.models import Attempt
from ingest.read import read_nodes, read_strays
from nccl_instrument.tables import DATA_LOSSES

NODES_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """kinds: as agents counted them; rows_dropped, batches_refused, strays: by the server."""

    node: str
    kinds: dict[str, int]
    rows_dropped: int
    batches_refused: int
    strays: int


@dataclass(frozen=True, slots=True)
class Losses:
    """Since the attempt began. n_batches: that arrived. n_nodes_losing: of n_nodes, how many lost data (not only oddities).
    left_out: nodes that lost something and are not among `nodes`, the worst first."""

    n_nodes: int
    n_nodes_losing: int
    n_batches: int
    kinds: dict[str, int]
    nodes: list[NodeLoss]
    left_out: int


def read_losses(attempt: Attempt) -> Losses:
    known, strays = read_nodes(attempt.pk), read_strays(attempt.pk)
    rows = [
        NodeLoss(
            node.name, {kind: int(n) for kind, n in node.losses.items() if n}, node.rows_dropped, node.batches_refused,
            strays.get(node.name, 0),
        )
        for node in known
    ]  # fmt: skip
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds.update(row.kinds)
    something = [row for row in rows if row.kinds or row.rows_dropped or row.batches_refused or row.strays]
    something.sort(key=lambda row: -_weight(row))
    losing = sum(_weight(row) > 0 for row in rows)
    return Losses(
        len(rows), losing, sum(node.batches for node in known), dict(kinds), something[:NODES_SHOWN],
        max(len(something) - NODES_SHOWN, 0),
    )  # fmt: skip


def _weight(row: NodeLoss) -> int:
    return sum(row.kinds.get(kind, 0) for kind in DATA_LOSSES) + row.rows_dropped + row.batches_refused + row.strays
