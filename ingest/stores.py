"""Which trace store this installation has."""

from __future__ import annotations

from ingest.partitions import NativePartitions
from ingest.store import TraceStore


def active_store() -> TraceStore:
    """The store of this installation."""
    return NativePartitions()
