"""Analyses a job several times as large as one that is stored: its window, as often side by side, in a process of its own.

Storing 100,000 GPUs takes hours of two cores, so their analysis and its memory are measured without a database. The copies
are as in rca_jobs.py: ranks, nodes and communicators of their own, one communicator of the whole job, a fault each.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ingest.window import Rows, Window, load_question
from rca.diagnose import diagnose
from rca.findings import SymptomKind, symptom_from_json
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.bench.rca_jobs import renamed

BYTES_MAX: Final = 16 * 2**30


def tiled_window(window: Window, n_parts: int) -> Window:
    """The window of a job of n_parts such parts."""
    n_ranks, sizes = len(window.ranks), window.members["n_ranks"]
    world = {int(one) for one in window.members["comm_id"][sizes == n_ranks]}
    parts = range(n_parts)
    tables = {
        name: _beside([_part(rows, part, window, n_parts, world) for part in parts])
        for name, rows in window.tables.items()
    }
    members = _beside([_part(window.members, part, window, n_parts, world) for part in parts])
    is_world = np.isin(members["comm_id"], list(world))
    for name in ("n_ranks", "n_nodes"):
        members[name][is_world] *= n_parts
    nodes = _beside([window.nodes] * n_parts)
    nodes["name"] = [f"node{at}" for at in range(len(nodes))]
    ranks = _beside([_part(window.ranks, part, window, n_parts, world) for part in parts])
    ranks["dp"] += np.repeat(np.arange(n_parts) * (int(window.ranks["dp"].max()) + 1), n_ranks).astype(np.int16)
    return replace(
        window, nodes=nodes, ranks=ranks, members=members, tables=tables, world_size=window.world_size * n_parts
    )


def _part(rows: Rows, part: int, window: Window, n_parts: int, world: set[int]) -> Rows:
    made, names = rows.copy(), rows.dtype.names or ()
    if "rank" in names:
        made["rank"] += np.where(made["rank"] >= 0, part * len(window.ranks), 0).astype(made["rank"].dtype)
    if "node" in names:
        made["node"] += np.where(made["node"] >= 0, part * len(window.nodes), 0).astype(made["node"].dtype)
    renamed(made, part, len(window.ranks), n_parts, world)
    return made


def _beside(parts: list[Rows]) -> Rows:
    """End to end, as bytes: numpy would copy structured rows column by column."""
    joined = np.concatenate([part.view(f"V{part.itemsize}") for part in parts]) if parts[0].itemsize else parts[0]
    return joined.view(parts[0].dtype)


def main(path: str, n_parts: int) -> None:
    window, asked = load_question(Path(path), BYTES_MAX)
    symptom = symptom_from_json(asked["symptom"])
    window = tiled_window(window, n_parts)
    if symptom.kind is not SymptomKind.STRAGGLER:
        symptom = look(window, Normal(), DEFAULT).symptoms[0]
    began, cpu = time.perf_counter(), time.process_time()
    diagnosis = diagnose(window, symptom, DEFAULT)
    said = {"read_s": None, "analyse_s": round(time.perf_counter() - began, 3)}
    said |= {"analyse_cpu_s": round(time.process_time() - cpu, 3), "read_cpu_s": 0.0}
    said["mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    said["rows"] = {name: len(rows) for name, rows in window.tables.items()}
    print(json.dumps({**said, "culprits": list(diagnosis.culprits)[:20], "tiled": n_parts}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
