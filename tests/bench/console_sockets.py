"""Two hundred people who look at an incident: real live sockets, which note when they hear of what somebody did.

They follow what a page follows: the team, the incident, its grid. All run on one event loop in a process of their own
(`python -m tests.bench.console_sockets`), so that the one that acts is not held up by those that listen. They say READY, and
at the end of their input how late each timeline entry came, in ms after it was written, and how long frames were.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

AT_ONCE = 20
SILENT_S = 60


@dataclass
class Heard:
    """late_ms: of every timeline entry on every socket. n_bytes: of frames by kind, beside how many there were."""

    late_ms: list[float] = field(default_factory=list)
    entries: set[int] = field(default_factory=set)
    n_frames: Counter[str] = field(default_factory=Counter)
    n_bytes: Counter[str] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)


async def follow(socket: ClientConnection, heard: Heard) -> None:
    try:
        async for said in socket:
            note(said, time.time(), heard)
    except ConnectionClosed as error:
        heard.ended.append(str(error))


def note(said: str | bytes, at: float, heard: Heard) -> None:
    frame: dict[str, Any] = {"type": "grid"} if isinstance(said, bytes) else json.loads(said)
    kind = frame.get("type") or next(iter(frame))
    heard.n_frames[kind] += 1
    heard.n_bytes[kind] += len(said)
    if kind == "timeline.appended" and frame["row"]["actor_kind"] in ("user", "api"):
        heard.entries.add(frame["row"]["id"])
        heard.late_ms.append((at - datetime.fromisoformat(frame["row"]["at"]).timestamp()) * 1e3)


async def open_one(url: str, cookie: str, streams: list[dict[str, Any]], few: asyncio.Semaphore) -> ClientConnection:
    async with few:
        origin = url.replace("ws://", "http://").removesuffix("/ws/v1/")
        socket = await connect(url, additional_headers={"Cookie": cookie}, origin=origin, open_timeout=60)  # type: ignore[arg-type]
        for stream in streams:
            await socket.send(json.dumps({"subscribe": stream["name"], **{k: stream[k] for k in ("epoch", "offset")}}))
        return socket


async def main(url: str, cookie: str, n: int, streams: list[dict[str, Any]]) -> None:
    few, heard = asyncio.Semaphore(AT_ONCE), Heard()
    sockets = await asyncio.gather(*(open_one(url, cookie, streams, few) for _ in range(n)))
    following = [asyncio.create_task(follow(socket, heard)) for socket in sockets]
    print("READY", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for socket in sockets:
        await socket.close()
    await asyncio.gather(*following, return_exceptions=True)
    kinds = {kind: {"n": heard.n_frames[kind], "bytes": heard.n_bytes[kind]} for kind in heard.n_frames}
    print(json.dumps({"late_ms": heard.late_ms, "n_entries": len(heard.entries), "kinds": kinds, "ended": heard.ended}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
