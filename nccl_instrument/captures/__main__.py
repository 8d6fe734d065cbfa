"""`python -m nccl_instrument.captures FILE…`: RoCEv2 captures (pcap, pcapng) → bytes per queue pair and epoch.

Several files are one capture, in the order given; - is standard input. Writes an .npz and prints rates, peers and gaps.
Exit status: 0 written, 1 no RoCEv2 in it (written all the same), 2 it cannot be read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nccl_instrument.captures.epochs import CELLS_MAX, EPOCH_NS, FLOWS_MAX, GAP_NS, Cells, Reducer
from nccl_instrument.captures.files import CaptureError, Input
from nccl_instrument.captures.ops import named_flows, read_traces, traffic_of
from nccl_instrument.captures.packets import packets_of
from nccl_instrument.captures.reader import batches
from nccl_instrument.captures.report import report
from nccl_instrument.captures.written import EpochFile, saved_flows
from nccl_instrument.command_line import run
from nccl_instrument.flows.segmentation import DELTA_NS
from nccl_instrument.tables import TRAFFIC_INCOMPLETE

TERMINAL_NS, LOG_NS = 200_000_000, 10_000_000_000


class Progress:
    """Says on standard error how far it is: often on a terminal, seldom in a log."""

    def __init__(self, files: list[str]) -> None:
        self._total = sum(os.path.getsize(name) for name in files) if all(map(os.path.isfile, files)) else 0
        self._is_terminal = sys.stderr.isatty()
        self._next_ns = time.monotonic_ns() + (TERMINAL_NS if self._is_terminal else LOG_NS)

    def say(self, n_bytes: int, n_packets: int) -> None:
        now_ns = time.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + (TERMINAL_NS if self._is_terminal else LOG_NS)
        share = f"{100 * n_bytes / self._total:.0f} %, " if self._total else ""
        line = f"{share}{n_bytes / 1e6:,.0f} MB, {n_packets:,} packets"
        print(
            f"\r{line:<60}" if self._is_terminal else line,
            end="" if self._is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def done(self) -> None:
        if self._is_terminal:
            print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)


def reduce_files(files: list[str], reducer: Reducer, progress: Progress) -> Counter[str]:
    """Feed all packets to the reducer; what was seen and refused. CaptureError names the file."""
    counts, before = reducer.counts, 0
    for name in files:
        with _opened(name) as stream:
            source = Input(stream, counts)
            try:
                for batch in batches(source):
                    reducer.add(packets_of(batch, counts))
                    progress.say(before + source.at + source.used, counts["packets"])
            except CaptureError as error:
                raise CaptureError(f"{name}: {error}") from None
            before += source.at + source.used
    reducer.finish()
    return counts


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with open(name, "rb") as stream:
        yield stream


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nccl_instrument.captures", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="pcap or pcapng; - for standard input")
    parser.add_argument("--out", type=Path, help="where to write (default: the first file's name with .epochs.npz)")
    parser.add_argument("--epoch-us", type=_epoch_us, default=EPOCH_NS // 1000, help="8 to 1000 (default %(default)s)")
    parser.add_argument(
        "--gap-ms", type=_gap_ms, default=GAP_NS / 1e6, help="shortest silence that counts (default %(default)s)"
    )
    parser.add_argument("--flows", type=_limit, default=FLOWS_MAX, help="at most so many (default %(default)s)")
    parser.add_argument(
        "--epochs", type=_limit, default=CELLS_MAX, help="at most so many, 24 bytes each (default %(default)s)"
    )
    parser.add_argument("--traces", type=Path, help="folder of the ranks' segments and verbs files: tells ops apart")
    parser.add_argument("--json", action="store_true", help="print counts as JSON instead")
    return parser


def _epoch_us(text: str) -> int:
    return int(_number(text, 8, 1000))


def _gap_ms(text: str) -> float:
    return _number(text, 0.001, 1e9)


def _limit(text: str) -> int:
    return int(_number(text, 1, 2**32 - 1))


def _number(text: str, least: float, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise argparse.ArgumentTypeError(f"{text} is no number from {least:g} to {most:g}")
    return found


def _told(flows: Cells, written: EpochFile, folder: Path, counts: Counter[str], epoch_ns: int) -> Cells:
    """Rows of `traffic` by the traces in this folder."""
    traces = read_traces(folder)
    counts.update(traces.counts)
    named, begun = named_flows(flows, traces), flows["first_epoch"][flows["bytes"] > 0]
    began_ns = int(begun.min()) * epoch_ns if len(begun) else 0
    cells = written.cells_of(named)
    rows = traffic_of(cells, named, traces, epoch_ns, began_ns)
    counts["epochs_unread"] = written.n_unread
    if written.n_unread:  # ops that were under way where reading ended are not told whole
        rows["flags"][rows["end_ns"] >= int(cells["epoch"].max()) * epoch_ns - DELTA_NS] |= TRAFFIC_INCOMPLETE
    return rows


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    first = "capture" if chosen.files[0] == "-" else chosen.files[0]
    out = chosen.out or Path(f"{first}.epochs.npz")
    epoch_ns, gap_ns = chosen.epoch_us * 1000, int(chosen.gap_ms * 1e6)
    progress = Progress(chosen.files)
    try:
        with EpochFile(out) as written:
            reducer = Reducer(written.take, epoch_ns, gap_ns, chosen.flows, chosen.epochs)
            counts = reduce_files(chosen.files, reducer, progress)
            facts = {"epoch_ns": epoch_ns, "gap_ns": gap_ns, "files": chosen.files, "counts": dict(counts)}
            flows = saved_flows(reducer.flows)
            traffic = _told(flows, written, chosen.traces, counts, epoch_ns) if chosen.traces else None
            facts["counts"] = dict(counts)
            written.save(reducer.flows, facts, traffic)
    except (CaptureError, OSError) as error:
        progress.done()
        print(error, file=sys.stderr)
        return 2
    progress.done()
    print(
        json.dumps(facts) if chosen.json else f"{report(flows, counts, epoch_ns, gap_ns, traffic)}\nWritten to {out}."
    )
    return 0 if counts["packets_roce"] else 1


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
