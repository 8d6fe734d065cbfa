"""The time scrubber in a real browser: dragged, walked by keys, taken back, sent to somebody else."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from console.incidents.models import Incident
from console.incidents.pictures.evidence import incident_grid
from console.incidents.pictures.grid import DEAD
from console.incidents.pictures.topology import publish_grid
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.browser.test_accessibility import violations

pytestmark = pytest.mark.browser


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Moment shown")


def banner(page: Page) -> Locator:
    return page.locator(".scrubber-shown")


def states(page: Page) -> Locator:
    return page.get_by_role("list", name="States of the ranks")


def grid_said(page: Page) -> Locator:
    return page.locator("#topology + span")


def opened(open_as: OpenAs, incident: Incident, query: str = "", **how: object) -> Page:
    page = open_as("rita", f"/incidents/{incident.pk}{query}", **how)
    expect(slider(page)).to_be_visible()
    expect(states(page)).to_contain_text("Culprit 1")
    return page


def drag_to(page: Page, share: float) -> None:
    """By the mouse, from the right end, in steps as a hand does."""
    slider(page).scroll_into_view_if_needed()
    box = slider(page).bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 8 + (box["width"] - 16) * share, middle, steps=12)
    page.mouse.up()


def at_of(page: Page) -> int:
    found = re.search(r"[?&]at=(\d+)", page.url)
    assert found, page.url
    return int(found[1])


def test_dragging_shows_the_job_as_it_was_and_the_link_shows_it_to_others(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident)
    drag_to(page, 0.1)
    expect(page).to_have_url(re.compile(r"[?&]at=\d{13}"))
    expect(banner(page)).to_contain_text(re.compile(r"\d\d:\d\d:\d\d\s*UTC, .* ago"))
    expect(states(page)).to_contain_text("Healthy 8")
    expect(grid_said(page)).to_contain_text("as at")
    page.get_by_role("tab", name="Activity").click()
    page.get_by_role("grid").click(position={"x": 30, "y": 40})
    expect(page).to_have_url(re.compile(r"rank=\d"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    assert {"at", "from", "to", "tab", "rank"} <= set(re.findall(r"[?&](\w+)=", link))
    other = open_as("vera", link.removeprefix(stack.server.url))
    expect(banner(other).locator("b")).to_have_text(banner(page).locator("b").inner_text())
    expect(states(other)).to_have_text(states(page).text_content() or "-")
    assert slider(other).get_attribute("aria-valuenow") == slider(page).get_attribute("aria-valuenow")
    expect(other.get_by_role("tab", name="Activity")).to_have_attribute("aria-selected", "true")
    expect(other.locator("#flows + span")).to_have_text(page.locator("#flows + span").inner_text())
    expect(other.locator(".ruler").last).to_have_text(page.locator(".ruler").last.text_content() or "-")


def test_back_and_forward_walk_through_the_moments(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident)
    drag_to(page, 0.1)
    expect(states(page)).to_contain_text("Healthy 8")
    early = at_of(page)
    banner(page).get_by_role("button", name="Back to").click()
    expect(states(page)).to_contain_text("Culprit 1")
    assert "at=" not in page.url
    page.go_back()
    expect(states(page)).to_contain_text("Healthy 8")
    assert at_of(page) == early
    page.go_forward()
    expect(states(page)).to_contain_text("Culprit 1")


def test_keys_alone_reach_every_second_and_every_moment(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident)
    slider(page).focus()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile("at="))
    last = at_of(page)
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(f"at={last - 1000}"))
    page.keyboard.press("PageDown")
    expect(page).to_have_url(re.compile(f"at={last - 11_000}"))
    page.keyboard.press("Home")
    expect(states(page)).to_contain_text("Healthy 8")
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("UTC, .* ago"))
    page.keyboard.press("End")
    expect(states(page)).to_contain_text("Culprit 1")
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("^(live|newest)"))
    page.get_by_role("button", name="Moment before").press("Enter")
    expect(page).to_have_url(re.compile("at="))
    option = page.get_by_label("Go to a moment").locator("option", has_text="first symptom")
    page.get_by_label("Go to a moment").select_option(value=option.get_attribute("value"))
    expect(page).to_have_url(re.compile(f"at={round(incident.first_symptom_ns / 1e6)}"))


def test_the_lanes_and_the_stacks_follow_the_moment(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident, "?tab=stacks")
    drag_to(page, 0.5)
    expect(page.locator(".lane-pin").last).to_be_visible()
    expect(page.locator(".dumps-moment")).to_contain_text("None had been asked for at")
    page.locator(".dumps-moment").get_by_role("button", name="Show the first").click()
    expect(page.locator(".dumps-moment")).to_contain_text("after the moment shown")
    banner(page).get_by_role("button", name="Back to").click()
    expect(page.locator(".dumps-moment")).to_have_count(0)
    expect(page.locator(".lane-pin")).to_have_count(0)


def test_what_happens_meanwhile_does_not_move_the_moment(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident)
    drag_to(page, 0.1)
    expect(states(page)).to_contain_text("Healthy 8")
    before = at_of(page)
    page.get_by_role("button", name="Acknowledge").first.click()
    expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    expect(states(page)).to_contain_text("Healthy 8")
    assert at_of(page) == before


def heard(page: Page, frames: list[str | bytes], is_it: Callable[[str | bytes], bool]) -> None:
    """Wait until the page's socket has brought such a frame, and the page has had time to paint it."""
    give_up_at = time.monotonic() + 60
    while not any(is_it(frame) for frame in list(frames)):
        assert time.monotonic() < give_up_at, "no such frame"
        page.wait_for_timeout(50)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_a_new_grid_does_not_move_the_moment(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident)
    drag_to(page, 0.1)
    expect(states(page)).to_contain_text("Healthy 8")
    before, frames = at_of(page), list[str | bytes]()
    page.on("websocket", lambda socket: socket.on("framereceived", lambda said: frames.append(said)))
    page.reload()
    expect(states(page)).to_contain_text("Healthy 8")
    heard(page, frames, lambda one: isinstance(one, str) and f'"subscribed":"topology:{incident.pk}"' in one)

    def publish() -> None:
        grid = incident_grid(incident)
        publish_grid(incident.pk, dataclasses.replace(grid, state=[DEAD] * len(grid.rank)))

    stack.do(publish)
    heard(page, frames, lambda one: isinstance(one, bytes))
    expect(states(page)).to_have_text(re.compile("Healthy 8"))
    assert at_of(page) == before


def test_a_moment_of_which_nothing_is_known_is_refused_in_words_and_nobody_is_well(
    stack: Stack, open_as: OpenAs
) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?at=1700000000000")
    expect(page.locator(".scrubber-doubt")).to_contain_text("Nothing was known then")
    expect(states(page)).to_have_text("Unknown 8")


def test_a_job_without_an_incident_can_be_looked_back_at(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/jobs/{incident.job_id}")
    expect(slider(page)).to_be_visible()
    expect(states(page)).to_contain_text("Culprit 1")
    drag_to(page, 0.1)
    expect(states(page)).to_contain_text("Healthy 8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_a_phone_and_a_finger_moves_it(stack: Stack, open_as: OpenAs, theme: str) -> None:
    incident = stack.stalling_job()
    page = opened(open_as, incident, viewport=PHONE, theme=theme)
    box = slider(page).bounding_box()
    assert box is not None and box["height"] >= 44
    drag_to(page, 0.1)
    expect(states(page)).to_contain_text("Healthy 8")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
