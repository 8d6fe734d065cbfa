"""`python -m nccl_instrument.verbs FILE…`: what each queue pair was handed and what came back, errors first.

Exit status: 0 printed, 1 a queue pair has errors, 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from nccl_instrument.command_line import run
from nccl_instrument.verbs.reading import BadVerbsFile, Block, blocks, peer

SHOWN_MAX = 40


def lines_of(path: Path) -> tuple[list[str], int]:
    """What to print of a file, and how many completions failed."""
    newest: dict[int, Block] = {int(one.head["device"]): one for one in blocks(path)}
    lines = [] if newest else [f"{path.name}: nothing yet"]
    n_errors = 0
    for block in newest.values():
        head, rows = block.head, block.queue_pairs
        rows = rows[np.lexsort((-rows["bytes"].astype(np.int64), -rows["errors"].astype(np.int64)))]
        n_errors += int(rows["errors"].sum())
        lines.append(
            f"{path.name}: {head['name'].decode(errors='replace')}, {len(rows):,} queue pairs; "
            f"lost {head['lost_bytes']:,} bytes, {head['blocks_lost']:,} blocks, {head['qps_refused']:,} look-ups refused"
        )
        lines += [_line(row) for row in rows[:SHOWN_MAX]]
        lines += [f"  and {len(rows) - SHOWN_MAX:,} more"] if len(rows) > SHOWN_MAX else []
    return lines, n_errors


def _line(row: np.void) -> str:
    text = (
        f"  0x{row['qpn']:06x} → {peer(row) or 'not connected'} 0x{row['dest_qpn']:06x}: {row['bytes']:,} bytes in "
        f"{row['work_requests']:,} requests, {row['completions']:,} completed, {row['received']:,} received"
    )
    if row["refused"]:
        text += f", {row['refused']:,} posts refused"
    if row["errors"]:
        text += f"; {row['errors']:,} FAILED (status {row['last_status']}, vendor {row['last_vendor_err']:#x})"
        text += f", {row['flushed']:,} flushed"
    return text


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nccl_instrument.verbs", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="diogenes-verbs.UID.PID.START")
    n_errors = 0
    for path in parser.parse_args(arguments).files:
        try:
            lines, n = lines_of(path)
        except (BadVerbsFile, OSError) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 2
        n_errors += n
        print("\n".join(lines))
    return 1 if n_errors else 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
