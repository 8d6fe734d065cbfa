"""How fast the console is at 10,000 and 100,000 ranks: a real stack, real batches, real sockets, a real browser.

`python -m tests.bench.console [--sizes 10000] [--updates 60] [--acts 60]`. A job hangs; its batches go through ingest, the
worker opens the incident, and Chromium opens its page. Per size: `first_paint_ms`, from the start of navigation with an empty
cache until the grid of all ranks has been presented (median); `grid_p95_ms`, from the arrival of a binary frame until the
grid is painted, while processes of the job die; `lanes_p95_ms`, from a key or wheel that zooms until 256,000 segments of
lanes are painted anew. Of the smaller size also: `ack_p95_ms`, an acknowledgement or its return from the page's click
to the server's answer; `event_p95_ms`, from when an act was written until the browser and 199 other sockets have heard of it.

A busy machine makes all of this slower: the load is printed, and stands in the last line. At 100,000 ranks 12,500 nodes must
join first, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from statistics import median
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

from playwright.sync_api import Browser, Page, sync_playwright

from nccl_instrument.simulate.bar import Bar
from tests.bench.console_files import first_js_kb
from tests.bench.console_job import HEALTHY, NAME, RANKS, HangingJob
from tests.bench.console_lanes import measure_lanes
from tests.bench.console_page import FLAGS, first_paint, open_page, samples, transferred, wait_until
from tests.bench.console_send import Senders
from tests.bench.ingest import say
from tests.eval.stack import RunningStack

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SIZES: Final = (10_000, 100_000)
LANES_OF: Final = 10  # ranks
STALLED_LAPS: Final = {10_000: 7}
STALLED_LAPS_BEYOND: Final = 3
"""Enough to be noticed; what it takes to draw lanes does not depend on the ranks, so only the smaller job fills their minute."""
LAP_S: Final = 8.0  # at least: of more nodes one takes as long as sending does
"""Of the job's clock between two batches of a node: less than after what a node is silent."""
KILLED_AT_ONCE: Final = 8
SOCKETS: Final = 200
ACT_EVERY_S: Final = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="ranks, with commas between them")
    parser.add_argument("--updates", type=int, default=60, help="grid updates to be measured")
    parser.add_argument("--seconds", type=float, default=150, help="to wait for so many at most")
    parser.add_argument("--opens", type=int, default=7, help="pages opened with an empty cache")
    parser.add_argument("--acts", type=int, default=60)
    parser.add_argument("--sockets", type=int, default=SOCKETS)
    chosen = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("There is no Chromium: `make browser` installs it.")
    found: dict[str, Any] = {"first_js_kb": first_js_kb()}
    loads = [os.getloadavg()[0]]
    for number, size in enumerate(int(size) for size in chosen.sizes.split(",")):
        found[str(size)] = measure(size, chosen, found if number == 0 else None)
        loads.append(os.getloadavg()[0])
    print(json.dumps({"bench": "console", "cores": os.cpu_count(), "load": [round(one, 1) for one in loads], **found}))


def measure(size: int, chosen: argparse.Namespace, shared: dict[str, Any] | None) -> dict[str, Any]:
    """What one size takes. shared: where to put what does not depend on the size, None to leave that out."""
    say(f"{size} ranks: the stack starts")
    with RunningStack() as stack, Senders(stack.port + 1, stack.agent_token_file.read_text().strip()) as senders:
        scene = Scene(stack, HangingJob(size), senders)
        scene.prepare()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            try:
                found = measure_pages(scene, browser, chosen)
                if shared is not None:
                    shared |= measure_people(scene, browser, chosen)
                found |= measure_grid(scene, browser, chosen)  # last: what it tells changes the diagnosis
            finally:
                browser.close()
    for name, value in found.items():
        print(f"{name:>24}  {value}", flush=True)
    return found


@dataclass
class Scene:
    """A running stack with a job that hangs. number: of its incident."""

    stack: RunningStack
    job: HangingJob
    senders: Senders
    number: int = 0
    jar: CookieJar = field(default_factory=CookieJar)
    at: float = 0.0
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def prepare(self) -> None:
        self._sign_in()
        self._run_job()
        say(f"{self.job.n_ranks} ranks: waiting for the diagnosis")
        if not wait_until(self._is_named, 180, 1.0):
            titles = [f"{row['title']} {row['culprits'][:8]}" for row in self.stack.incidents(NAME)]
            raise SystemExit(f"rank {self.job.culprit} is not named, but {titles}: this would measure something else")

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.stack.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/incidents/{self.number}"

    @property
    def cookie(self) -> dict[str, str]:
        session = next(one for one in self.jar if one.name == "sessionid")
        return {"name": "sessionid", "value": session.value or "", "url": self.base}

    def _sign_in(self) -> None:
        link = self.stack.manage("signin_link").split()[-1]
        opener = build_opener(HTTPCookieProcessor(self.jar))
        form = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', opener.open(link, timeout=60).read().decode())
        assert form is not None, "the sign-in page has no form"
        opener.open(link, urlencode({"csrfmiddlewaretoken": form[1]}).encode(), timeout=60).read()

    def _run_job(self) -> None:
        laps = HEALTHY + STALLED_LAPS.get(self.job.n_ranks, STALLED_LAPS_BEYOND)
        bar = Bar(laps * self.job.n_nodes, "batches")
        start = time.monotonic() - LAP_S
        self.job.began_ns = time.time_ns() - int(LAP_S * 1e9)
        for lap in range(laps):
            began = time.monotonic()
            self.job.clock_ns = int((began - start) * 1e9)
            for at, batch in enumerate(self.job.lap_of_all()):
                self.senders.send_one(*batch, began)
                bar.tell(lap * self.job.n_nodes + at)
            self.senders.settle()
            time.sleep(max(0.0, LAP_S - (time.monotonic() - began)))
            self.at = began
        bar.end()

    def _is_named(self) -> bool:
        rows = [row for row in self.stack.incidents(NAME) if self.job.culprit in row["culprits"]]
        self.number = rows[0]["number"] if rows else 0
        return bool(rows)

    def news(self) -> None:
        """Some processes end, and their nodes tell of it."""
        ranks = [self.draw.randrange(self.job.n_ranks) for _ in range(KILLED_AT_ONCE)]
        self.job.gone ^= set(ranks)
        now = time.monotonic()
        self.job.clock_ns, self.at = self.job.clock_ns + int((now - self.at) * 1e9), now
        self.senders.send((node, self.job.batch(node)) for node in sorted({rank // RANKS for rank in ranks}))


def measure_pages(scene: Scene, browser: Browser, chosen: argparse.Namespace) -> dict[str, Any]:
    say(f"{scene.job.n_ranks} ranks: opening the page {chosen.opens} times")
    paints, sizes = [], {}
    for _ in range(chosen.opens):
        page = open_page(browser, scene.url, scene.cookie)
        paints.append(first_paint(page))
        sizes = transferred(page)
        page.context.close()
    return {
        "first_paint_ms": round(median(one["grid"] for one in paints), 1),
        "first_contentful_ms": round(median(one["contentful"] for one in paints), 1),
        "first_paint_max_ms": round(max(one["grid"] for one in paints), 1),
        "first_open_bytes": sizes,
        **measure_lanes(scene.url, scene.cookie, browser, scene.job.waiting()[:LANES_OF]),
    }


def measure_grid(scene: Scene, browser: Browser, chosen: argparse.Namespace) -> dict[str, Any]:
    page = open_page(browser, scene.url, scene.cookie)
    first_paint(page)
    say(f"{scene.job.n_ranks} ranks: {chosen.updates} updates of the grid, as processes end and come back")
    bar, n_before, deadline = (
        Bar(chosen.updates, "updates"),
        len(samples(page, "grid")),
        time.monotonic() + chosen.seconds,
    )
    n = 0
    while n < chosen.updates and time.monotonic() < deadline:
        scene.news()
        time.sleep(0.5)
        n = len(samples(page, "grid")) - n_before
        bar.tell(n)
    bar.end()
    found = samples(page, "grid")[n_before:]
    frames: list[dict[str, Any]] = page.evaluate("window.__bench.frames")
    deltas = [one["bytes"] for one in frames if one["kind"] == 1]
    page.context.close()
    whole = [one["bytes"] for one in frames if one["kind"] == 2]
    if not found:
        raise SystemExit("the grid was never updated: this would measure nothing")
    return {
        "grid_p95_ms": p95([one["took"] for one in found]),
        "grid_frame_p95_ms": p95([one["frame"] for one in found if one["frame"] is not None]),
        "grid_updates": len(found),
        "delta_bytes": round(median(deltas)) if deltas else None,
        "whole_bytes": round(median(whole)) if whole else None,
    }


ACT: Final = """async ([number, verb]) => {
  const session = await (await fetch("/api/v1/session")).json();
  const headers = {"Content-Type": "application/json", "X-CSRFToken": session.csrf, "If-Match": "*",
                   "Idempotency-Key": crypto.randomUUID()};
  const from = performance.now();
  const answer = await fetch(`/api/v1/incidents/${number}/${verb}`, {method: "POST", headers, body: "{}"});
  await answer.json();
  return [answer.status, performance.now() - from];
}"""


def measure_people(scene: Scene, browser: Browser, chosen: argparse.Namespace) -> dict[str, Any]:
    """Acknowledging from the page, first with nobody else there, then with all sockets open."""
    page = open_page(browser, scene.url, scene.cookie)
    first_paint(page)
    say(f"{chosen.acts} acts from the page")
    alone = acts(scene, page, chosen.acts)
    say(f"{chosen.sockets - 1} other sockets open; {chosen.acts} acts from the page")
    with Crowd(scene, chosen.sockets - 1) as crowd:
        page.evaluate("window.__bench.events.length = 0")
        together = acts(scene, page, chosen.acts)
        wait_until(lambda: len(page.evaluate("window.__bench.events")) >= chosen.acts, 20)
        in_browser: list[float] = page.evaluate("window.__bench.events")
        time.sleep(2)
        heard = crowd.ask()
    page.context.close()
    n_missed = chosen.acts * (chosen.sockets - 1) - len(heard["late_ms"])
    return {
        "ack_p95_ms": p95(alone), "ack_p50_ms": round(median(alone), 1), "ack_crowd_p95_ms": p95(together),
        "event_p95_ms": p95([*heard["late_ms"], *in_browser]), "event_p50_ms": round(median(heard["late_ms"]), 1),
        "event_browser_p95_ms": p95(in_browser), "sockets": chosen.sockets, "events_missed": n_missed,
        "sockets_ended": len(heard["ended"]), "live_bytes": heard["kinds"],
    }  # fmt: skip


def acts(scene: Scene, page: Page, n: int) -> list[float]:
    """ms from the page's request to its answer, of acknowledging and taking it back in turn."""
    took, bar = [], Bar(n, "acts")
    for k in range(n):
        status, ms = page.evaluate(ACT, [scene.number, ("acknowledge", "unacknowledge")[k % 2]])
        if status != 200:
            raise SystemExit(f"an act was answered with {status}")
        took.append(ms)
        bar.tell(k)
        time.sleep(ACT_EVERY_S)
    bar.end()
    return took


class Crowd:
    """`with Crowd(scene, n) as crowd:` n sockets are open in a process of their own; `ask()` ends them and tells."""

    def __init__(self, scene: Scene, n: int) -> None:
        row = scene.stack.get(f"incidents/{scene.number}")
        team = scene.stack.get("jobs")["stream"]
        streams = [row["stream"], team, {"name": f"topology:{scene.number}", "epoch": "", "offset": 0}]
        cookie = f"sessionid={scene.cookie['value']}"
        argv = [sys.executable, "-m", "tests.bench.console_sockets", f"ws://127.0.0.1:{scene.stack.port}/ws/v1/"]
        argv += [cookie, str(n), json.dumps(streams)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Crowd:
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "READY":
            raise SystemExit("the sockets could not be opened")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ask(self) -> dict[str, Any]:
        said, _ = self.process.communicate("end\n", timeout=60)
        found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        return found


def p95(values: list[float]) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) * 95 // 100, len(ordered) - 1)], 1)


if __name__ == "__main__":
    main()
