"""The paper's way out: at window boundaries one rank gathers what all recorded, over a process group of its own.

    stage_gather.open_gather(stages)      # on every rank, once, after init_process_group

For clusters where only one rank's node has an agent. Nobody waits: the gather is started at the end of a window's last step
and asked after at the end of later ones. One that fails, or is not through when the next begins, is counted; the rank then
sends its own steps alone, marked, and training goes on (StageFrontier §5). What was gathered is put into the ring of the
gathering rank a little at a time. torch is looked up among what the program has already imported.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from nccl_instrument.stage_records import SideRecord, StepRecord
from nccl_instrument.stage_ring import (
    ROAD_GATHER,
    ROLE_CHARS_MAX,
    SIDE_SLOT,
    SLOT,
    SLOTS,
    SLOTS_MAX,
    STAGES_A_SLOT,
    STEP_SLOT,
    Ring,
    recorder_flags,
    said_of,
)
from nccl_instrument.stage_ring import open_road as open_ring
from nccl_instrument.stage_schema import Schema
from nccl_instrument.stages import Stages

WINDOW_STEPS: Final = 120
TIMEOUT_S: Final = 60.0
CLOSE_S: Final = 5.0
NEVER: Final = timedelta(days=30)
"""Of an NCCL group: PyTorch's watchdog ends the process when one of its collectives times out, and a rank that is late for a
gather because it evaluates is no reason to. Gathers that are late are counted by us."""
PENDING_MAX: Final = 4
"""Gathers under way at once; with more than that outstanding this rank gathers no more."""
PUT_MAX: Final = 512
"""Slots that the gathering rank puts into its ring at the end of one step: less than 2 ms."""
GATHER_FAILED, GATHERED = 8, 16  # bits of tables.stage.flags
_HEAD: Final = struct.Struct("<4sqiIqqI32sBI")
"""Magic, window, rank, slots, wall and monotonic clock read together, crc32 of what follows, role, flags of the recorder, bytes
of the schema. The slots follow, then the schema as compressed JSON."""
SCHEMA_BYTES: Final = 2048
_MAGIC: Final = b"DGG2"
CLOCK_NS_MAX: Final = 5_000_000_000
"""A rank whose wall clock differs by more from ours has a wrong one: all packed at the end of the same step, and that tells."""
SIDES_A_WINDOW: Final = 32


@dataclass
class _Pending:
    """A gather under way. packets: where the others' bytes arrive, on the gathering rank. own: this rank's slots. packed: wall
    and monotonic clock when it began."""

    window: int
    own: list[bytes]
    schema: Schema
    started: Any
    keep: Any
    packets: list[Any]
    packed: tuple[int, int]
    is_late: bool = False


class Carrier:
    """Starts gathers on CPU tensors (gloo). group: of all ranks. What it raises is a failed gather."""

    def __init__(self, torch: Any, group: Any, size: int, rank: int, n_ranks: int) -> None:
        self.torch, self.group, self.size, self.rank, self.n_ranks = torch, group, size, rank, n_ranks

    def start(self, packet: bytes) -> tuple[Any, Any, list[Any]]:
        """(what `is_done` is asked with, what has to be kept meanwhile, where the others' packets arrive)."""
        mine = self.torch.frombuffer(bytearray(packet.ljust(self.size, b"\0")), dtype=self.torch.uint8)
        into = [self.torch.empty_like(mine) for _ in range(self.n_ranks)] if self.rank == 0 else None
        work = self.torch.distributed.gather(mine, into, dst=0, group=self.group, async_op=True)
        return work, mine, into or []

    def is_done(self, started: Any) -> bool:
        """Whether it is through; raises what went wrong in it."""
        if not started.is_completed():
            return False
        if (error := started.exception()) is not None:
            raise RuntimeError("the gather failed") from error
        return True


class CudaCarrier(Carrier):
    """The same for NCCL: by way of the device, on a stream of its own, which nothing else waits for."""

    def __init__(self, torch: Any, group: Any, size: int, rank: int, n_ranks: int) -> None:
        super().__init__(torch, group, size, rank, n_ranks)
        self._stream = torch.cuda.Stream()

    def start(self, packet: bytes) -> tuple[Any, Any, list[Any]]:
        torch = self.torch
        mine = torch.frombuffer(bytearray(packet.ljust(self.size, b"\0")), dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(self._stream):
            sent = mine.to("cuda", non_blocking=True)
            into = [torch.empty_like(sent) for _ in range(self.n_ranks)] if self.rank == 0 else None
            work = torch.distributed.gather(sent, into, dst=0, group=self.group, async_op=True)
            work.wait()  # the stream waits, the host does not
            found = [torch.empty_like(mine, pin_memory=True) for _ in into or ()]
            for host, device in zip(found, into or (), strict=True):
                host.copy_(device, non_blocking=True)
            done = torch.cuda.Event()
            done.record(self._stream)
        return done, (mine, sent, into, work), found

    def is_done(self, started: Any) -> bool:
        return bool(started.query())


def open_gather(
    stages: Stages,
    folder: Path | None = None,
    *,
    steps: int = WINDOW_STEPS,
    backend: str = "gloo",
    timeout_s: float = TIMEOUT_S,
) -> Gather | None:
    """Gather the steps of all ranks on rank 0 every `steps` steps. Called by every rank; None where it cannot be had.

    Making the group, and agreeing on the size of a window, are the one thing that waits for the other ranks: call it where
    init_process_group is called. Refused on all ranks where `steps` differ.
    """
    try:
        torch: Any = sys.modules["torch"]
        dist = torch.distributed
        rank, n_ranks = dist.get_rank(), dist.get_world_size()
        timeout = NEVER if backend == "nccl" else timedelta(seconds=timeout_s)
        group = dist.new_group(backend=backend, timeout=timeout)
        room = _room_of_all(torch, group, steps, steps * _parts(stages.schema) + SIDES_A_WINDOW, backend)
        ring = open_ring(
            stages, folder, n_slots=min(SLOTS_MAX, max(SLOTS, 2 * room * n_ranks * (rank == 0))), road=ROAD_GATHER
        )
        kind = CudaCarrier if backend == "nccl" else Carrier
        carrier = kind(torch, group, _HEAD.size + room * SLOT.size + SCHEMA_BYTES, rank, n_ranks)
        gather = Gather(stages, carrier, ring, steps, room)
    except Exception:  # no torch, no process group, a backend that is not built in
        stages.counts.gathers_failed += 1
        return None
    stages.send_to(gather)
    return gather


def _room_of_all(torch: Any, group: Any, steps: int, room: int, backend: str) -> int:
    """The most slots of any rank, the same on all: buffers that differ in size end the process in a thread that nobody can
    catch. Raises ValueError, on every rank, where windows would not end at the same step."""
    of_each = torch.tensor([room, steps, -steps], dtype=torch.int64, device="cuda" if backend == "nccl" else "cpu")
    torch.distributed.all_reduce(of_each, op=torch.distributed.ReduceOp.MAX, group=group)
    most, longest, shortest = of_each.tolist()
    if longest != -shortest:
        raise ValueError("ranks gather after different numbers of steps")
    return int(most)


@dataclass
class Gather:
    """The sink. room: slots of one rank and window at most; what is beyond is dropped, counted."""

    stages: Stages
    carrier: Carrier
    ring: Ring | None
    steps: int
    room: int
    on_window: Callable[[int, int], None] | None = None
    is_off: bool = False
    _slots: list[bytes] = field(default_factory=list)
    _pending: deque[_Pending] = field(default_factory=deque)
    _to_put: deque[tuple[bytes, int]] = field(default_factory=deque)
    _members: dict[int, tuple[str, int]] = field(default_factory=dict)

    def step(self, record: StepRecord, schema: Schema) -> None:
        durations = record.durations_ns
        for at in range(0, len(durations), STAGES_A_SLOT):
            eight = durations[at : at + STAGES_A_SLOT]
            eight += (0,) * (STAGES_A_SLOT - len(eight))
            self._add(
                record.ended_ns, schema.schema_id, record.step, record.overlap_ns, *eight, self.carrier.rank,
                min(record.repeats, 65535), STEP_SLOT, at // STAGES_A_SLOT, record.flags | GATHERED,
            )  # fmt: skip
        if self.ring is not None:
            self.ring.knows(schema)

    def side(self, record: SideRecord, schema: Schema) -> None:
        value = (record.value_ns, 0, 0, 0, 0, 0, 0, 0)
        place = (self.carrier.rank, 0, SIDE_SLOT, record.channel, GATHERED)
        self._add(record.ended_ns, schema.schema_id, record.step, 0, *value, *place)

    def ended(self, step: int) -> None:
        """Ask after gathers under way; at the end of a window start its own, on every rank at the same step."""
        self._look()
        if (step + 1) % self.steps == 0:
            self._start((step + 1) // self.steps - 1)
        self._put()
        if self.ring is not None:
            self.ring.ended(step)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """The loop is over: wait so long at most for the gathers under way, and hand over what has come."""
        deadline = time.monotonic() + wait_s
        while True:
            self._look()
            while self._to_put:
                self._put()
            if not self._pending or time.monotonic() >= deadline:
                return
            time.sleep(0.01)

    def _add(self, *row: int) -> None:
        if len(self._slots) < self.room:
            self._slots.append(SLOT.pack(0, *row))
        else:
            self.stages.counts.dropped += 1

    def _start(self, window: int) -> None:
        own, self._slots = self._slots, []
        self.stages.counts.gathers += 1
        for late in self._pending:
            if not late.is_late:
                late.is_late = True
                self._fail(late.own)
        self.is_off |= len(self._pending) >= PENDING_MAX
        if self.is_off:
            self._fail(own)
            return
        said = _packed(self.stages.schema)
        raw = b"".join(own) + said
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        who = self.stages.role.encode("ascii", "replace")[:ROLE_CHARS_MAX], recorder_flags(self.stages)
        clocks = wall_ns, mono_ns, zlib.crc32(raw)
        packet = _HEAD.pack(_MAGIC, window, self.carrier.rank, len(own), *clocks, *who, len(said)) + raw
        try:
            started = self.carrier.start(packet)
            self._pending.append(_Pending(window, own, self.stages.schema, *started, (wall_ns, mono_ns)))
        except Exception:
            self.is_off = True  # the group is broken: the others' gathers fail or come late
            self._fail(own)

    def _look(self) -> None:
        while self._pending:
            first = self._pending[0]
            try:
                if not self.carrier.is_done(first.started):
                    return
            except Exception:
                self.is_off = True
                if not first.is_late:
                    self._fail(first.own)
                self._pending.popleft()
                continue
            self._pending.popleft()
            if not first.is_late:
                self._arrived(first)

    def _arrived(self, pending: _Pending) -> None:
        """On the gathering rank: all packets or none, so that nobody is taken for absent who was only garbled."""
        if not pending.packets:
            return
        found = [_opened(_bytes_of(packet), pending.window) for packet in pending.packets]
        if any(one is None for one in found):
            self._fail(pending.own)
            return
        for one in found:
            assert one is not None
            self._to_put.extend((slot, later_ns(one, *pending.packed)) for slot in one.slots)
            if self.ring is not None and one.schema is not None:
                self.ring.knows(one.schema)
        self._tell_members([one for one in found if one is not None])
        if self.on_window is not None:
            self.on_window(pending.window, len(found))

    def _tell_members(self, packets: list[Packet]) -> None:
        """What part each rank plays and what its recorder says of itself; the ring's own declaration holds ours."""
        said = {one.rank: (one.role, one.flags) for one in packets if (one.role or one.flags) and one.rank}
        if said != self._members:
            self._members = said
            if self.ring is not None:
                self.ring.brings(said)

    def _fail(self, own: list[bytes]) -> None:
        """What we know ourselves is sent all the same, marked."""
        self.stages.counts.gathers_failed += 1
        for slot in own:
            *rest, flags = SLOT.unpack(slot)
            self._to_put.append((SLOT.pack(*rest, flags & ~GATHERED | GATHER_FAILED), 0))

    def _put(self) -> None:
        for _ in range(min(PUT_MAX, len(self._to_put))):
            slot, later_ns = self._to_put.popleft()
            if self.ring is not None:
                self.ring.put(slot, later_ns)


def _parts(schema: Schema) -> int:
    return -(-len(schema.stages) // STAGES_A_SLOT)


def _bytes_of(packet: Any) -> bytes:
    return ctypes.string_at(packet.data_ptr(), packet.numel())


@dataclass(frozen=True)
class Packet:
    """What a rank sent: its slots, when it packed them by its own two clocks, the part it plays, flags of its recorder."""

    rank: int
    slots: list[bytes]
    wall_ns: int
    mono_ns: int
    role: str
    flags: int
    schema: Schema | None


def later_ns(packet: Packet, wall_ns: int, mono_ns: int) -> int:
    """What its monotonic times have to be made later by to be ours; our own two clocks when we packed the same window."""
    if abs(packet.wall_ns - wall_ns) <= CLOCK_NS_MAX:
        return (packet.wall_ns - packet.mono_ns) - (wall_ns - mono_ns)
    return mono_ns - packet.mono_ns


def _opened(raw: bytes, window: int) -> Packet | None:
    """None when it is not what was asked for."""
    magic, of, rank, n, wall_ns, mono_ns, check, role, flags, n_said = _HEAD.unpack_from(raw)
    whole = raw[_HEAD.size : _HEAD.size + n * SLOT.size + n_said]
    if magic != _MAGIC or of != window or len(whole) != n * SLOT.size + n_said or zlib.crc32(whole) != check:
        return None
    each = [whole[at : at + SLOT.size] for at in range(0, n * SLOT.size, SLOT.size)]
    who = role.rstrip(b"\0").decode("ascii", "replace"), flags
    return Packet(rank, each, wall_ns, mono_ns, *who, _schema_in(whole[n * SLOT.size :]))


def _packed(schema: Schema) -> bytes:
    """b"" for one that takes too much room: its steps arrive, of stages that nobody knows."""
    said = zlib.compress(json.dumps(said_of(schema), separators=(",", ":")).encode())
    return said if len(said) <= SCHEMA_BYTES else b""


def _schema_in(said: bytes) -> Schema | None:
    try:
        of = json.loads(zlib.decompress(said))
        parents = tuple((str(part), str(parent)) for part, parent in of["parents"])
        return Schema(tuple(of["stages"]), of["micro_steps"], parents, tuple(of["sides"]), of["version"])
    except Exception:  # none was told
        return None
