"""What a reduced capture says, for a terminal: rates, peers, gaps, what was refused, and what cannot be known."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import TRAFFIC_FINISHED

SHOWN_MAX: Final = 20
NO_OPS: Final = (
    "A capture has no ops: these are rates, peers and gaps. Which op the bytes belong to cannot be told without an op source,\n"
    "the profiler plugin on the ranks."
)
NO_MATCH: Final = "The traces name no op of this capture's flows: which op the bytes belong to cannot be told."
REFUSED: Final = {
    "packets_cut_short": "packets were captured too short to show a RoCE header (capture 128 bytes of each at least)",
    "packets_cut_off": "packet records end with their file",
    "packets_without_time": "packets have no time that can be",
    "packets_of_unknown_interfaces": "packets name an interface that the capture does not describe",
    "packets_of_unknown_links": "packets are of a link type that is not read (Ethernet, Linux cooked and raw IP are)",
    "packets_of_unknown_opcode": "packets to port 4791 have an opcode that RoCE has not got",
    "packets_of_wrong_length": "packets have lengths that contradict each other",
    "packets_of_refused_flows": "packets are of flows beyond the limit (--flows)",
    "bytes_of_refused_flows": "bytes were in them",
    "epochs_unread": "epochs are beyond those in which ops are looked for: ops of later bytes are not told",
    "epochs_refused": "epochs are beyond the limit (--epochs): in the flows' totals, not in the file",
}


def report(
    flows: npt.NDArray[np.void],
    counts: Counter[str],
    epoch_ns: int,
    gap_ns: int,
    traffic: npt.NDArray[np.void] | None = None,
) -> str:
    """flows: as saved. traffic: what the traces made of it, None without any."""
    with_bytes = flows[flows["bytes"] > 0]
    ordered = with_bytes[np.argsort(-with_bytes["bytes"], kind="stable")]
    lines = [
        f"{counts['packets']:,} packets, {counts['packets_roce']:,} of RoCEv2; {len(flows):,} flows, "
        f"{len(with_bytes):,} with payload; {counts['epochs']:,} epochs of {epoch_ns / 1000:g} µs."
    ]
    if len(ordered):
        lines += ["", *_flow_lines(ordered, epoch_ns, gap_ns), "", *_peer_lines(ordered)]
    lines += [f"Not counted: {counts[name]:,} {words}." for name, words in REFUSED.items() if counts[name]]
    if n := int(flows["disordered"].sum()):
        lines.append(
            f"The capture goes back in time {n:,} times: some epochs are in the file twice, and are to be added."
        )
    return "\n".join([*lines, "", *([NO_OPS] if traffic is None else op_lines(traffic, counts))])


def op_lines(traffic: npt.NDArray[np.void], counts: Counter[str]) -> list[str]:
    """Ops by flow, those with most bytes first."""
    refused = counts["traces_refused"]
    lines = [f"{refused:,} trace files could not be read."] if refused else []
    told = traffic[traffic["op"] >= 0]
    if not len(told):
        return [*lines, NO_MATCH]
    keys = ["comm_id", "comm_rank", "peer", "channel"]
    _, first, of = np.unique(told[keys], return_index=True, return_inverse=True)
    lines.append(f"{len(np.unique(told[['comm_id', 'comm_rank', 'op']])):,} ops told from traces, by flow:")
    order = np.argsort(-np.bincount(of.ravel(), told["n_bytes"]), kind="stable")
    for which in order[:SHOWN_MAX].tolist():
        mine, row = told[of.ravel() == which], told[first[which]]
        finished = mine[mine["flags"] & TRAFFIC_FINISHED != 0]
        ms = f"{np.median(finished['actual_ns']) / 1e6:.3f} ms with bytes" if len(finished) else "none finished"
        n_open = f", {len(mine) - len(finished)} not finished" if len(mine) > len(finished) else ""
        lines.append(
            f"  {int(row['comm_id']):#x} rank {row['comm_rank']} → {row['peer']} channel {row['channel']}: {len(mine):,} ops"
            f"{n_open}, {int(mine['n_bytes'].sum()):,} bytes; median {ms}"
        )
    return [*lines, f"and {len(order) - SHOWN_MAX:,} more flows"] if len(order) > SHOWN_MAX else lines


def _flow_lines(ordered: npt.NDArray[np.void], epoch_ns: int, gap_ns: int) -> list[str]:
    """While sending: over epochs with bytes alone."""
    gap = f"gaps ≥ {gap_ns / 1e6:g} ms"
    lines = [
        f"{'flow':<44} {'bytes':>16} {'while sending':>14} {'in all':>10} {'peak':>10} {gap:>15} {'longest':>11} "
        f"{'left out':>9} {'again':>7} {'marked':>7} {'CNPs':>6}"
    ]
    for row in ordered[:SHOWN_MAX]:
        all_ns = int(row["last_epoch"] - row["first_epoch"] + 1) * epoch_ns
        lines.append(
            f"{_named(row):<44} {row['bytes']:>16,} {_rate(row['bytes'], row['epochs'] * epoch_ns):>14} "
            f"{_rate(row['bytes'], all_ns):>10} {_rate(row['peak_bytes'], epoch_ns):>10} {row['gaps']:>15,} "
            f"{row['longest_gap_epochs'] * epoch_ns / 1e6:>8,.2f} ms {row['skipped']:>9,} {row['repeated']:>7,} "
            f"{row['marked']:>7,} {row['cnps']:>6,}"
        )
    if len(ordered) > SHOWN_MAX:
        lines.append(f"and {len(ordered) - SHOWN_MAX:,} more in the file")
    return [*lines, "Rates in Gbit/s of payload; left out, again: packet numbers."]


def _named(row: np.void) -> str:
    return f"{row['source'].decode()} → {row['destination'].decode()} 0x{row['qpn']:06x}"


def _rate(n_bytes: float, ns: float) -> str:
    return f"{n_bytes * 8 / ns:,.2f}" if ns else "–"


def _peer_lines(ordered: npt.NDArray[np.void]) -> list[str]:
    """Who sends to whom, most bytes first."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for source, destination, n_bytes in zip(ordered["source"], ordered["destination"], ordered["bytes"], strict=True):
        pair = found[source.decode(), destination.decode()]
        pair[0] += 1
        pair[1] += int(n_bytes)
    pairs = sorted(found.items(), key=lambda one: -one[1][1])
    lines = [f"{a} sends to {b}: {n:,} bytes on {flows:,} queue pairs" for (a, b), (flows, n) in pairs[:SHOWN_MAX]]
    return [*lines, f"and {len(pairs) - SHOWN_MAX:,} more pairs"] if len(pairs) > SHOWN_MAX else lines
