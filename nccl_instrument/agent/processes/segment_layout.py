"""The layout of a segment: the mirror of plugin/record.h.

The dtypes below are its structs, and a test compiles the header and compares every offset. Nothing here reads: segment.py does.
"""

from __future__ import annotations

from typing import Final

import numpy as np

MAGIC: Final = b"DGNSEG1\n"
BYTE_ORDER: Final = 0x01020304
MAJOR: Final = 1
HEADER_BYTES: Final = 4096
ROW_LIVE: Final = 2
ROW_CLOSING: Final = 3
ROW_DONE: Final = 4
OP_FOREIGN: Final = 8

Field = tuple[str, str] | tuple[str, str, tuple[int, ...]]


def _fields(kind: str, names: str) -> list[Field]:
    return [(name, kind) for name in names.split()]


COUNTERS: Final = (
    "comms_joined", "comms_finalized", "ops_enqueued", "ops_done", "ops_no_network", "ops_lost", "ops_reopened",
    "flows_started", "flows_done", "flows_lost", "foreign_flows", "orphan_flows", "repeated_recv_starts",
    "peer_wait_polls", "repeated_stops", "lost_stops", "skipped_states", "bad_steps", "null_handles",
    "stale_handles", "bad_handles", "bad_contexts", "null_args", "ignored_types", "unknown_types", "unknown_states",
    "comm_table_full", "op_table_full", "flow_table_full", "ring_busy", "p2p_unnumbered",
    "chain_full", "ops_unseen", "api_unknown_comms", "api_failed_calls", "api_groups_full",
    "transfers_busy", "orphan_kernels", "kernels_refused",
)  # fmt: skip

SECTION: Final = np.dtype([("name", "S8"), ("offset", "u8"), ("row_bytes", "u4"), ("n_rows", "u4"), ("reserved", "u8")])

IDENTITY: Final = np.dtype(
    [
        *_fields("i4", "global_rank world_size local_rank local_world_size restart_count tp pp dp ep reserved"),
        ("job", "S128"),
        ("hostname", "S64"),
        ("host_id", "S64"),
        ("nic", "S32"),
        ("gid", "S40"),
    ]
)

HEADER: Final = np.dtype(
    [
        ("magic", "V8"),
        ("byte_order", "u4"),
        *_fields("u2", "major minor"),
        *_fields("u4", "header_bytes n_sections"),
        ("segment_bytes", "u8"),
        ("pid", "i4"),
        ("uid", "u4"),
        ("starttime", "u8"),
        *_fields("i8", "wall_ns mono_ns"),
        *_fields("u4", "library_version abi mask closed n_counters"),
        ("transport", "u1"),
        ("reserved", "V43"),
        ("sections", SECTION, (8,)),
        ("reserved_sections", "V128"),
        ("identity", IDENTITY),
        ("boot_id", "S40"),
        ("reserved_identity", "V104"),
        ("counters", "u8", (64,)),
        ("ring_head", "u8"),
        ("reserved_ring", "V56"),
        ("last_callback_ns", "i8"),
        ("reserved_last", "V56"),
        ("transfer_head", "u8"),
        ("reserved_transfer", "V56"),
    ]
)

COMM: Final = np.dtype(
    [
        ("stamp", "u4"),
        ("comm_rank", "i4"),
        ("comm_id", "u8"),
        *_fields("i4", "n_ranks n_nodes"),
        *_fields("u1", "transport abi network_seen"),
        ("reserved_codes", "V5"),
        *_fields("i8", "joined_ns finalized_ns began_ns"),
        ("reserved_identity", "V8"),
        *_fields("u8", "n_enqueued n_p2p_enqueued"),
        ("last_enqueued_ns", "i8"),
        ("reserved_launch", "V40"),
        *_fields("u8", "n_done n_p2p_done n_no_network"),
        ("last_done_ns", "i8"),
        ("kernels_begun", "u8"),
        ("last_kernel_ns", "i8"),
        ("kernels_open", "u4"),
        ("reserved_kernel", "V4"),
        ("reserved_done", "V8"),
        ("name", "S48"),
        ("gpu_bus_id", "S20"),
        ("gpu_uuid", "S44"),
        ("reserved_tail", "V16"),
    ]
)

OP: Final = np.dtype(
    [
        *_fields("u8", "stamp comm_id"),
        ("comm_rank", "i4"),
        *_fields("u2", "comm flags"),
        ("op", "u8"),
        ("seq", "i8"),
        *_fields("u1", "func dtype algo proto channels slowest_channel slowest_direction reserved_code"),
        *_fields("u4", "n_flows n_flows_stopped"),
        *_fields("i4", "peer slowest_peer"),
        *_fields("u8", "count bytes"),
        *_fields("i8", "enqueued_ns started_ns first_transfer_ns last_transfer_ns done_ns"),
        *_fields("u8", "gpu_wait_ns peer_wait_ns net_wait_ns"),
        *_fields("u8", "receive_gpu_wait_ns receive_peer_wait_ns receive_net_wait_ns n_refused"),
        *_fields("i8", "first_ready_ns fastest_done_ns slowest_ns launched_ns"),
        *_fields("u8", "user_tag ordinal"),
        *_fields("u4", "n_flows_begun channels_begun"),
        ("reserved", "V24"),
    ]
)

FLOW: Final = np.dtype(
    [
        ("stamp", "u4"),
        ("peer", "i4"),
        ("counters", "u4", (4,)),
        *_fields("u4", "total_chunks repeats"),
        ("last_progress_ns", "i8"),
        *_fields("u8", "gpu_wait_ns peer_wait_ns net_wait_ns bytes"),
        *_fields("i8", "first_transfer_ns last_transfer_ns queued_ns started_ns first_ready_ns"),
        ("comm_id", "u8"),
        ("comm_rank", "i4"),
        ("comm", "u2"),
        *_fields("u1", "channel direction"),
        *_fields("u8", "op op_handle origin_context"),
        ("origin_pid", "i4"),
        ("qpn", "u4"),
        ("flags", "u2"),
        *_fields("u1", "func transport"),
        ("reserved_code", "V4"),
        ("reserved", "V24"),
    ]
)

TRANSFER: Final = np.dtype(
    [
        *_fields("u8", "stamp comm_id"),
        *_fields("i8", "posted_ns done_ns"),
        ("op", "u8"),
        *_fields("i4", "comm_rank peer"),
        *_fields("u4", "bytes step qpn"),
        *_fields("u1", "channel is_p2p"),
        ("reserved", "V2"),
    ]
)
