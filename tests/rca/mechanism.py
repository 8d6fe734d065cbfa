"""A small model of a job's communication, stepped until it stands still: what the windows of tests/windows.py are cut from.

It follows NCCL's proxy loops (posted, ready, transmitted, done; posted, received, flushed, consumed), its credits and
its eight buffers, three GPU streams per rank and a main thread that runs ahead within a step. A fault acts on the
mechanism (a path is cut, a thread stops) and the counters are whatever results, so that no test knows the shape of an
answer beforehand. One round is a millisecond.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

COMPUTE, DP, PP = range(3)
DEPTH = 4
SLICES = 2
LOOPS = 2
CHANNELS = 2
CLEAR = 10_000


@dataclass
class Comm:
    comm_id: int
    name: str
    members: list[int]
    stream: int
    entered: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    p2p_entered: dict[int, int] = field(default_factory=dict)
    p2p_done: dict[int, int] = field(default_factory=dict)
    last_enqueued: dict[int, int] = field(default_factory=dict)
    last_done: dict[int, int] = field(default_factory=dict)


@dataclass
class Flow:
    """One op's part of a connection; both ends' counters and the truth between them."""

    comm: Comm
    func: str
    op: int
    channel: int
    source: int
    target: int
    total: int
    is_local: bool
    sent: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    taken: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    filled: int = 0
    emptied: int = 0
    arrived: int = 0
    credit: int = 0
    acked: int = 0
    moved: list[int] = field(default_factory=lambda: [0, 0])
    queued: list[bool] = field(default_factory=lambda: [False, False])

    def is_over(self, side: int) -> bool:
        counters = self.taken if side else self.sent
        return counters[3] == self.total

    def has_input(self) -> bool:
        return (self.filled if self.is_local else self.taken[2]) > self.emptied

    def has_room(self) -> bool:
        return self.filled < (self.emptied + DEPTH if self.is_local else self.sent[0])


@dataclass
class Lane:
    """A channel of a kernel: which links each action needs, in order."""

    actions: list[tuple[Flow | None, Flow | None]]
    position: int = 0


@dataclass
class Op:
    """An op as one rank enqueued it."""

    comm: Comm
    func: str
    number: int
    peer: int
    lanes: list[Lane]
    flows: list[tuple[Flow, int]]
    enqueued: int
    started: int = 0
    done: int = 0

    @property
    def is_p2p(self) -> bool:
        return self.func in ("Send", "Recv")

    @property
    def is_over(self) -> bool:
        return all(flow.is_over(side) for flow, side in self.flows)


class Job:
    """The model: `run` steps it; faults are sets of ranks that a test may change at any round."""

    def __init__(self, tp: int, pp: int, dp: int, ranks_per_node: int, is_ib: bool, seed: int) -> None:
        self.n_ranks, self.ranks_per_node, self.is_ib = tp * pp * dp, ranks_per_node, is_ib
        self.random = random.Random(seed)
        self.now = 0
        self.halted: set[int] = set()  # nothing runs: stopped or killed
        self.proxy_asleep: set[int] = set()
        self.gpu_hung: set[int] = set()
        self.stuck_before: set[int] = set()
        self.nic_down: set[int] = set()
        self.paused = False
        self.comms = self._make_comms(tp, pp, dp)
        self.connections: dict[tuple[int, int, int, int], list[Flow]] = {}
        self.live: list[list[Op]] = [[] for _ in range(self.n_ranks)]
        self.finished: list[tuple[int, Op]] = []
        self.streams: list[list[list[tuple[str, object]]]] = [[[], [], []] for _ in range(self.n_ranks)]
        self.run_length = [[0, 0, 0] for _ in range(self.n_ranks)]
        self.plans: list[list[tuple[str, object]]] = [[] for _ in range(self.n_ranks)]
        self.iterations = [0] * self.n_ranks
        self.by_flow: dict[tuple[int, int, int, int, int, str], Flow] = {}
        self.changed = 0

    def node(self, rank: int) -> int:
        return rank // self.ranks_per_node

    def _make_comms(self, tp: int, pp: int, dp: int) -> dict[tuple[str, int], Comm]:
        found: dict[tuple[str, int], Comm] = {}
        groups: dict[tuple[str, int, int], list[int]] = {}
        for rank in range(self.n_ranks):
            t, d, p = rank % tp, rank // tp % dp, rank // (tp * dp)
            groups.setdefault(("world", 0, 0), []).append(rank)
            groups.setdefault(("tp", d, p), []).append(rank)
            groups.setdefault(("dp", t, p), []).append(rank)
            groups.setdefault(("pp", t, d), []).append(rank)
        for number, ((kind, *place), members) in enumerate(sorted(groups.items())):
            if len(members) < 2:
                continue
            stream = {"dp": DP, "pp": PP}.get(kind, COMPUTE)
            comm = Comm(0x5000 + number, f"{kind}_{place[0]}_{place[1]}", members, stream)
            for rank in members:
                found[kind, rank] = comm
        return found

    def all_comms(self) -> list[Comm]:
        return list({comm.comm_id: comm for comm in self.comms.values()}.values())

    # ---- the training step -------------------------------------------------------------------------------------------

    def _plan(self, rank: int) -> list[tuple[str, object]]:
        plan: list[tuple[str, object]] = []
        pp = self.comms.get(("pp", rank))
        stage = pp.members.index(rank) if pp else 0
        last = len(pp.members) - 1 if pp else 0
        for _ in range(2):
            if pp and stage > 0:
                plan += [("Recv", stage - 1), ("wait", (COMPUTE, PP))]
            plan += [("compute", 4), ("tp", "AllReduce")]
            if pp and stage < last:
                plan += [("wait", (PP, COMPUTE)), ("Send", stage + 1)]
        for part in range(2):
            if pp and stage < last:
                plan += [("Recv", stage + 1), ("wait", (COMPUTE, PP))]
            plan += [("compute", 6)]
            if part == 1:
                plan += [("wait", (DP, COMPUTE)), ("dp", "ReduceScatter")]
            plan += [("tp", "AllReduce")]
            if pp and stage > 0:
                plan += [("wait", (PP, COMPUTE)), ("Send", stage - 1)]
        plan += [("wait", (COMPUTE, DP)), ("world", "AllReduce"), ("compute", 2)]
        return [*plan, ("wait", (DP, COMPUTE)), ("dp", "AllGather")]

    def _step_main(self, rank: int) -> None:
        if self.plans[rank]:
            kind, what = self.plans[rank].pop(0)
            self._enqueue(rank, kind, what)
            self.changed = self.now
        elif not any(self.streams[rank]) and rank not in self.stuck_before and not self.paused:
            self.iterations[rank] += 1
            self.plans[rank] = self._plan(rank)
            self.changed = self.now

    def _enqueue(self, rank: int, kind: str, what: object) -> None:
        if kind == "compute":
            self.streams[rank][COMPUTE].append(("compute", [what]))
        elif kind == "wait":
            stream, other = what  # type: ignore[misc]
            until = self.run_length[rank][other] + len(self.streams[rank][other])
            self.streams[rank][stream].append(("wait", (other, until)))
        elif kind in ("Send", "Recv"):
            self._enqueue_op(rank, self.comms["pp", rank], kind, int(what))  # type: ignore[call-overload]
        elif (kind, rank) in self.comms:
            self._enqueue_op(rank, self.comms[kind, rank], str(what), -1)

    def _enqueue_op(self, rank: int, comm: Comm, func: str, peer: int) -> None:
        me = comm.members.index(rank)
        comm.last_enqueued[rank] = self.now
        if peer >= 0:
            same = [op for at, op in self.finished if at == rank] + self.live[rank]
            number = 1 + sum(op.comm is comm and op.func == func and op.peer == peer for op in same)
            comm.p2p_entered[rank] = comm.p2p_entered.get(rank, 0) + 1
        else:
            number = comm.entered[rank] = comm.entered.get(rank, 0) + 1
        lanes = [self._lane(comm, func, number, channel, me, peer) for channel in range(CHANNELS)]
        flows = {}
        for lane in lanes:
            for incoming, outgoing in lane.actions:
                for flow, side in ((incoming, 1), (outgoing, 0)):
                    if flow is not None and not flow.is_local:
                        flows[id(flow), side] = (flow, side)
        op = Op(comm, func, number, peer, lanes, list(flows.values()), self.now)
        for flow, side in op.flows:
            flow.queued[side] = True
            flow.moved[side] = self.now
        self.streams[rank][comm.stream].append(("kernel", op))
        self.live[rank].append(op)

    def _lane(self, comm: Comm, func: str, number: int, channel: int, me: int, peer: int) -> Lane:
        n = len(comm.members)
        if func == "Send":
            out = self._flow(comm, func, number, channel, me, peer, SLICES * LOOPS)
            return Lane([(None, out)] * (SLICES * LOOPS))
        if func == "Recv":
            incoming = self._flow(comm, "Send", number, channel, peer, me, SLICES * LOOPS)
            return Lane([(incoming, None)] * (SLICES * LOOPS))
        steps = 2 * n - 2 if func == "AllReduce" else n - 1
        step = 1 if channel % 2 == 0 else -1  # every other channel runs the ring the other way round
        total = steps * SLICES * LOOPS
        out = self._flow(comm, func, number, channel, me, (me + step) % n, total)
        incoming = self._flow(comm, func, number, channel, (me - step) % n, me, total)
        once = [(None, out)] * SLICES + [(incoming, out)] * (SLICES * (steps - 1)) + [(incoming, None)] * SLICES
        return Lane(once * LOOPS)

    def _flow(self, comm: Comm, func: str, op: int, channel: int, source: int, target: int, total: int) -> Flow:
        key = (comm.comm_id, op, channel, source, target, "p2p" if func == "Send" else "")
        if key not in self.by_flow:
            a, b = comm.members[source], comm.members[target]
            flow = Flow(comm, func, op, channel, a, b, total, self.node(a) == self.node(b))
            self.by_flow[key] = flow
            self.connections.setdefault((comm.comm_id, channel, a, b), []).append(flow)
        return self.by_flow[key]

    # ---- GPU, proxy, network -----------------------------------------------------------------------------------------

    def _step_gpu(self, rank: int) -> None:
        for stream, queue in enumerate(self.streams[rank]):
            if queue and self._run_task(rank, queue[0]):
                queue.pop(0)
                self.run_length[rank][stream] += 1
                self.changed = self.now

    def _run_task(self, rank: int, task: tuple[str, object]) -> bool:
        kind, what = task
        if kind == "compute":
            left = what  # type: ignore[assignment]
            left[0] -= 1  # type: ignore[index]
            self.changed = self.now
            return left[0] <= 0  # type: ignore[index]
        if kind == "wait":
            other, until = what  # type: ignore[misc]
            return self.run_length[rank][other] >= until
        return self._run_kernel(what)  # type: ignore[arg-type]

    def _run_kernel(self, op: Op) -> bool:
        for lane in op.lanes:
            if lane.position == len(lane.actions):
                continue
            incoming, outgoing = lane.actions[lane.position]
            if (incoming is None or incoming.has_input()) and (outgoing is None or outgoing.has_room()):
                if incoming is not None:
                    incoming.emptied += 1
                if outgoing is not None:
                    outgoing.filled += 1
                lane.position += 1
                self.changed = self.now
        return all(lane.position == len(lane.actions) for lane in op.lanes)

    def _step_proxies(self) -> None:
        for flows in self.connections.values():
            if flows[0].is_local:
                continue
            for side, rank in ((0, flows[0].source), (1, flows[0].target)):
                if rank in self.halted or rank in self.proxy_asleep:
                    continue
                flow = next((flow for flow in flows if not flow.is_over(side)), None)
                if flow is not None and flow.queued[side] and (self._receive(flow) if side else self._send(flow)):
                    flow.moved[side] = self.changed = self.now
            while flows and flows[0].is_over(0) and flows[0].is_over(1) and len(flows) > 1:
                flows.pop(0)

    def _send(self, flow: Flow) -> bool:
        before = list(flow.sent)
        sent = flow.sent
        sent[0] = min(flow.total, sent[3] + DEPTH)
        if sent[0] > sent[2] and flow.filled > sent[2]:
            sent[1] = max(sent[1], sent[2] + 1)
            if not self.is_ib or flow.credit > sent[2]:
                sent[2] += 1
        if flow.acked > sent[3]:
            sent[3] += 1
        return sent != before

    def _receive(self, flow: Flow) -> bool:
        before = list(flow.taken)
        taken = flow.taken
        taken[0] = min(flow.total, taken[3] + DEPTH)
        if taken[0] > taken[1] and flow.arrived > taken[1]:
            taken[1] += 1
        taken[2] = taken[1]
        if flow.emptied > taken[3]:
            taken[3] += 1
        return taken != before

    def _step_network(self) -> None:
        for flows in self.connections.values():
            if flows[0].is_local or {flows[0].source, flows[0].target} & self.nic_down:
                continue
            for flow in flows:
                before = (flow.arrived, flow.credit, flow.acked)
                flow.credit = flow.taken[0]
                flow.arrived = min(flow.arrived + 1, flow.sent[2])
                flow.acked = flow.arrived if self.is_ib else min(flow.sent[2], flow.arrived + DEPTH)
                if (flow.arrived, flow.credit, flow.acked) != before:
                    self.changed = self.now
        return

    def _complete(self) -> None:
        for rank, ops in enumerate(self.live):
            # The plugin sees an op with flows end when its flows end, though its kernel may still pass data on inside.
            for op in [op for op in ops if op.is_over and (op.flows or self._has_run(op))]:
                ops.remove(op)
                op.done = self.now
                self.finished.append((rank, op))
                if op.flows:
                    counts = op.comm.p2p_done if op.is_p2p else op.comm.done
                    counts[rank] = counts.get(rank, 0) + 1
                    op.comm.last_done[rank] = self.now

    def _has_run(self, op: Op) -> bool:
        return all(lane.position == len(lane.actions) for lane in op.lanes)

    def step(self) -> None:
        self.now += 1
        ranks = list(range(self.n_ranks))
        self.random.shuffle(ranks)
        for rank in ranks:
            if rank in self.halted:
                continue
            self._step_main(rank)
            if rank not in self.gpu_hung:
                self._step_gpu(rank)
        self._step_proxies()
        self._step_network()
        self._complete()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.step()

    def run_until_still(self, rounds_max: int = CLEAR) -> bool:
        """Step until nothing has changed for 30 rounds; False when that did not happen."""
        for _ in range(rounds_max):
            self.step()
            if self.now - self.changed > 30:
                return True
        return False
