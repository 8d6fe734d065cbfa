"""Every page under the strict policy: no inline script, no inline style, nothing from elsewhere, and no page breaks by it.

The browser tells of each violation; a page that is drawn and tells of none is within the policy.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from console.accounts.grants import oidc_app, origins_of, read_grants
from tests.bench.console_files import first_js_kb
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.console.accounts.identity_provider import CLIENT_ID, SECRET, Provider, running

pytestmark = pytest.mark.browser
LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (seen) =>
  window.violations.push(`${seen.effectiveDirective} ${seen.blockedURI} ${seen.sourceFile}:${seen.lineNumber}`));
"""
FIRST_JS_KB_MAX = 60
PAGES = (
    "/",
    "/incidents",
    "/nodes",
    "/silences",
    "/destinations",
    "/scorecard",
    "/settings",
    "/audit",
    "/bundle",
    "/questions",
    "/no/such/page",
)


def violations(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.violations")
    return found


def visit(page: Page, url: str) -> list[str]:
    """What a page violates while it is opened and drawn, and where it asked for anything elsewhere."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.wait_for_load_state("networkidle")
    origin = "/".join(url.split("/")[:3])
    own = (origin, origin.replace("http", "ws"), "data:", "blob:")
    return [f"{url}: {said}" for said in violations(page)] + [one for one in asked if not one.startswith(own)]


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_no_page_violates_the_policy_or_asks_elsewhere(stack: Stack, open_as: OpenAs, viewport: Any) -> None:
    incident = stack.stalling_job()
    page = open_as("ada", "/", viewport=viewport)
    page.add_init_script(LISTEN)
    wrong = [said for path in PAGES for said in visit(page, stack.server.url + path)]
    job = f"/jobs/{incident.job_id}"
    for path in (job, f"{job}/settings", f"{job}/ranks/3", "/nodes/node-1", f"/incidents/{incident.pk}"):
        wrong += visit(page, stack.server.url + path)
    assert wrong == []


def test_every_tab_of_an_incident_is_within_the_policy(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("ada", "/")
    page.add_init_script(LISTEN)
    page.goto(f"{stack.server.url}/incidents/{incident.pk}")
    tabs = page.get_by_role("tab")
    expect(tabs.first).to_be_visible()
    for tab in tabs.all():
        tab.click()
        page.wait_for_load_state("networkidle")
    assert violations(page) == []


def test_a_chart_is_drawn_without_styles_of_its_own(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("ada", "/")
    page.add_init_script(LISTEN)
    page.goto(f"{stack.server.url}/jobs/{incident.job_id}")
    figure = page.locator(".js-plotly-plot").first
    figure.scroll_into_view_if_needed()
    drawing = figure.locator(".main-svg").first
    expect(drawing).to_be_visible()
    assert drawing.evaluate("(svg) => getComputedStyle(svg).position") == "absolute"
    assert page.locator("style").count() == 0
    assert violations(page) == []


def test_a_chart_with_a_colour_bar_violates_nothing(stack: Stack, open_as: OpenAs) -> None:
    """Plotly sets an empty style attribute on each; bars are drawn of what is measured on the wire, which this job is not."""
    incident = stack.stalling_job()
    page = open_as("ada", "/")
    page.add_init_script(LISTEN)
    heat = {"type": "heatmap", "z": [[1, 2], [3, 4]], "colorbar": {"orientation": "h"}}
    figure = {"data": [heat], "layout": {}, "config": {}, "text": "Four cells."}
    page.route(re.compile(r"/jobs/\d+/figures/throughput"), lambda route: route.fulfill(json=figure))
    page.goto(f"{stack.server.url}/jobs/{incident.job_id}")
    bar = page.locator(".js-plotly-plot .cbfill").first
    expect(bar).to_be_attached(timeout=20_000)
    assert violations(page) == []


def test_the_page_of_the_api_is_drawn_from_here_alone(stack: Stack, open_as: OpenAs) -> None:
    page = open_as("ada", "/")
    page.add_init_script(LISTEN)
    assert visit(page, f"{stack.server.url}/api/v1/docs") == []
    expect(page.get_by_role("heading", name=re.compile("Diogenes"))).to_be_visible()
    operation = page.locator("#operations-incidents-incident_acknowledge, [id$=incident_acknowledge]").first
    operation.locator("button").first.click()
    expect(operation.get_by_text("Looking at node gpu-17.")).to_be_visible()
    assert violations(page) == []


def test_the_first_page_brings_little_script() -> None:
    """What every page loads before it shows anything, without what is fetched later, as plotly."""
    assert 10 < first_js_kb() <= FIRST_JS_KB_MAX


def test_a_stranger_sees_the_sign_in_page_within_the_policy(stack: Stack, chrome: Browser) -> None:
    page = chrome.new_page()
    page.add_init_script(LISTEN)
    assert visit(page, f"{stack.server.url}/signin") == []
    assert visit(page, f"{stack.server.url}/signin/no-such-link") == []


def test_a_page_cannot_run_what_is_put_into_it(stack: Stack, open_as: OpenAs) -> None:
    """The test of the tests: the policy is in force, and a violation is noticed."""
    page = open_as("ada", "/")
    page.evaluate(LISTEN)
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\">x</p><img src=x onerror=\"window.ran=1\">')"
    )
    page.wait_for_function("window.violations.length >= 2")
    assert page.evaluate("window.ran") is None


def test_signing_in_at_a_provider_leaves_and_comes_back_within_the_policy(
    stack: Stack, chrome: Browser, settings: Any
) -> None:
    person = {"sub": "8f1c", "preferred_username": "olga", "groups": ["sre"]}
    with running(Provider(person)) as provider:
        environment = {
            "DIOGENES_OIDC_ISSUER": provider.issuer, "DIOGENES_OIDC_CLIENT_ID": CLIENT_ID,
            "DIOGENES_OIDC_CLIENT_SECRET": SECRET, "DIOGENES_OIDC_GROUPS": "sre=training:responder",
        }  # fmt: skip
        settings.OIDC_NAME, settings.OIDC_GROUPS = "Example Login", read_grants("sre=training:responder")
        settings.SOCIALACCOUNT_PROVIDERS = {"oidc": {"APPS": [oidc_app(environment)]}}
        settings.CONTENT_SECURITY_POLICY += origins_of(environment)
        page = chrome.new_page()
        page.goto(f"{stack.server.url}/incidents")
        page.get_by_role("button", name="Sign in with Example Login").click()
        expect(page.get_by_role("heading", name="Incidents", level=1)).to_be_visible()
        expect(page).to_have_url(f"{stack.server.url}/incidents")
