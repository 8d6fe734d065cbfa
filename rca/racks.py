"""How much of a rack is touched: a switch, a power feed or a way out of it is shared by its nodes, and no trace says so."""

from __future__ import annotations

from ingest.window import Window
from rca.findings import Cover
from rca.keys import Ints


def rack_cover(window: Window, nodes: Ints) -> tuple[Cover, ...]:
    """How many of a rack's nodes these (indices) are; () unless all of them declare the same one."""
    names = window.nodes["name"][nodes].tolist()
    racks = {window.racks.get(name, "") for name in names}
    rack = racks.pop() if len(racks) == 1 else ""
    if not rack:
        return ()
    n_there = sum(window.racks.get(name) == rack for name in window.nodes["name"].tolist())
    return (Cover("node", len(names), n_there, f"rack {rack}"),)
