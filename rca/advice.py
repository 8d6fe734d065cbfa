"""What to do next, for somebody woken at night: where to look, with the commands ready to copy, and what becomes of the job.

Lines are separated by newlines and commands stand in backticks, with the real node, NIC and process number; the page
turns them into something to copy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from rca.findings import Component, FaultKind
from rca.hang.progress import Progress
from rca.words import named, nic_name, node_name

RESTART = "Then restart the job from its last checkpoint: NCCL does not recover an op in which a rank was lost."
_PLACES_SHOWN = 8
_PY_SPY: Final = re.compile(r"`py-spy dump (?:--native )?--pid (\w+)`")
_LINE_OF_RANK: Final = re.compile(r"\(rank (\d+)\): `")


def _pid(state: Progress, at: int) -> str:
    places = state.window.ranks
    found = places["pid"][places["rank"] == state.ranks.rank[at]]
    return str(int(found[0])) if len(found) and found[0] > 0 else "PID"


def _on(state: Progress, at: int) -> str:
    return f"On {node_name(state, at) or f'the node of rank {int(state.ranks.rank[at])}'}"


def _per_rank(state: Progress, places: Sequence[int], *commands: str) -> list[str]:
    """A line of commands for each rank; {pid} is filled in."""
    lines = []
    for at in places[:_PLACES_SHOWN]:
        said = ", ".join(f"`{command.format(pid=_pid(state, at))}`" for command in commands)
        lines.append(f"{_on(state, at)} (rank {int(state.ranks.rank[at])}): {said}.")
    if len(places) > _PLACES_SHOWN:
        lines.append(f"The same for {len(places) - _PLACES_SHOWN} more ranks.")
    return lines


def _per_node(state: Progress, places: Sequence[int], *commands: str) -> list[str]:
    """A line of commands for each node of these ranks: what is the same for all of its ranks."""
    nodes = list(dict.fromkeys(_on(state, at) for at in places))
    said = ", ".join(f"`{command}`" for command in commands)
    lines = [f"{node}: {said}." for node in nodes[:_PLACES_SHOWN]]
    return [*lines, *([f"The same on {len(nodes) - _PLACES_SHOWN} more nodes."] if len(nodes) > _PLACES_SHOWN else [])]


def for_nic(state: Progress, nic: int, at: int) -> str:
    """A NIC whose port is down."""
    name, node = nic_name(state, nic), node_name(state, at) or "its node"
    return (
        f"{_on(state, at)}: `ip -s link show {name}`, `ibstat`, `dmesg | tail -50`; check cable and switch port.\n"
        f"If the port does not return: drain {node} and restart the job without it; NCCL does not recover an op whose "
        "NIC is gone."
    )


def for_link(state: Progress, places: Sequence[int]) -> str:
    """Data is lost between or at these ranks, and no port is known to be down."""
    lines = []
    for at in places[:_PLACES_SHOWN]:
        nic = int(state.ranks.nic[at])
        port = f"`ip -s link show {nic_name(state, nic)}`" if nic >= 0 else "`ip -s link`"
        lines.append(f"{_on(state, at)} (rank {int(state.ranks.rank[at])}): {port}, `ibstat`, `dmesg | tail -50`.")
    lines += _per_rank(state, places[:1], "top -H -p {pid}")
    lines.append(
        "Look for error and discard counters that grow, also at the switch port. If one end shows them: drain that node "
        "and restart the job without it."
    )
    return "\n".join(lines)


def for_gone(state: Progress, places: Sequence[int]) -> str:
    """Processes that have ended."""
    lines = _per_node(state, places, "dmesg -T | grep -iE 'out of memory|killed process|segfault|Xid'")
    who = named(state.ranks.names(np.array(places, np.int64)))
    lines.append(
        f"Find the exit code of {who} in the launcher's log: 137 is SIGKILL, often the OOM killer; 139 a crash."
    )
    return "\n".join([*lines, "End what is left of the job. " + RESTART])


def for_stopped(state: Progress, places: Sequence[int]) -> str:
    """Processes in state T."""
    lines = _per_rank(state, places, "cat /proc/{pid}/status", "kill -CONT {pid}")
    lines.append("Send CONT only after finding who stopped it: a debugger (TracerPid), SIGSTOP, a cgroup freezer.")
    lines.append("The job goes on by itself after CONT, unless NCCL's timeout has passed meanwhile: then restart it.")
    return "\n".join(lines)


def for_proxy(state: Progress, places: Sequence[int]) -> str:
    """Proxies that do nothing."""
    lines = _per_rank(state, places, "top -H -p {pid}", "gdb -p {pid} -batch -ex 'thread apply all bt'")
    lines += _per_rank(state, places[:1], "py-spy dump --native --pid {pid}")
    lines.append(
        "Look for the thread 'NCCL Progress': not scheduled (CPU contention, cpuset, throttling) or in a lock?"
    )
    lines.append("The job goes on when the thread runs again. If it does not: save the stacks, then restart the job.")
    return "\n".join(lines)


def for_missing(state: Progress, places: Sequence[int]) -> str:
    """Ranks that have not entered the op, though their processes live."""
    lines = _per_rank(state, places, "py-spy dump --pid {pid}", "cat /proc/{pid}/stack")
    lines.append("The stack says where it is: data loader, checkpoint, a lock, an exception handler, another branch.")
    lines.append("If it does file or network input, wait or mend that; the job goes on once the rank enters the op.")
    return "\n".join([*lines, "If it is stuck for good: save the stack, then restart the job."])


def for_idle(state: Progress, places: Sequence[int]) -> str:
    """Nothing is in flight; these ranks have been quiet longest."""
    lines = _per_rank(state, places, "py-spy dump --pid {pid}", "cat /proc/{pid}/stack")
    lines.append("Compare the stacks of all ranks: who stands elsewhere than most (data loader, checkpoint, a lock)?")
    lines.append("If all stand in evaluation, a checkpoint or compilation, the job may be well: declare the pause.")
    return "\n".join(lines)


def for_gpu(state: Progress, places: Sequence[int]) -> str:
    """GPUs that produce nothing."""
    lines = _per_node(state, places, "nvidia-smi -q -d ECC,PERFORMANCE", "dmesg -T | grep -i xid")
    lines += _per_rank(state, places, "py-spy dump --native --pid {pid}")
    lines.append("With an Xid or ECC error: drain the node, reset or replace the GPU, and restart the job without it.")
    return "\n".join(
        [*lines, "Without one: save the stacks, then restart the job; a kernel that hangs does not return."]
    )


def for_silent_node(node: str) -> str:
    """A node that sends nothing any more."""
    return (
        f"Is {node} up? `ping -c 3 {node}`, `ssh {node} uptime`; its console or BMC if not.\n"
        f"If it is: is the agent running, and can it reach the server? `ssh {node} 'ps aux | grep nccl_instrument'`.\n"
        f"If the node is lost: drain {node} and restart the job without it. If only the agent is: start it again, the job "
        "need not stop."
    )


def for_rack(rack: str, nodes: Sequence[str], component: Component, kind: FaultKind, told: str) -> str:
    """All nodes of a rack. told: what is said of one of them."""
    shown = ", ".join(f"`ping -c 3 {node}`" for node in nodes[:_PLACES_SHOWN])
    rest = f" and {len(nodes) - _PLACES_SHOWN} more" if len(nodes) > _PLACES_SHOWN else ""
    is_lost = kind in (FaultKind.SILENCE, FaultKind.COMMUNICATION_FAIL_STOP)
    lines = [f"From a node elsewhere: {shown}{rest}. If none answers, look first at what rack {rack} has in common."]
    if component in (Component.NIC, Component.NETWORK, Component.NODE):
        lines += [
            "At its switch: is it up, and do errors or discards grow at its uplinks and its ports to these nodes? InfiniBand: "
            f"`ibqueryerrors`, `iblinkinfo -l`; Ethernet: its interface counters. On {nodes[0]}: `ip -s link`, `ibstat`."
        ]
    is_slow = kind in (FaultKind.COMPUTATION_FAIL_SLOW, FaultKind.COMMUNICATION_FAIL_SLOW)
    power = "Power cap and cooling" if is_slow else "PDU and breaker"
    lines.append(
        f"{power} of the rack: `ipmitool -H BMC chassis power status`, `ipmitool -H BMC sdr type Temperature`, for each BMC."
    )
    if kind is FaultKind.COMPUTATION_FAIL_SLOW:
        lines.append(
            "Where the rack holds one pipeline stage or the same experts, more work in that stage looks the same."
        )
    if kind is FaultKind.SILENCE:
        lines.append(
            "If they run and only their agents cannot reach the server (a management network): the job need not stop."
        )
    if is_lost:
        return "\n".join(
            [*lines, f"If rack {rack} is lost: drain its {len(nodes)} nodes and restart the job without them."]
        )
    return "\n".join([*lines, told])


def for_unheard(state: Progress, at: int) -> str:
    """A rank of which nothing is seen though its node reports."""
    lines = _per_rank(state, [at], "ps -o pid,stat,etime,cmd -p {pid}", "grep -i nccl_profiler /proc/{pid}/environ")
    lines.append("Does it load the profiler plugin (NCCL_PROFILER_PLUGIN), and may the agent read its segment?")
    return "\n".join([*lines, "The job may be well: do not stop it for this alone."])


def for_never_heard() -> str:
    """Ranks nobody ever heard of, for which others may wait."""
    return (
        "No agent tells of these ranks: does one run on their nodes, and do their processes load the profiler plugin "
        "(NCCL_PROFILER_PLUGIN)? Start it there; the job need not stop for that.\n"
        "Until then look there yourself, at their processes (`nvidia-smi`, `ps -C python`) and the stacks of these "
        "(`py-spy dump --pid PID`), before you touch a rank that waits."
    )


def for_deadlock(state: Progress, places: Sequence[int]) -> str:
    """Ranks that wait for each other in different ops."""
    lines = _per_rank(state, places, "py-spy dump --pid {pid}")
    lines.append("Compare the order in which these ranks enqueue ops of these communicators.")
    return "\n".join([*lines, "It does not resolve by itself: save the stacks, mend the order, restart the job."])


def for_mismatch(state: Progress, places: Sequence[int]) -> str:
    """Ranks that entered another op than the rest."""
    lines = _per_rank(state, places, "py-spy dump --pid {pid}")
    lines.append("Compare the code paths of these ranks: a branch, a different batch size, a skipped step.")
    return "\n".join([*lines, "It does not resolve by itself: save the stacks, mend the code, restart the job."])


def without_python(told: str, ranks: Collection[int]) -> str:
    """The same advice where the processes of these ranks are known to be no Python: gdb reads what py-spy cannot."""
    lines: list[str] = []
    for line in told.splitlines():
        of = _LINE_OF_RANK.search(line)
        is_python = of is None or int(of[1]) not in ranks
        lines.append(line if is_python else _PY_SPY.sub(r"`gdb -p \1 -batch -ex 'thread apply all bt'`", line))
    return "\n".join(line for n, line in enumerate(lines) if not _is_said(line, lines[:n]))


def _is_said(line: str, before: Sequence[str]) -> bool:
    """Whether a line about a rank has only commands that stand above."""
    commands = re.findall(r"`[^`]+`", line) if _LINE_OF_RANK.search(line) else []
    return bool(commands) and all(any(command in other for other in before) for command in commands)
