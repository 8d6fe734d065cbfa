"""Whether the parallelism of random layouts is told right (Pulse §8.3): every group of every layout, up to 512 ranks.

Layouts are any that Megatron would accept with a random model, as it launches them (megatron.py), and, so that their times are
not of our making, some that the simulator plays. What groups serve is told from the window alone. A layout is right when all of
its groups are; where one could not be told and none was told wrong it is unsure, which is not right. The truth is how the layout
was made: groups that only add up norms and losses serve none, and context parallelism is none of Figure 5's kinds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ingest.window import Window
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.faults import Scenario
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, Physics
from nccl_instrument.sizes import LayoutError
from rca.flows.layout import parallelism_in
from rca.flows.parallelism import Parallelism
from tests.eval import megatron
from tests.eval.megatron import Plan, draw_plan
from tests.replay import replayed

Errors = list[tuple[str, Parallelism | None, Parallelism]]
"""Group, what is said of it, what it is."""
RANKS_MAX: Final = 512
SIMULATED_SHARE: Final = 5  # one more layout for so many
SECONDS: Final = 2.0
SERVES: Final = {
    "world": Parallelism.NONE, "tp": Parallelism.TENSOR, "dp": Parallelism.DATA, "edp": Parallelism.DATA,
    "pp": Parallelism.PIPELINE, "ep": Parallelism.EXPERT,
}  # fmt: skip


def layouts_judged(seed: int, n: int) -> dict[str, Any]:
    """{"layouts", "right", "unsure", "wrong": what was said of those that are not right, "simulated": {"layouts", "right"}}."""
    made, drawn = random.Random(f"{seed}/layouts"), random.Random(f"{seed}/plans")
    launched = _judged([partial(_launched, draw_plan(drawn), at) for at in range(n)], "layouts")
    played = _judged(
        [partial(_played, draw_job(made)) for _ in range(max(n // SIMULATED_SHARE, 1))], "simulated layouts"
    )
    return {**launched, "simulated": {name: played[name] for name in ("layouts", "right")}}


def _judged(layouts: Sequence[Callable[[], tuple[str, Errors]]], what: str) -> dict[str, Any]:
    bar, wrong, unsure = Bar(len(layouts), what), list[str](), 0
    for done, judge in enumerate(layouts):
        name, errors = judge()
        bar.tell(done, name)
        if errors:
            unsure += all(said is Parallelism.UNKNOWN for _, said, _ in errors)
            wrong.append(f"{name}: " + "; ".join(f"{group} is {said}, not {true}" for group, said, true in errors[:3]))
            print(wrong[-1], flush=True)
    bar.end()
    right = len(layouts) - len(wrong)
    print(f"parallelism: {right} of {len(layouts)} {what} right, {unsure} unsure", flush=True)
    return {"layouts": len(layouts), "right": right, "unsure": unsure, "wrong": wrong[:10]}


def _launched(plan: Plan, seed: int) -> tuple[str, Errors]:
    window, kinds = megatron.window_of(plan, seed)
    told = parallelism_in(window)
    found = [(kind, told.get(one), megatron.SERVES[kind]) for one, kind in kinds.items()]
    return str(plan), [one for one in found if one[1] is not one[2]]


def _played(settings: JobSettings) -> tuple[str, Errors]:
    return str(settings.layout), errors_of(settings)


def errors_of(settings: JobSettings) -> Errors:
    """Groups of which something else is said than they are."""
    told = parallelism_in(window_of(settings))
    names = settings.layout.names
    ids = settings.layout.comm_ids(settings.name, settings.scenario.seed).tolist()
    true = {comm_id: SERVES[name.split("_")[0]] for comm_id, name in zip(ids, names, strict=True)}
    name_of = dict(zip(ids, names, strict=True))
    return [(name_of[one], told.get(one), right) for one, right in true.items() if told.get(one) is not right]


def window_of(settings: JobSettings) -> Window:
    """What a server knows after a few steps. What was measured on the wire adds nothing: the ops say what was moved."""
    job = SimulatedJob(settings)
    try:
        batches = [(sent.arrives_ns, sent.encoded) for sent in in_order(job.batches(SECONDS))]
    finally:
        job.close()
    return replayed(batches).window(SECONDS)


def draw_layout(made: random.Random) -> Layout:
    """16 to 512 ranks on several nodes."""
    while True:
        tp, pp, dp = made.choice((1, 2, 4, 8)), made.choice((1, 2, 4, 8)), made.choice((2, 4, 8, 16, 32))
        ep = made.choice((1, 1, 2, 4, 8))
        try:
            found = Layout(tp, pp, dp, ep if dp % ep == 0 else 1, made.choice((4, 8)))
        except LayoutError:
            continue
        if 16 <= found.n_ranks <= RANKS_MAX:
            return found


def draw_job(made: random.Random) -> JobSettings:
    """Such a layout with sizes of its own; gradients are larger than activations, as they are."""
    layout = draw_layout(made)
    physics = Physics(
        n_microbatches=max(made.choice((2, 4)), layout.pp), n_layers=made.choice((2, 4, 8)),
        n_channels=made.choice((1, 2)), n_buckets=made.choice((1, 2)), forward_ms=made.uniform(4, 8),
        backward_ms=made.uniform(8, 16), optimizer_ms=3.0, step_gap_ms=2.0, slot_kib=16 * KIB, slices=1, latency_us=3.0,
        tp_kib=made.choice((1, 4)) * KIB, pp_kib=made.choice((2, 8)) * KIB, dp_kib=made.choice((64, 128, 256)) * KIB,
        ep_kib=made.choice((4, 16)) * KIB, dp_reduce=made.choice(("sharded", "ring", "tree")),
    )  # fmt: skip
    return JobSettings(layout, physics, Scenario((), made.randrange(2**31)), records_stages=False)
