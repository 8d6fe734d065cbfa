"""Redraws of the flow lanes: everything the server gives of ten ranks that wait for the culprit, zoomed and moved by keys.

The page asks for a culprit and the first eight who wait, of one communicator after the other; here most of these have few
flows. What it asks for is changed on its way, so that 256,000 segments are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from playwright.sync_api import Browser, Page, Route

from tests.bench.console_page import open_page, samples, wait_until

ZOOMS, REDRAWS = 4, 100
MORE_MAX: Final = 8
FLOWS: Final = "section[aria-labelledby=flows]"
SEGMENTS: Final = """async ([number, ranks]) => {
  const { lanes } = await (await fetch(`/api/v1/incidents/${number}/lanes?limit=1024&ranks=${ranks}`)).json();
  return [lanes.length, lanes.reduce((sum, lane) => sum + lane.t_ns.length, 0)];
}"""


def measure_lanes(url: str, cookie: dict[str, str], browser: Browser, ranks: Sequence[int]) -> dict[str, Any]:
    page = open_page(browser, url, cookie)
    names = ",".join(map(str, ranks))
    page.route(re.compile(r"/lanes(\?|$)"), partial(_of_ranks, names=names))
    page.reload()
    # Attached is enough: a canvas below the window covers nothing until it is scrolled to.
    page.wait_for_selector(f"{FLOWS} .lane-canvas canvas", timeout=120_000, state="attached")
    show_all(page)
    n_lanes, n_segments = page.evaluate(SEGMENTS, [int(url.rsplit("/", 1)[1]), names])
    slider = page.locator(f"{FLOWS} .crosshair")
    slider.scroll_into_view_if_needed()
    slider.focus()
    for _ in range(ZOOMS):
        press(page, "+")
    page.evaluate("window.__bench.lanes.length = 0")
    for k in range(REDRAWS):
        press(page, ("Shift+ArrowLeft", "Shift+ArrowRight")[k // 2 % 2])
    zoomed = [one["took"] for one in samples(page, "lanes")]
    page.evaluate("window.__bench.lanes.length = 0")
    for key in ("0", "+") * 10:
        press(page, key)
    whole = [one["took"] for one in samples(page, "lanes")]
    page.context.close()
    if len(zoomed) < REDRAWS // 2:
        raise SystemExit(f"only {len(zoomed)} redraws of the lanes: this would measure nothing")
    return {
        "lanes_p95_ms": sorted(zoomed)[len(zoomed) * 95 // 100], "lanes_p50_ms": median(zoomed),
        "lanes_whole_p50_ms": median(whole), "lanes": n_lanes, "segments": n_segments, "redraws": len(zoomed),
    }  # fmt: skip


def _of_ranks(route: Route, names: str) -> None:
    route.continue_(url=f"{route.request.url}{'&' if '?' in route.request.url else '?'}ranks={names}")


def show_all(page: Page) -> None:
    """Press what loads and shows more until nothing is left out."""
    more = page.locator(f"{FLOWS} button.more")
    for _ in range(MORE_MAX):
        if not more.count():
            return
        before = more.first.inner_text()
        more.first.click()
        wait_until(lambda before=before: not more.count() or more.first.inner_text() != before, 60)  # type: ignore[misc]


def press(page: Page, key: str) -> None:
    """And wait until what it caused was presented."""
    page.keyboard.press(key)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
