"""axe finds nothing on any page, in both themes. What axe cannot see (canvases) test_console.py tries by keyboard."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import FRONTEND, PHONE, OpenAs
from tests.browser.stack import Stack

pytestmark = pytest.mark.browser
AXE = FRONTEND / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async (rules) => (await axe.run(document, { resultTypes: ["violations"], ...rules })).violations.map(
    (v) => [v.id, v.impact, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.any.map((a) => a.message).join())])"""
# What a page is made of is the same in both themes.
OF_COLOUR = {"runOnly": ["color-contrast", "link-in-text-block"]}


def violations(page: Page, rules: dict[str, Any] | None = None) -> list[Any]:
    # evaluate, not add_script_tag: the page's own policy refuses inline scripts, as it should
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found: list[Any] = page.evaluate(RUN, rules or {})
    return found


def violations_in_both_themes(page: Page) -> list[Any]:
    """Every rule in the light, those of colour in the dark; the page follows the system's choice."""
    page.emulate_media(color_scheme="light")
    light = violations(page)
    page.emulate_media(color_scheme="dark")
    return light + [("dark", *found) for found in violations(page, OF_COLOUR)]


def test_axe_finds_nothing_on_any_page_in_either_theme(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("ada")
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
        "/settings": ".scopes, .token-form",
        "/audit": "tbody tr",
        "/silences?new=maintenance": ".matcher",
    }
    found = {}
    for path, sign in paths.items():
        if page.url != stack.server.url + path:
            page.goto(stack.server.url + path)
        expect(page.locator(sign).first).to_be_visible()
        found[path] = violations_in_both_themes(page)
    assert not {path: what for path, what in found.items() if what}


def test_axe_finds_nothing_in_dialogs_and_on_a_phone(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}", viewport=PHONE)
    expect(page.locator(".lanes")).to_be_visible()
    assert not violations(page)
    page.get_by_role("button", name="Resolve").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not violations(page)


def test_axe_finds_nothing_on_pages_the_server_draws(stack: Stack, chrome: Browser) -> None:
    page = chrome.new_page()
    for path in ("/signin", "/no/such/page"):
        page.goto(stack.server.url + path)
        assert not violations_in_both_themes(page), path
