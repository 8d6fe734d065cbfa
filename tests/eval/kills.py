"""Accuracy suite `kills`: every part of a running stack dies, again and again, under load; nothing that counts is lost.

A healthy live job with its agents, thirty light nodes that note what was acknowledged, a second live job that hangs with
an incident people act on, and a signed-in browser. Each kill is SIGKILL; the time until a person and an agent would
say that everything works again is measured from the restart of the part. Then Postgres stays away for ten minutes. Run
by `make eval SUITE=kills [SEED=n]`; the last line is one JSON object, the exit status is 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from console.supervisor.demo import LiveJob
from nccl_instrument.testbed.control import ask
from tests.eval import kills_parts as parts
from tests.eval.kills_browser import AWAY, Browser
from tests.eval.kills_load import JOB as LOAD_JOB
from tests.eval.kills_load import Load
from tests.eval.kills_verify import lost, read_stored, timeline_faults, unexplained
from tests.eval.spine import await_diagnosis, await_incident, training, wait_for_data
from tests.eval.stack import RunningStack

HEALTHY, HUNG = "kills-healthy", "kills-hung"
TRAIN_SECONDS = 15.0
LIVE_SECONDS_MAX = 120.0
DRAIN_SECONDS_MAX = 300.0
REST_SECONDS = (2.0, 5.0)  # between two kills
LOOK_SECONDS = 0.1
OUTAGE_SECONDS = 600.0
MUST_BE_NONE = ("batches_lost", "batches_repeated", "incidents_lost", "false_incidents", "faults")


@dataclass(slots=True)
class Recovery:
    """One death. seconds: from the restart until everything was live; from_kill_s: from the death; None: never.

    steps: what was waited for, and when it was there, in seconds from the restart.
    """

    part: str
    name: str
    seconds: float | None
    from_kill_s: float | None
    steps: dict[str, float] = field(default_factory=dict)
    problem: str = ""

    def __str__(self) -> str:
        steps = ", ".join(f"{what} {seconds:.1f}" for what, seconds in self.steps.items())
        if self.seconds is None:
            return f"{self.name}: NEVER LIVE AGAIN, still missing: {self.problem} ({steps})"
        return f"{self.name}: live {self.seconds:.1f} s after its restart ({steps})"


@dataclass
class Drill:
    """A stack under load that is being hurt, and what was seen of it."""

    stack: RunningStack
    load: Load
    healthy: LiveJob
    browser: Browser
    draw: random.Random
    recoveries: list[Recovery] = field(default_factory=list)
    incident: int | None = None
    acts: list[str] = field(default_factory=list)

    def kill(self, part: str) -> Recovery:
        """Kill a part and wait until everything is live again."""
        try:
            name, killed_at, restarted_at = parts.kill(part, self.stack, self.healthy, self.draw)
        except parts.NotRestarted as error:
            recovery = Recovery(part, part, None, None, problem=str(error))
        else:
            recovery = self.await_life(part, name, killed_at, restarted_at)
        self.recoveries.append(recovery)
        return recovery

    def outage(self, part: str, seconds: float) -> Recovery:
        """Kill a part and keep it down for so long."""
        held = parts.hold(self.stack, part)
        pid = parts.children(self.stack)[part]
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        self.rest(seconds, f"{part} is away")
        held.unlink()
        restarted_at = parts.wait_for(lambda: parts.children(self.stack).get(part, pid) != pid, part)
        recovery = self.await_life("outage", part, killed_at, restarted_at)
        self.recoveries.append(recovery)
        return recovery

    def rest(self, seconds: float, why: str = "") -> None:
        """Let time pass; agents that died are started again meanwhile."""
        until, told_at = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < until:
            self.healthy.look()
            if why and time.monotonic() - told_at > 30:
                told_at = time.monotonic()
                say(f"{why}, {until - told_at:.0f} s to go, {self.load.n_spooled()} batches of the load wait")
            time.sleep(min(LOOK_SECONDS, max(0.0, until - time.monotonic())))

    def await_life(self, part: str, name: str, killed_at: float, since: float) -> Recovery:
        steps: dict[str, float] = {}
        missing = self.missing(part, name, since)
        while missing and time.time() < since + LIVE_SECONDS_MAX:
            self.healthy.look()
            time.sleep(LOOK_SECONDS)
            before, missing = missing, self.missing(part, name, since)
            if missing != before:
                steps[before] = time.time() - since
        if missing:
            return Recovery(part, name, None, None, steps, missing)
        now = time.time()
        return Recovery(part, name, now - since, now - killed_at, steps)

    def missing(self, part: str, name: str, since: float) -> str:
        """What is not live yet, "" when everything is: each by something that began after `since`."""
        if not self.load.is_acknowledged_since(since):
            return "an acknowledged batch"
        try:
            job = next(row for row in self.browser.get("jobs")["jobs"] if row["name"] == LOAD_JOB)
            nodes = self.browser.get("nodes")["nodes"] if part == "agent" else []
        except (*AWAY, StopIteration):
            return "a signed-in read"
        if parsed(job["last_data_at"]) < since:
            return "new data on the page"
        if parsed(job["looked_at"]) < since:
            return "a look at the new data"
        if part == "agent":
            node = next((row for row in nodes if row["job"] == HEALTHY and f"agent-{row['name']}" == name), None)
            if node is None or parsed(node["watermark_at"]) < since:
                return "data of the agent's node"
        return "" if self.browser.heard_at > since else "a live message"

    def act(self, text: str) -> None:
        """Comment on the incident; repeated until it is answered, as a person's browser would."""
        assert self.incident is not None
        give_up_at = time.time() + LIVE_SECONDS_MAX
        while time.time() < give_up_at:
            with contextlib.suppress(*AWAY):
                self.browser.act(self.incident, "comments", {"text": text}, key=text)
                self.acts.append(text)
                return
            time.sleep(0.5)
        raise RuntimeError(f"nobody could comment for {LIVE_SECONDS_MAX:.0f} s")

    def drain(self) -> float | None:
        """Seconds until every spool is empty, after the load has stopped; None when they never were."""
        self.load.pause()
        began = time.time()
        while time.time() - began < DRAIN_SECONDS_MAX:
            self.healthy.look()
            waiting = self.load.n_spooled() + spooled(self.healthy)
            if waiting <= len(self.healthy.manifest()["nodes"]):  # the agents go on: one may be on its way
                return time.time() - began
            time.sleep(0.2)
        return None


def spooled(job: LiveJob) -> int:
    """Batches that wait in the spools of a job's agents."""
    return sum(1 for _ in (job.folder / "spool").glob("*/*.batch"))


def parsed(at: str | None) -> float:
    return 0.0 if at is None else datetime.fromisoformat(at).timestamp()


def say(text: str) -> None:
    print(f"kills: {text}", flush=True)


def open_incident(drill: Drill, hung: LiveJob) -> None:
    """Hang the second job, wait for its incident, acknowledge it."""
    answer = ask(hung.rundir, {"do": "inject", "fault": "rank_frozen", "rank": drill.draw.randrange(8)})
    if not answer.get("ok"):
        raise RuntimeError(f"the testbed refused: {answer.get('error')}")
    row = await_incident(drill.stack, HUNG, time.time() + LIVE_SECONDS_MAX)
    if row is None or await_diagnosis(drill.stack, row["number"], time.time() + LIVE_SECONDS_MAX) is None:
        raise RuntimeError("the hang of the second job was not found")
    drill.incident = row["number"]
    time.sleep(3)  # its first revisions change the version
    acknowledge(drill)
    say(f"incident {row['number']} is open and acknowledged: {row['headline']}")


def acknowledge(drill: Drill) -> None:
    give_up_at = time.time() + LIVE_SECONDS_MAX
    while time.time() < give_up_at:
        with contextlib.suppress(*AWAY):
            version = drill.browser.get(f"incidents/{drill.incident}")["incident"]["version"]
            drill.browser.act(drill.incident or 0, "acknowledge", {"version": version, "note": "kills"}, key="ack")
            drill.acts.append("kills")
            return
        time.sleep(0.2)
    raise RuntimeError("the incident could not be acknowledged")


def judge(drill: Drill) -> dict[str, Any]:
    """Losses, false incidents and disorder, each said; the JSON keys of it."""
    stored = read_stored(drill.stack)
    nodes = drill.browser.get("nodes")["nodes"]
    rows = {name: drill.stack.incidents(name) for name in (LOAD_JOB, HEALTHY, HUNG)}
    false = [*rows[LOAD_JOB], *rows[HEALTHY], *(row for row in rows[HUNG] if row["number"] != drill.incident)]
    missing = lost(stored, drill.load.nodes, LOAD_JOB)
    faults = stored.disorder + drill.browser.disorder + unexplained(stored, drill.load.nodes, nodes)
    n_lost = 0
    if drill.incident is not None:
        kept = [row for row in rows[HUNG] if row["number"] == drill.incident]
        n_lost = 1 - len(kept)
        if kept:
            detail = drill.browser.get(f"incidents/{drill.incident}")
            faults += timeline_faults(detail["timeline"], drill.acts)
            if detail["incident"]["state"] != "acknowledged":
                faults.append(f"nobody touched it, but the incident is {detail['incident']['state']}")
    for row in false:
        say(f"FALSE incident {row['number']} of {row['job']}: {row['headline']}")
    for fault in (*missing[:10], *faults[:20]):
        say(f"FAULT {fault}")
    return {
        "batches_acknowledged": drill.load.n_acknowledged(),
        "batches_lost": len(missing),
        "batches_repeated": stored.repeated(),
        "incidents_lost": n_lost,
        "false_incidents": len(false),
        "faults": len(faults),
        "losses_counted": counted_losses(nodes),
        "acts": len(drill.acts),
        "live_messages": drill.browser.n_messages,
    }


def counted_losses(nodes: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Kind → count, over all nodes."""
    summed: dict[str, int] = {}
    for node in nodes:
        for kind, count in node["losses"].items():
            summed[kind] = summed.get(kind, 0) + count
    return summed


def by_part(recoveries: Sequence[Recovery]) -> dict[str, dict[str, Any]]:
    """Part → deaths, and the worst and the middle of the seconds from restart to everything live."""
    table: dict[str, dict[str, Any]] = {}
    for part in dict.fromkeys(one.part for one in recoveries):
        mine = [one for one in recoveries if one.part == part]
        seconds = sorted(one.seconds for one in mine if one.seconds is not None)
        from_kill = [one.from_kill_s for one in mine if one.from_kill_s is not None]
        table[part] = {
            "kills": len(mine),
            "never": len(mine) - len(seconds),
            "worst_s": round(seconds[-1], 2) if seconds else None,
            "median_s": round(statistics.median(seconds), 2) if seconds else None,
            "worst_from_kill_s": round(max(from_kill), 2) if from_kill else None,
        }
    return table


def table_of(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'part':<12}{'kills':>6}{'never':>6}{'median s':>10}{'worst s':>9}{'from kill s':>13}"]
    for part, row in found.items():
        lines.append(f"{part:<12}{row['kills']:>6}{row['never']:>6}{row['median_s'] or '–':>10}"
                     f"{row['worst_s'] or '–':>9}{row['worst_from_kill_s'] or '–':>13}")  # fmt: skip
    return "\n".join(lines)


def run(drill: Drill, order: Sequence[str], outage_s: float, hung: LiveJob | None) -> None:
    """All kills in this order, a hang after the first quarter of them, the outage last."""
    for number, part in enumerate(order):
        if hung is not None and number == len(order) // 4:
            open_incident(drill, hung)
        drill.rest(drill.draw.uniform(*REST_SECONDS))
        say(f"[{number + 1}/{len(order)}] {drill.kill(part)}")
        if drill.incident is not None:
            drill.act(f"after kill {number + 1}: {part}")
    if outage_s > 0:
        say(f"away for {outage_s:.0f} s: {drill.outage('postgres', outage_s)}")
        if drill.incident is not None:
            drill.act("after the outage")


def drill_stack(seed: int, order: Sequence[str], n_nodes: int, outage_s: float, hang: bool) -> dict[str, Any]:
    """The whole suite: the JSON object."""
    with contextlib.ExitStack() as stacked:
        stack = stacked.enter_context(RunningStack())
        folder = Path(stacked.enter_context(tempfile.TemporaryDirectory(prefix="diogenes-load-")))
        overridden = stack.settings_overridden()
        healthy = stacked.enter_context(training(stack, HEALTHY))
        hung = stacked.enter_context(training(stack, HUNG)) if hang else None
        load = stacked.enter_context(Load(stack.ingest_url, stack.agent_token_file, folder, n_nodes))
        browser = stacked.enter_context(Browser(stack.port, stack.manage("signin_link").splitlines()[-1]))
        drill = Drill(stack, load, healthy, browser, random.Random(seed))
        for name in (HEALTHY, LOAD_JOB, *([HUNG] if hang else [])):
            wait_for_data(stack, name)
        drill.rest(TRAIN_SECONDS)
        run(drill, order, outage_s, hung)
        drained_s = drill.drain()
        say("the spools never drained" if drained_s is None else f"the spools were empty after {drained_s:.1f} s")
        drill.rest(5.0)
        verdict = judge(drill)
    table = by_part(drill.recoveries)
    print(table_of(table), flush=True)
    seconds = [one.seconds for one in drill.recoveries]
    worst = None if not seconds or None in seconds else round(max(s for s in seconds if s is not None), 2)
    head = {"suite": "kills", "seed": seed, "settings_overridden": overridden, "kills": len(drill.recoveries)}
    drained = None if drained_s is None else round(drained_s, 1)
    return {**head, **verdict, "worst_recovery_s": worst, "drained_s": drained, "outage_s": outage_s, "by_part": table}


def main() -> int:
    logging.getLogger("diogenes.agent").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    parser.add_argument("--parts", default=",".join(parts.PARTS), help="comma-separated, for a shorter run")
    parser.add_argument("--repeats", type=int, default=3, help="kills of each part")
    parser.add_argument(
        "--outage-s", type=float, default=OUTAGE_SECONDS, help="how long Postgres is away; 0: not at all"
    )
    parser.add_argument("--nodes", type=int, default=30, help="nodes of the light load")
    parser.add_argument("--no-hang", action="store_true", help="without the second job and its incident")
    chosen = parser.parse_args()
    order = [part for part in chosen.parts.split(",") for _ in range(chosen.repeats)]
    random.Random(chosen.seed).shuffle(order)
    minutes = (len(order) * 15 + chosen.outage_s + 90) / 60
    say(
        f"{len(order)} kills and {chosen.outage_s:.0f} s without Postgres, seed {chosen.seed}, about {minutes:.0f} minutes"
    )
    verdict = drill_stack(chosen.seed, order, chosen.nodes, chosen.outage_s, not chosen.no_hang)
    for name in lost_in(verdict):
        say(f"FAULT {name}: {verdict[name]}")
    print(json.dumps(verdict))
    return 1 if lost_in(verdict) else 0


def lost_in(verdict: Mapping[str, Any]) -> list[str]:
    """Keys that say something was lost, invented, repeated, or never came back."""
    counted = [name for name in MUST_BE_NONE if verdict[name]]
    return counted + [name for name in ("worst_recovery_s", "drained_s") if verdict["kills"] and verdict[name] is None]


if __name__ == "__main__":
    sys.exit(main())
