"""A process that writes a segment as the plugin would: the agent's tests need states that no plugin reaches on demand.

Run as a program it creates the file, takes the record lock and then executes lines from stdin, answering each with a
line. What it writes follows segment_layout.py's dtypes, which a test of the plugin compares with record.h.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from nccl_instrument.agent.processes import segment_layout as segment

N_ROWS = {"comm": 256, "opstate": 4096, "op": 4096, "flwstate": 32768, "flow": 32768, "ring": 32768, "transfer": 65536}
DTYPES = {
    "comm": segment.COMM,
    "opstate": np.dtype("u4"),
    "op": segment.OP,
    "flwstate": np.dtype("u4"),
    "flow": segment.FLOW,
    "ring": segment.OP,
    "transfer": segment.TRANSFER,
}


class SegmentWriter:
    """The writing side of one segment, in the process that makes it."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        self.path = folder / f"diogenes.{os.geteuid()}.{os.getpid()}.{started}"
        sizes = {name: DTYPES[name].itemsize * n_rows for name, n_rows in N_ROWS.items()}
        total = segment.HEADER_BYTES + sum(sizes.values())
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(self._file, 0, total)
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1)
        raw = np.frombuffer(mmap.mmap(self._file, total), np.uint8)
        self.header = raw[: segment.HEADER.itemsize].view(segment.HEADER)
        self.tables: dict[str, Any] = {}
        at = segment.HEADER_BYTES
        for number, (name, size) in enumerate(sizes.items()):
            self.tables[name] = raw[at : at + size].view(DTYPES[name])
            self.header["sections"][0][number] = (name.encode(), at, DTYPES[name].itemsize, N_ROWS[name], 0)
            at += size
        self._random = np.random.default_rng(os.getpid())  # real times do not compress
        self._fill_header(total, int(started), identity)

    def _fill_header(self, total: int, started: int, identity: dict[str, Any]) -> None:
        fields = {
            "byte_order": segment.BYTE_ORDER, "major": segment.MAJOR, "header_bytes": segment.HEADER_BYTES,
            "n_sections": len(N_ROWS), "segment_bytes": total, "pid": os.getpid(), "uid": os.geteuid(),
            "starttime": started, "wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns(), "library_version": 22803,
            "abi": 5, "n_counters": len(segment.COUNTERS), "closed": 1,
        }  # fmt: skip
        for name, value in fields.items():
            self.header[name] = value
        row = self.header["identity"][0]
        for name in (
            "global_rank",
            "world_size",
            "local_rank",
            "local_world_size",
            "restart_count",
            "tp",
            "pp",
            "dp",
            "ep",
        ):
            row[name] = -1
        for name, value in identity.items():
            row[name] = value.encode() if isinstance(value, str) else value
        self.header["magic"] = np.void(segment.MAGIC)

    def comm(self, slot: int, comm_id: int, comm_rank: int, n_ranks: int) -> None:
        row = self.tables["comm"][slot]
        row["comm_id"], row["comm_rank"], row["n_ranks"], row["n_nodes"] = comm_id, comm_rank, n_ranks, 2
        row["transport"], row["abi"], row["joined_ns"], row["name"] = 1, 5, time.monotonic_ns(), b"world"
        row["stamp"] = (int(row["stamp"] >> 8) + 1) << 8 | segment.ROW_LIVE
        self.header["closed"] = 0

    def start_op(self, slot: int, comm: int, op: int, n_flows: int = 2, total_chunks: int = 8) -> None:
        """Enqueue op number `op` on communicator row `comm`, with flows alternating in direction."""
        owner = self.tables["comm"][comm]
        now = time.monotonic_ns()
        row = self.tables["op"][slot]
        row["comm_id"], row["comm_rank"], row["comm"] = owner["comm_id"], owner["comm_rank"], comm
        row["op"], row["seq"], row["func"], row["dtype"], row["algo"], row["proto"] = op, op - 1, 5, 7, 2, 3
        row["channels"], row["n_flows"], row["peer"], row["slowest_peer"] = 2, n_flows, -1, -1
        row["flags"], row["count"], row["bytes"] = 16, 1 << 20, 1 << 21
        row["enqueued_ns"], row["started_ns"], row["done_ns"] = now, now + 1000, 0
        owner["n_enqueued"], owner["last_enqueued_ns"] = op, now
        self.header["last_callback_ns"] = now
        for number in range(n_flows):
            self._start_flow(slot * n_flows + number, row, number, total_chunks, now)
        self.tables["opstate"][slot] = self._next_state("opstate", slot)

    def _start_flow(self, at: int, op: Any, number: int, total_chunks: int, now: int) -> None:
        flow = self.tables["flow"][at]
        for name in ("comm_id", "comm_rank", "comm", "op", "func"):
            flow[name] = op[name]
        flow["channel"], flow["direction"], flow["transport"] = number // 2, number % 2, 1
        flow["peer"] = op["comm_rank"] + 1 - 2 * (number % 2)
        flow["total_chunks"], flow["counters"], flow["bytes"] = total_chunks, 0, 0
        flow["queued_ns"], flow["started_ns"], flow["last_progress_ns"] = now, 0, 0
        self.tables["flwstate"][at] = self._next_state("flwstate", at)

    def _next_state(self, table: str, slot: int) -> int:
        return (int(self.tables[table][slot] >> 8) + 1) % 2**24 << 8 | segment.ROW_LIVE

    def move(self, slot: int, n_flows: int = 2, chunks: int = 1) -> None:
        """Every flow of the op in `slot` passes `chunks` more chunks through all its stages."""
        rows = self.tables["flow"][slot * n_flows : (slot + 1) * n_flows]
        self._send(rows[::2], chunks)
        rows["counters"] = np.minimum(rows["counters"] + chunks, rows["total_chunks"][:, None])
        rows["bytes"] = rows["counters"][:, 3] * (1 << 16)
        rows["last_progress_ns"] = time.monotonic_ns() - self._random.integers(0, 10**6, n_flows)
        rows["started_ns"] = np.where(rows["started_ns"] > 0, rows["started_ns"], rows["last_progress_ns"])
        for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
            rows[name] += self._random.integers(0, 10**6, n_flows, np.uint64)

    def _send(self, flows: Any, chunks: int) -> None:
        """The next chunks of flows that send (every second one), each under way for a third of the time since the last."""
        now = time.monotonic_ns()
        for _ in range(min(chunks, int(flows["total_chunks"][0] - flows["counters"][0, 3]))):
            head = int(self.header["transfer_head"][0])
            numbers = np.arange(head, head + len(flows))
            rows = np.zeros(len(flows), segment.TRANSFER)
            for name in ("comm_id", "op", "comm_rank", "peer", "channel"):
                rows[name] = flows[name]
            rows["step"], rows["bytes"], rows["stamp"] = flows["counters"][:, 3], 1 << 16, 2 * (numbers + 1)
            rows["done_ns"] = now - self._random.integers(0, 10**6, len(flows))
            rows["posted_ns"] = rows["done_ns"] - 6_000_000
            self.tables["transfer"][numbers % N_ROWS["transfer"]] = rows
            self.header["transfer_head"] = head + len(flows)

    def finish_op(self, slot: int, n_flows: int = 2) -> None:
        """Complete the op in `slot`: its flows and its row go, a completion record appears."""
        for at in range(slot * n_flows, (slot + 1) * n_flows):
            self.tables["flwstate"][at] = self.tables["flwstate"][at] & ~np.uint32(0xFF)
        row = self.tables["op"][slot].copy()
        row["done_ns"] = row["last_transfer_ns"] = time.monotonic_ns()
        row["first_transfer_ns"] = row["started_ns"]
        head = int(self.header["ring_head"][0])
        row["stamp"] = 2 * (head + 1)
        self.header["ring_head"] = head + 1
        self.tables["ring"][head % N_ROWS["ring"]] = row
        self.tables["opstate"][slot] = self.tables["opstate"][slot] & ~np.uint32(0xFF)
        comm = self.tables["comm"][int(row["comm"])]
        comm["n_done"], comm["last_done_ns"], comm["network_seen"] = comm["n_done"] + 1, row["done_ns"], 1
        self.header["last_callback_ns"] = row["done_ns"]

    def count(self, name: str, value: int) -> None:
        self.header["counters"][0][segment.COUNTERS.index(name)] = value

    def overwrite_ring(self, n_lost: int) -> None:
        """Completion records pass faster than anybody can read: all of the ring, and `n_lost` before it."""
        head = int(self.header["ring_head"][0]) + n_lost + N_ROWS["ring"]
        numbers = np.arange(head - N_ROWS["ring"], head)
        row = self.tables["op"][0].copy()
        row["comm_id"], row["seq"], row["slowest_peer"] = self.tables["comm"][0]["comm_id"], -1, -1
        self.tables["ring"][numbers % N_ROWS["ring"]] = row
        self.tables["ring"]["stamp"][numbers % N_ROWS["ring"]] = 2 * (numbers + 1)
        self.header["ring_head"] = head

    def backdate(self, seconds: int) -> None:
        """The segment was made, and last written, `seconds` ago."""
        self.header["mono_ns"] -= seconds * 10**9
        self.header["wall_ns"] -= seconds * 10**9
        self.header["last_callback_ns"] = 0

    def go_mad(self) -> None:
        """Memory was overwritten: the ring's head is nowhere."""
        self.header["ring_head"] = 2**64 - 1

    def finalize(self) -> None:
        """Every communicator is finalized."""
        live = (self.tables["comm"]["stamp"] & 0xFF) == segment.ROW_LIVE
        self.tables["comm"]["finalized_ns"][live] = time.monotonic_ns()
        self.tables["comm"]["stamp"][live] += segment.ROW_DONE - segment.ROW_LIVE
        self.header["closed"] = 1

    def run(self, seconds: float, n_flows: int, period_s: float = 0.01) -> None:
        """Ops without a pause for `seconds`: each moves a chunk per period and takes its total of chunks."""
        op, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            op += 1
            self.start_op(0, 0, op, n_flows, total_chunks=20)
            for _ in range(20):
                time.sleep(period_s)
                self.move(0, n_flows)
            self.finish_op(0, n_flows)


class ScriptedTrainer:
    """A SegmentWriter in a child process; `do("start_op", 0, 0, 1)` calls its method there and waits."""

    def __init__(self, folder: Path, job: str = "job", rank: int = 0, code: str = "", **identity: Any) -> None:
        """code: a program that calls `main` itself."""
        folder.mkdir(parents=True, exist_ok=True)
        who = {"job": job, "global_rank": rank, "world_size": 2, **identity}
        program = ["-c", code] if code else ["-m", __spec__.name]
        command = [sys.executable, *program, str(folder), json.dumps(who)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.path = Path(self._answer())

    def do(self, method: str, *arguments: Any) -> None:
        self.tell(method, *arguments)
        self._answer()

    def tell(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, arguments]) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: no destructor, no finalize."""
        self.process.kill()
        self._close()

    def exit(self) -> None:
        """Finalize, then end."""
        self.do("finalize")
        self.process.kill()
        self._close()

    def _close(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the scripted trainer has died"
        return line


def main() -> None:
    writer = SegmentWriter(Path(sys.argv[1]), json.loads(sys.argv[2]))
    print(writer.path, flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        getattr(writer, method)(*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()
