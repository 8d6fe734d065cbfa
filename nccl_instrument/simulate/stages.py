"""The stage tables of a simulated job: what the recorders in its training loops wrote, as the agents send it.

Microbatches are folded into the stages, as in a loop whose forward and backward are one call each; where a pipeline runs
them in turn (1f1b) they are one stage, for no order of the two would be true.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.physics import Physics
from nccl_instrument.simulate.rows import Roster
from nccl_instrument.stage_schema import CALLBACKS, DATA, DEFAULT, FORWARD_BACKWARD, OPTIMIZER, Schema
from nccl_instrument.tables import ROADS, empty_rows

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
_AGENT: Final = ROADS.index("agent")


def schema_of(physics: Physics, pp: int) -> Schema:
    """The stages a recorder in such a loop can tell apart."""
    if pp > 1 and physics.schedule == "1f1b":
        return Schema((DATA, FORWARD_BACKWARD, CALLBACKS, OPTIMIZER))
    return DEFAULT


def stage_rows(roster: Roster, raw: Rows, schema: Schema) -> tuple[Rows, Ints]:
    """Rows of `stage` of STEP rows, and the rank of each; rank by rank, in each in the order of steps."""
    raw = raw[np.lexsort((raw["step"], raw["rank"]))]
    rows, ranks = empty_rows("stage", len(raw)), raw["rank"].astype(np.int64)
    rows["ended_ns"] = roster.clocks.mono_ns(roster.node_of[ranks], raw["ended_ns"])
    rows["pid"], rows["global_rank"], rows["step"] = roster.pid_of[ranks], ranks, raw["step"]
    rows["schema"], rows["repeats"] = schema.schema_id, 1
    spent = raw["stage_ns"]
    if FORWARD_BACKWARD in schema.stages:
        spent = np.stack([spent[:, 0], spent[:, 1] + spent[:, 2], spent[:, 3], spent[:, 4]], axis=1)
    rows["durations_ns"][:, : spent.shape[1]] = spent
    return rows, ranks


def recorder_rows(roster: Roster, processes: Rows, schema: Schema, tick_ns: int) -> tuple[Rows, Ints]:
    """Rows of `recorder` of the processes that live, and the rank of each."""
    raw = processes[processes["is_killed"] == 0]
    rows, ranks = empty_rows("recorder", len(raw)), raw["rank"].astype(np.int64)
    rows["tick_ns"] = roster.clocks.mono_ns(roster.node_of[ranks], np.full(len(raw), tick_ns))
    rows["pid"], rows["global_rank"], rows["world_size"] = roster.pid_of[ranks], ranks, roster.layout.n_ranks
    rows["schema"], rows["road"], rows["steps"] = schema.schema_id, _AGENT, raw["iteration"]
    return rows, ranks


def schema_rows(roster: Roster, nodes: Ints, schema: Schema, tick_ns: int) -> Rows:
    """Rows of `schema`, as many for each of the nodes, node by node."""
    declared = schema.declared()
    rows = empty_rows("schema", len(declared))
    for row, one in zip(rows, declared, strict=True):
        row["schema"], row["order_hash"], row["version"] = schema.schema_id, schema.order_hash, schema.version
        row["n_stages"], row["micro_steps"] = len(schema.stages), schema.micro_steps
        row["kind"], row["position"], row["micro"] = one.kind, one.position, one.micro
        row["name"], row["parent"] = one.name.encode(), one.parent.encode()
    rows = np.tile(rows, len(nodes))
    rows["tick_ns"] = np.repeat(roster.clocks.mono_ns(nodes, np.full(len(nodes), tick_ns)), len(declared))
    return rows
