"""Whether the parallelism of random layouts is told right (Pulse §8.3): every group of every layout, up to 512 ranks.

Jobs are simulated for a few steps with sizes of their own; what groups serve is told from the window alone, by volumes, counts
and who sends to whom. A layout is right when all of its groups are. The truth is how the layout was made: the world's group
only gathers a norm and serves none.
"""

from __future__ import annotations

import random
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
from tests.replay import replayed

RANKS_MAX: Final = 512
SECONDS: Final = 2.0
SERVES: Final = {
    "world": Parallelism.NONE, "tp": Parallelism.TENSOR, "dp": Parallelism.DATA, "edp": Parallelism.DATA,
    "pp": Parallelism.PIPELINE, "ep": Parallelism.EXPERT,
}  # fmt: skip


def layouts_judged(seed: int, n: int) -> dict[str, Any]:
    """{"layouts", "right", "wrong": what was said of those that are not}."""
    made, bar, wrong = random.Random(f"{seed}/layouts"), Bar(n, "layouts"), list[str]()
    for done in range(n):
        settings = draw_job(made)
        bar.tell(done, f"{settings.layout.n_ranks} ranks")
        errors = errors_of(settings)
        if errors:
            wrong.append(f"{settings.layout}: {'; '.join(errors[:3])}")
            print(wrong[-1], flush=True)
    bar.end()
    print(f"parallelism: {n - len(wrong)} of {n} layouts right", flush=True)
    return {"layouts": n, "right": n - len(wrong), "wrong": wrong[:10]}


def errors_of(settings: JobSettings) -> list[str]:
    """Groups of which something else is said than they are."""
    told = parallelism_in(window_of(settings))
    names = settings.layout.names
    ids = settings.layout.comm_ids(settings.name, settings.scenario.seed).tolist()
    true = {comm_id: SERVES[name.split("_")[0]] for comm_id, name in zip(ids, names, strict=True)}
    name_of = dict(zip(ids, names, strict=True))
    return [
        f"{name_of[one]} is {told.get(one)}, not {right}" for one, right in true.items() if told.get(one) is not right
    ]


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
