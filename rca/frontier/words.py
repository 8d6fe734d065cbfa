"""Labels, stages and commands in plain language, for the page, findings and the command line."""

from __future__ import annotations

from typing import Final

from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, OTHER, PREPARE
from rca.findings import Component
from rca.frontier.report import Label

MEANING: Final[dict[Label, str]] = {
    Label.FRONTIER_ACCOUNTING: "The exposed time of each step is divided among its stages, exactly. Nothing is said of causes.",
    Label.LIKELY_SYNC_WAIT: "One rank ends this stage late, and the others make it up later in the step: they wait for it.",
    Label.SYNC_WAIT_DEPENDENT: "The stage leads the exposed time, though clipping it alone saves little: others wait for it.",
    Label.DIRECT_EXPOSURE: "The stage itself takes longer than it should, and clipping it to that would shorten the step.",
    Label.FORWARD_DEVICE_SUPPORTED: "The device's own clock shows that forward takes longer on a rank.",
    Label.FORWARD_SPILLOVER_SUSPECTED: "The device spends long on forward, but the host sees it later, most often in backward.",
    Label.FORWARD_HOST_OVERHEAD_SUSPECTED: "Forward is long by the host's clock and not by the device's: the host holds it up.",
    Label.FORWARD_EVENT_SCOPE_LIMITED: "Too few device times came back, or they do not cover all streams: they are not used.",
    Label.CO_CRITICAL: "Several stages or ranks may be what holds the step up: removing one may not help.",
    Label.GRADIENT_ACCUMULATION_AMBIGUOUS: "Micro-steps are added up, so it cannot be told in which of them anybody waited.",
    Label.ROLE_AWARE_NEEDED: "Ranks of different roles are compared: whoever has most to do seems slow.",
    Label.TELEMETRY_LIMITED: "Part of the measurement is missing or does not add up: nothing stronger is said.",
}

SHORT: Final = {
    DATA: "data", PREPARE: "prepare",
    FORWARD: "forward", BACKWARD: "backward", CALLBACKS: "callbacks", OPTIMIZER: "optimizer", OTHER: "other",
}  # fmt: skip
_DOING: Final = {
    DATA: "waits for its data", PREPARE: "takes longer to prepare its batch",
    FORWARD: "takes longer in forward", BACKWARD: "takes longer in backward",
    CALLBACKS: "is held up in callbacks, logging or a checkpoint", OPTIMIZER: "takes longer in the optimizer's step",
    OTHER: "spends time outside all stages",
}  # fmt: skip
_COMPONENT: Final = {
    DATA: Component.SOFTWARE, PREPARE: Component.SOFTWARE, CALLBACKS: Component.SOFTWARE,
    FORWARD: Component.GPU, BACKWARD: Component.GPU,
    OPTIMIZER: Component.GPU,
}  # fmt: skip
ON_HOST: Final = frozenset({DATA, PREPARE, CALLBACKS, OTHER})
PROFILED_STEPS: Final = 20


def short(stage: str) -> str:
    """A stage's name as figures show it."""
    return SHORT.get(stage, stage)


def doing(stage: str) -> str:
    """What a rank does that is late there, after its name."""
    return _DOING.get(stage, f"takes longer in {stage}")


def component_of(stage: str, *, is_host_work: bool = False) -> Component:
    """What is to be looked at first where a stage is late; is_host_work: its device was not."""
    return Component.SOFTWARE if is_host_work else _COMPONENT.get(stage, Component.UNKNOWN)


def profile_commands(stage: str, rank: int, node: str, pid: int, last_step: int) -> list[str]:
    """Commands that profile one rank, ready to copy; of steps after the window."""
    process = str(pid) if pid > 0 else "PID"
    spy = f"py-spy record --pid {process} --subprocesses --duration 30 --format speedscope --output rank{rank}.json"
    trace = (
        f"dyno --hostname {node or 'NODE'} gputrace --pids {process} --iterations {PROFILED_STEPS}"
        f" --profile-start-iteration-roundup {PROFILED_STEPS} --log-file /tmp/rank{rank}-after-step-{last_step}.json"
    )
    commands = [f"ssh {node} {spy}" if node else spy, trace]
    return commands if stage in ON_HOST else commands[::-1]
