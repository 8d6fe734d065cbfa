"""Rows of the stage tables out of a matrix of durations, as agents send them; nothing is random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nccl_instrument.stage_schema import DEFAULT, Schema
from nccl_instrument.tables import STAGES_A_ROW, empty_rows
from nccl_instrument.wire import Rows
from tests.builders import MONO_NS, SECOND

MS = 1_000_000


def stage_tables(
    durations_ms: npt.NDArray[np.float64],
    *,
    schema: Schema = DEFAULT,
    ranks: tuple[int, ...] = (),
    pids: tuple[int, ...] = (),
    first_step: int = 0,
    end_ns: int = MONO_NS + SECOND,
    flags: int = 0,
) -> dict[str, Rows]:
    """The tables of one node's batch. durations_ms: (T, R, S) of the schema's stages, the residual included.

    ranks: (R,) global, 0 to R - 1 by default. end_ns: when the last step of the longest rank ends, monotonic.
    """
    n_steps, n_ranks, n_stages = durations_ms.shape
    ranks = ranks or tuple(range(n_ranks))
    pids = pids or tuple(1000 + rank for rank in ranks)
    durations = np.round(durations_ms * MS).astype(np.int64)
    ended = end_ns - (lambda left: left.max() - left)(durations.sum(axis=2).cumsum(axis=0))
    n_parts = -(-n_stages // STAGES_A_ROW)
    rows = empty_rows("stage", n_steps * n_ranks * n_parts).reshape(n_ranks, n_steps, n_parts)
    rows["ended_ns"], rows["step"] = ended.T[:, :, None], first_step + np.arange(n_steps)[None, :, None]
    rows["pid"], rows["global_rank"] = np.array(pids)[:, None, None], np.array(ranks)[:, None, None]
    rows["schema"], rows["flags"], rows["repeats"] = schema.schema_id, flags, 1
    rows["part"] = np.arange(n_parts)
    padded = np.zeros((n_steps, n_ranks, n_parts * STAGES_A_ROW), np.int64)
    padded[:, :, :n_stages] = durations
    rows["durations_ns"] = padded.reshape(n_steps, n_ranks, n_parts, STAGES_A_ROW).transpose(1, 0, 2, 3)
    recorders = empty_rows("recorder", n_ranks)
    recorders["tick_ns"], recorders["pid"], recorders["global_rank"] = end_ns, pids, ranks
    recorders["world_size"], recorders["schema"], recorders["road"] = n_ranks, schema.schema_id, 1
    recorders["steps"] = first_step + n_steps
    return {"stage": rows.reshape(-1), "recorder": recorders, "schema": schema_rows(schema, end_ns)}


def schema_rows(schema: Schema, tick_ns: int) -> Rows:
    """What an agent says of a schema."""
    declared = schema.declared()
    rows = empty_rows("schema", len(declared))
    for row, one in zip(rows, declared, strict=True):
        row["tick_ns"], row["schema"], row["order_hash"] = tick_ns, schema.schema_id, schema.order_hash
        row["version"], row["n_stages"], row["micro_steps"] = schema.version, len(schema.stages), schema.micro_steps
        row["kind"], row["position"], row["micro"] = one.kind, one.position, one.micro
        row["name"], row["parent"] = one.name.encode(), one.parent.encode()
    return rows
