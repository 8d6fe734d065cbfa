"""axe finds nothing on any page, in both themes. What axe cannot see (canvases) test_console.py tries by keyboard."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import FRONTEND, PHONE, OpenAs
from tests.browser.stack import Stack

pytestmark = pytest.mark.browser
AXE = FRONTEND / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
    (v) => [v.id, v.impact, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.any.map((a) => a.message).join())])"""


def violations(page: Page) -> list[Any]:
    # evaluate, not add_script_tag: the page's own policy refuses inline scripts, as it should
    page.evaluate(AXE.read_text())
    found: list[Any] = page.evaluate(RUN)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(theme: str, stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("ada", "/", theme=theme)
    paths = {
        "/": ".incident-card",
        "/incidents": ".incident-list li",
        f"/incidents/{incident.pk}": ".lanes",
        f"/incidents/{incident.pk}?tab=activity": ".timeline",
        f"/incidents/{incident.pk}?tab=why-not&rank=0": ".answer",
        f"/incidents/{incident.pk}?tab=looks&grid=table&lanes=table": "#tab-panel table",
        f"/incidents/{incident.pk}?tab=raw": "pre",
        f"/jobs/{incident.job_id}": ".figure svg",
        f"/jobs/{incident.job_id}/settings": ".value-field",
        "/nodes": "tbody tr",
        "/settings": ".token-form",
    }
    found = {}
    for path, sign in paths.items():
        page.goto(stack.server.url + path)
        expect(page.locator(sign).first).to_be_visible()
        found[path] = violations(page)
    assert not {path: what for path, what in found.items() if what}


def test_axe_finds_nothing_in_dialogs_and_on_a_phone(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}", viewport=PHONE)
    expect(page.locator(".lanes")).to_be_visible()
    assert not violations(page)
    page.get_by_role("button", name="Resolve").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not violations(page)


@pytest.mark.parametrize("path", ["/signin", "/no/such/page"])
def test_axe_finds_nothing_on_pages_the_server_draws(path: str, stack: Stack, chrome: Browser) -> None:
    page = chrome.new_page()
    page.goto(stack.server.url + path)
    assert not violations(page)
