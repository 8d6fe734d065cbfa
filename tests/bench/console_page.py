"""The incident page in Chromium, and when it paints: a script that runs before the page's own watches its canvases.

A picture counts as painted when the job that painted it is over: its canvas was cleared, and the page's code returned.
Times are from the frame's arrival, or the key's, to that; `frame` adds the time until the browser had presented it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from playwright.sync_api import Browser, Page

FLAGS: Final = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
VIEW: Final = {"width": 1440, "height": 900}
WATCH: Final = """
(() => {
  const seen = window.__bench = { grid: [], lanes: [], first: {}, frames: [], events: [], from: { grid: null, lanes: null } };
  const own = CanvasRenderingContext2D.prototype.clearRect;
  const nameOf = (canvas) => canvas.closest(".lane-canvas") ? "lanes"
    : canvas.closest(".grid-overlay") && !canvas.classList.contains("marks") ? "grid" : null;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    const name = nameOf(this.canvas);
    if (name) queueMicrotask(() => painted(name, this.canvas));
    return own.apply(this, area);
  };
  function painted(name, canvas) {
    const at = performance.now();
    const from = seen.from[name];
    seen.from[name] = null;
    const entry = { at, took: from === null ? null : at - from, frame: null };
    requestAnimationFrame(() => setTimeout(() => {
      const presented = performance.now();
      if (from !== null) entry.frame = presented - from;
      if (canvas.width > 1) seen.first[name] ??= presented;
    }));
    seen[name].push(entry);
  }
  const Socket = window.WebSocket;
  window.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given);
      super.addEventListener("message", ({ data }) => {
        if (typeof data === "string") return text(data);
        seen.frames.push({ at: performance.now(), kind: new DataView(data).getUint8(0), bytes: data.byteLength });
        seen.from.grid = performance.now();
      });
    }
  };
  function text(data) {
    const frame = JSON.parse(data);
    if (frame.type !== "timeline.appended" || !["user", "api"].includes(frame.row.actor_kind)) return;
    seen.events.push(Date.now() - Date.parse(frame.row.at));
  }
  for (const kind of ["wheel", "keydown", "click"])
    window.addEventListener(kind, () => { seen.from.lanes = performance.now(); }, { capture: true, passive: true });
})();
"""


def open_page(browser: Browser, url: str, cookie: dict[str, str]) -> Page:
    """A page in a fresh context: nothing is in its cache."""
    context = browser.new_context(viewport=VIEW)  # type: ignore[arg-type]
    context.add_cookies([cookie])  # type: ignore[list-item]
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(url, wait_until="commit")
    return page


def first_paint(page: Page, timeout_s: float = 120) -> dict[str, float]:
    """ms from the start of navigation: until anything was shown, until the verdict was, until the grid was painted."""
    # Not wait_for_function: the page's policy forbids what it is made of.
    if not wait_until(lambda: page.evaluate("window.__bench?.first.grid > 0"), timeout_s):
        raise SystemExit("the grid was never painted")
    contentful = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
    return {
        "grid": page.evaluate("window.__bench.first.grid"),
        "contentful": page.evaluate(contentful),
    }


def transferred(page: Page) -> dict[str, int]:
    """Bytes over the wire by kind of resource, so far."""
    found: dict[str, int] = page.evaluate(
        """() => { const by = {}, ends = {"/topology": "grid", ".js": "js"};
        for (const { name, encodedBodySize: n } of performance.getEntriesByType("resource")) {
          const kind = Object.entries(ends).find(([end]) => name.endsWith(end))?.[1] ?? (name.includes("/api/") ? "api" : "rest");
          by[kind] = (by[kind] ?? 0) + n;
        } return by; }"""
    )
    return found


def samples(page: Page, name: str) -> list[dict[str, Any]]:
    """Paintings that something caused, oldest first."""
    found: list[dict[str, Any]] = page.evaluate(f"window.__bench.{name}.filter((one) => one.took !== null)")
    return found


def wait_until(enough: Callable[[], bool], seconds: float, pause_s: float = 0.2) -> bool:
    """Whether it came to be in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if enough():
            return True
        time.sleep(pause_s)
    return enough()
