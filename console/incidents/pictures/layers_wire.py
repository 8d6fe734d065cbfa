"""Bandwidth: what each rank, or the NIC it uses, sent per second.

Where nodes measure transfers (`traffic`) it is the rank's own bytes. Else, or where these are too many to be read while
somebody waits, it is what the counters of the rank's NIC grew by: of a NIC that several ranks use all of them show the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import numpy as np

from console.incidents.pictures.layers import Ints, Notes, Values, nothing_known
from ingest.window import Rows, Window
from nccl_instrument.tables import NO_OP, SEND, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE
from rca.keys import Index, latest, mix
from rca.ranks import known_ranks
from rca.settings import DEFAULT

SECOND: Final = 1_000_000_000
NIC_TABLES: Final = ("nic", "process")
NIC_NS: Final = 6 * SECOND
TRAFFIC_NS: Final = 10 * SECOND
WORTH_B_PER_S: Final = 1e6
"""What a node says beside the job (heartbeats, monitoring) must not look like the job's bytes: no full colour below this,
nor below what ranks sent before an incident."""
PREFIXES: Final = ("", "k", "M", "G", "T")
NIC_SPAN_MIN_NS: Final = SECOND // 2


def sent_by_ranks(window: Window, n_ranks: int) -> Values:
    """(n_ranks,) B/s over the window's time, of what was measured on the wire; an empty window tells nothing."""
    rows = window.rows("traffic")
    measuring = np.unique(rows["node"][rows["node"] >= 0])
    rows = rows[(rows["rank"] >= 0) & (rows["rank"] < n_ranks) & (rows["direction"] == SEND)]
    rows = _each_once(rows)
    if not len(rows):
        return nothing_known(n_ranks, "nodes measured no transfers in these seconds")
    span_s = (window.end_ns - window.start_ns) / SECOND
    sent = np.bincount(rows["rank"], weights=rows["n_bytes"], minlength=n_ranks) / span_s
    is_measured, notes = _on(window, measuring, n_ranks), Notes(n_ranks)
    notes.mark(np.flatnonzero(~is_measured), "its node measured no transfers in these seconds")
    lossy = float(((rows["flags"] & TRAFFIC_INCOMPLETE) != 0).mean())
    says = f"Bytes each rank sent over the network in {span_s:.3g} s, as its node measures them."
    if lossy:
        says += f" Of {lossy:.0%} of the transfers something was lost: these sent more."
    return Values(
        np.where(is_measured, sent, np.nan), notes.at, notes.texts, window.end_ns - 1, says, full_min=WORTH_B_PER_S
    )


def _each_once(rows: Rows) -> Rows:
    """What a flow sent for an op is told again until it is finished: the newest counts. Bytes of no op are told once."""
    owned = np.flatnonzero(rows["op"] != NO_OP)
    some = rows[owned]
    key = mix(some["rank"], some["comm_id"], some["op"], some["channel"], some["peer"], some["flags"] & ~_CHANGING)
    newest = owned[latest(key, some["end_ns"] + ((some["flags"] & TRAFFIC_FINISHED) != 0))]
    found: Rows = rows[np.concatenate([newest, np.flatnonzero(rows["op"] == NO_OP)])]
    return found


_CHANGING: Final = np.uint8(0xFF & ~8)  # all flags but TRAFFIC_P2P, by which ops are numbered apart


def _on(window: Window, nodes: Ints, n_ranks: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(n_ranks,) ranks on these nodes."""
    found = np.zeros(n_ranks, bool)
    known = window.ranks[(window.ranks["rank"] >= 0) & (window.ranks["rank"] < n_ranks)]
    found[known["rank"][np.isin(known["node"], nodes)]] = True
    return found


def sent_by_nics(window: Window, n_ranks: int, why: str) -> Values:
    """(n_ranks,) B/s by the newest and the oldest row of each rank's NIC in the window. why: NICs are asked."""
    ranks = known_ranks(window, DEFAULT, ("process",))
    newest, rows = ranks.nics, window.rows("nic")
    if not len(newest):
        return nothing_known(n_ranks, f"{why}, and tell nothing of their NICs")
    oldest = rows[latest(mix(rows["node"], rows["index"]), -rows["tick_ns"])]
    first = oldest[Index(mix(oldest["node"], oldest["index"])).find(mix(newest["node"], newest["index"]))]
    elapsed_ns = newest["tick_ns"] - first["tick_ns"]
    grew = newest["tx_bytes"].astype(np.float64) - first["tx_bytes"].astype(np.float64)
    is_told = (elapsed_ns >= NIC_SPAN_MIN_NS) & (grew >= 0)
    rate = np.where(is_told, grew / np.maximum(elapsed_ns, 1) * SECOND, np.nan)
    value, notes = np.full(n_ranks, np.nan), Notes(n_ranks, "never reported")
    within = ranks.rank < n_ranks
    rank, nic = ranks.rank[within], ranks.nic[within]
    value[rank] = np.where(nic >= 0, rate[nic], np.nan)
    notes.mark(rank, "")
    notes.mark(rank[nic < 0], "which NIC it uses is not known, or nothing came from it")
    notes.mark(rank[(nic >= 0) & np.isnan(value[rank])], "its NIC's counters were told only once, or began anew")
    if not np.isfinite(value).any():
        return nothing_known(n_ranks, f"{why}, and of no rank's NIC enough is told")
    users = np.bincount(nic[nic >= 0], minlength=len(newest))
    shared = " Ranks that use one NIC together all show what it sent." if (users > 1).any() else ""
    says = f"Bytes the NIC of each rank sent per second, by its counters: {why}.{shared}"
    return Values(value, notes.at, notes.texts, int(newest["tick_ns"].max()), says, full_min=WORTH_B_PER_S)


def against_usual(found: Values, before: Values) -> Values:
    """`found` on a scale that ends no lower than the median of what ranks sent before: in a hang all are pale."""
    known = before.value[np.isfinite(before.value)]
    usual = float(np.median(known)) if len(known) else 0.0
    if found.nothing or usual <= found.full_min:
        return found
    said = f" The darkest colour is at least {_rate_words(usual)}, what half of the ranks asked sent before the first symptom."
    return dataclasses.replace(found, full_min=usual, says=found.says + said)


def _rate_words(b_per_s: float) -> str:
    """ "4.31 MB/s"."""
    power = min(int(math.log10(max(b_per_s, 1)) // 3), len(PREFIXES) - 1)
    return f"{b_per_s / 1000**power:.3g} {PREFIXES[power]}B/s"
