"""One row of the stages suite: a job's usual windows, then windows under a fault, through the whole pipeline.

Rows, as a recorder and the plugin send them, are cut, grouped, accounted and labelled by the code that runs in production,
with shipped settings, one window after the other as they are judged there; what the fault was is looked at only afterwards,
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingest.window import Window
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from rca.frontier.cutting import Cursor, after, cut
from rca.frontier.entered import entered, last_of, settled_stage
from rca.frontier.groups import groups_of
from rca.frontier.judging import judge, seen_of
from rca.frontier.moved import Moved
from rca.frontier.normal import Seen, normal_of
from rca.frontier.packet import Packet
from rca.frontier.routing import candidates
from rca.frontier.steps import schemas_of, steps_of
from rca.settings import DEFAULT, Settings
from tests.eval.stages_cases import Case
from tests.eval.stages_model import run, window_of

STAGE_OF = {
    "data": DATA, "forward_host": FORWARD, "forward_device": FORWARD, "backward": BACKWARD, "comm": BACKWARD,
    "callback": CALLBACKS, "optimizer": OPTIMIZER,
}  # fmt: skip
USUAL_WINDOWS = 2
START = Cursor()


@dataclass(frozen=True)
class Judged:
    """A window under a fault, as the pipeline sees it. fused: the stage it settles on with op traces and device times;
    by_ops: with op traces alone; last: the rank that enters last, None when nobody does."""

    packet: Packet
    moved: Moved
    fused: str
    by_ops: str
    last: int | None

    @property
    def first_step(self) -> int:
        return int(self.packet.cut.steps[0])


@dataclass(frozen=True)
class Truth:
    """Stage and rank of the fault; '' and None without one. where: of the model's fault."""

    stage: str
    rank: int | None
    where: str = ""


@dataclass(frozen=True)
class Row:
    """usual_s: mean step of the windows before the fault; varies_s: standard deviation of their steps; after_s: mean step of the
    window after it, where there is one. settings: it was judged with."""

    kind: str
    title: str
    n_ranks: int
    seed: int
    true: Truth
    windows: tuple[Judged, ...]
    usual_s: float = 0.0
    varies_s: float = 0.0
    after_s: float = 0.0
    settings: Settings = DEFAULT

    @property
    def truth(self) -> str:
        return self.true.stage

    @property
    def rank(self) -> int | None:
        return self.true.rank

    @property
    def is_device(self) -> bool:
        return self.true.where == "forward_device"

    @property
    def leader(self) -> int | None:
        """The rank that stages alone name."""
        return self.windows[-1].packet.report.leader

    @property
    def last(self) -> int | None:
        return self.windows[-1].last

    @property
    def named(self) -> int | None:
        """The rank that stages name, or the ops where stages do not."""
        return self.leader if self.leader is not None else self.last

    @property
    def has_recovered(self) -> bool:
        """Whether the step is back where it was once the fault is gone, to within what steps varied by before it."""
        return abs(self.after_s - self.usual_s) <= self.varies_s

    @property
    def shares(self) -> dict[str, float]:
        """Mean over the windows."""
        stages = self.windows[0].packet.report.shares
        return {stage: float(np.mean([one.packet.report.shares[stage] for one in self.windows])) for stage in stages}

    def ranked(self) -> list[str]:
        return sorted(self.shares, key=lambda stage: -self.shares[stage])

    def candidates(self, cumulative: float) -> list[str]:
        stages = list(self.shares)
        return [stages[at] for at in candidates(np.array(list(self.shares.values())), cumulative)]

    @property
    def is_strong(self) -> bool:
        return any(one.packet.report.is_strong for one in self.windows)

    @property
    def labels(self) -> set[str]:
        return {label.value for one in self.windows for label in one.packet.report.labels}

    @property
    def fused(self) -> str:
        """The stage that stages, op traces and device times settle on."""
        return self.windows[-1].fused

    @property
    def by_ops(self) -> str:
        return self.windows[-1].by_ops

    def summary(self, name: str) -> list[str]:
        """Stages by one of the dashboards' summaries, largest first, and how many make the candidate set."""
        found = np.mean([list(one.packet.body["summaries"][name].values()) for one in self.windows], axis=0)
        stages = list(self.windows[0].packet.body["summaries"][name])
        return [stages[at] for at in np.argsort(-found, kind="stable")]

    def summary_candidates(self, name: str, cumulative: float) -> list[str]:
        found = np.mean([list(one.packet.body["summaries"][name].values()) for one in self.windows], axis=0)
        stages = list(self.windows[0].packet.body["summaries"][name])
        return [stages[at] for at in candidates(found, cumulative)]


def row(case: Case, settings: Settings = DEFAULT) -> Row:
    """A row of the model. The job runs as usual first, as a job does before something sets in; E6's recovers."""
    rng, steps, job = np.random.default_rng(case.seed), settings.stage_steps, case.job
    since = settings.stage_warm_up + USUAL_WINDOWS * steps
    until = since + case.n_windows * steps
    n_steps = until + steps if case.family == "e6" else until
    fault = replace(case.fault, since=since, until=until)
    window = window_of(run(job, fault, n_steps, rng), 0, rng)
    where = case.fault.where
    truth = Truth(STAGE_OF[where], case.fault.rank, where) if where else Truth("", None)
    return judged_row((case.family, case.title, job.n_ranks, case.seed), truth, window, (since, until), settings)


def judged_row(
    named: tuple[str, str, int, int], truth: Truth, window: Window, under: tuple[int, int], settings: Settings = DEFAULT,
    cursor: Cursor = START,
) -> Row:  # fmt: skip
    """A row out of everything that was seen. named: family, title, ranks, seed. under: first step under the fault, and first
    after it. cursor: where cutting begins."""
    found = judged_windows(window, settings, cursor)
    usual = [one for one in found if one.first_step < under[0]]
    during = [one for one in found if under[0] <= one.first_step < under[1]]
    later = [one for one in found if one.first_step >= under[1]]
    if not during or len(usual) < settings.stage_usual_windows:
        raise ValueError(f"{named[1]}: {len(usual)} usual windows and {len(during)} under the fault")
    exposed = np.concatenate([one.packet.accounts.exposed for one in usual])
    return Row(
        *named, truth, tuple(during), float(np.mean([one.packet.step_s for one in usual])), float(exposed.std()),
        later[-1].packet.step_s if later else 0.0, settings,
    )  # fmt: skip


def judged_windows(window: Window, settings: Settings, cursor: Cursor = START) -> list[Judged]:
    """Every complete window of every group, each against those before it in which nothing had moved."""
    steps, _ = after(steps_of(window), cursor, settings)
    found = []
    for group in groups_of(window):
        normal = list[Seen]()
        for one in cut(steps, schemas_of(window), group.ranks, window.end_ns, settings, is_last=False).cuts:
            made = judge(one, group, window, normal_of(normal), settings)
            found.append(judged(made.packet, made.moved, window))
            normal += [] if made.moved.has_moved else [seen_of(made.packet)]
    return found


def judged(packet: Packet, verdict: Moved, window: Window) -> Judged:
    """With what the op traces settle."""
    told = entered(packet.cut, window)
    last = last_of(told, packet.step_s) if told is not None else None
    stage = packet.report.stage
    if last is None:
        return Judged(packet, verdict, stage, stage, None)
    settled = settled_stage(packet.cut, last, stage, packet.report.labels)
    return Judged(packet, verdict, settled or stage, settled_stage(packet.cut, last, stage) or stage, last.rank)


def count(rows: Sequence[Row], first: int) -> int:
    """Rows whose fault is among the `first` stages by share."""
    return sum(one.truth in one.ranked()[:first] for one in rows)
