"""Stores the batches of a job through ingest's own application, in a process of its own, which rca.py starts.

The application is called the way a server calls it, without a socket; each batch arrives when the simulation says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ingest.asgi import Application  # sets Django up for what follows
from tests.bench.rca_jobs import SECOND, batches, make_case
from tests.ingest.conftest import Ingest, make_ingest

AT_ONCE = 64


class Doors:
    """The application with a token, and the clock that it goes by."""

    def __init__(self) -> None:
        self.application = Application()
        self.ingest: Ingest

    async def open(self) -> None:
        self.ingest = await make_ingest(self.application, "bench")
        self.ingest.clock_ns = time.time_ns()
        time.time_ns = lambda: self.ingest.clock_ns

    async def store(self, arriving: Iterable[tuple[int, bytes]]) -> int:
        """Send (arrival, batch) one after the other, AT_ONCE under way at a time; how many."""
        n, waiting = 0, iter(arriving)
        while handful := list(itertools.islice(waiting, AT_ONCE)):
            self.ingest.clock_ns = max(at_ns for at_ns, _ in handful)
            replies = await asyncio.gather(*(self.ingest.post(encoded) for _, encoded in handful))
            refused = [reply.body for reply in replies if reply.status != 200]
            if refused:
                raise SystemExit(f"ingest refused a batch: {refused[0]}")
            n += len(handful)
        await self.ingest.write_ledger()
        return n


async def main(gpus: int, kind: str, is_one_part: bool) -> None:
    case, doors = make_case(gpus, kind), Doors()
    case = replace(case, n_parts=1) if is_one_part else case
    began = time.monotonic()
    origin_ns = 0

    def arriving() -> Iterator[tuple[int, bytes]]:
        nonlocal origin_ns
        for sent in batches(case):
            origin_ns = origin_ns or sent.arrives_ns
            yield sent.arrives_ns, sent.encoded

    await doors.open()
    n = await doors.store(arriving())
    await doors.application.stop()
    said = {"batches": n, "onset_ns": origin_ns + int(case.at_s * SECOND), "usual_s": case.usual_s}
    print(json.dumps({**said, "stored_s": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], is_one_part=len(sys.argv) > 3))
