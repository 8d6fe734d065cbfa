"""Access in the browser: who did what, and the tokens of scripts, by keyboard as well as by mouse."""

from __future__ import annotations

import csv
import io
import os
import re
from datetime import timedelta
from pathlib import Path

from django.test import Client
from playwright.sync_api import expect

from console.accounts.audit import note
from console.accounts.models import ApiToken, Role
from console.accounts.secrets import make_api_token
from ingest.models import Node, Team
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack


def noted(number: int) -> None:
    team_ids = list(Team.objects.values_list("pk", flat=True))
    for n in range(number):
        subject = f"incidents/{n + 1}/comments"
        note("user", "rita", "POST incidents/<int:number>/comments", subject=subject, team_ids=team_ids)
    note("command", "root", "made the team", subject="research", team_ids=team_ids)


def test_the_audit_is_narrowed_paged_linked_and_taken_away(stack: Stack, open_as: OpenAs, tmp_path: Path) -> None:
    stack.do(noted, 120)
    page = open_as("ada", "/")
    page.keyboard.press("Control+k")
    page.keyboard.type("audit")
    expect(page.get_by_role("option").first).to_contain_text("Audit")
    page.keyboard.press("Enter")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("made the team research")
    expect(rows.first).to_contain_text("command on the server")
    page.get_by_label("Who").select_option(label="person")
    expect(rows.first).to_contain_text("commented on incident 120")
    page.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(20)
    page.reload()  # all of it is in the address
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="Newer").click()
    expect(rows).to_have_count(100)
    rows.nth(2).get_by_title("A link to this entry").click()
    expect(page.locator("tr.chosen")).to_contain_text("commented on incident 118")
    link = page.url
    page.get_by_label("Search").fill("incidents/7/")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    with page.expect_download() as taking:
        page.get_by_role("button", name="Download CSV").click()
    taking.value.save_as(tmp_path / "audit.csv")
    said = list(csv.DictReader(io.StringIO((tmp_path / "audit.csv").read_text())))
    assert [one["words"] for one in said] == ["commented on incident 7"]
    page.get_by_role("button", name="Show all").click()
    expect(rows.first).to_contain_text("took the audit away")
    page.goto(link)
    expect(page.locator("tr.chosen")).to_contain_text("commented on incident 118")
    rows.nth(1).get_by_role("link", name="commented on incident 117").click()
    expect(page).to_have_url(re.compile("/incidents/117$"))


def test_the_audit_is_for_administrators(stack: Stack, open_as: OpenAs) -> None:
    page = open_as("rita", "/audit")
    expect(page.get_by_text("Only administrators of a team see who did what")).to_be_visible()
    expect(page.locator("header").get_by_role("link", name="Audit")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("who did what")
    expect(page.get_by_role("option").filter(has_text="Audit")).to_have_count(0)


def test_an_api_token_is_made_used_rotated_and_revoked_by_keyboard_alone(stack: Stack, open_as: OpenAs) -> None:
    page = open_as("ada", "/settings")
    page.locator("#api-token-label").focus()
    page.keyboard.type("loss watchdog")
    page.keyboard.press("Tab")
    page.keyboard.type("act")  # "act (responder)"
    page.locator(".scopes summary").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Trigger").focus()
    page.keyboard.press("Space")
    expect(page.locator(".scopes summary")).to_contain_text("Narrowed to 1 of")
    page.locator("#api-token-label").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It will not be shown again.")
    secret = re.search(r"dgs_api_[\w-]+", dialog.inner_text())
    assert secret
    asked = {"Authorization": f"Token {secret[0]}"}
    assert stack.do(lambda: Client(headers=asked).get("/api/v1/session").json()["role"]) == "responder"
    page.keyboard.press("Escape")
    row = page.get_by_role("row", name=re.compile("loss watchdog"))
    expect(row).to_contain_text("look, trigger (responder)")
    expect(row).to_contain_text("for 90 d")
    row.get_by_role("button", name="Rotate").focus()
    page.keyboard.press("Enter")
    page.get_by_label("How long the old one goes on").select_option(label="10 min")
    dialog.get_by_role("button", name="Rotate").focus()
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("Copy the token now")
    page.keyboard.press("Escape")
    expect(page.get_by_text("rotated, still good")).to_be_visible()
    row.first.get_by_role("button", name="Revoke").focus()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Revoke").focus()
    page.keyboard.press("Enter")
    expect(row.first).to_contain_text("revoked")
    expect(page.get_by_text("rotated, still good")).to_be_hidden()
    assert not stack.do(ApiToken.objects.filter(revoked_at=None).exists)  # the one it took the place of ends, too


def test_a_rack_under_maintenance_silences_what_is_blamed_on_its_nodes(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    stack.do(lambda: Node.objects.update(rack="r12", cluster="north"))
    stack.do(lambda: type(incident).objects.filter(pk=incident.pk).update(culprit_racks=["r12"], clusters=["north"]))
    page = open_as("rita", "/incidents?cluster=north", viewport=PHONE)
    expect(page.locator(".incident-list li")).to_have_count(1)
    page.goto(f"{stack.server.url}/silences?new=maintenance")
    page.get_by_label("Field 1").select_option(label="Culprit’s rack")
    expect(page.locator("datalist option")).to_have_text(["r12"])
    page.get_by_label("Values 1").fill("r1*")
    expect(page.get_by_text("Silences 1 incident now.")).to_be_visible()
    page.get_by_label("Begins (UTC)").fill("2099-01-01T08:00")
    page.get_by_label("Why?").fill("power feed")
    page.get_by_role("button", name="Plan maintenance").click()
    expect(page.get_by_text("A silence begins within 365 days.").first).to_be_visible()
    page.get_by_label("Begins (UTC)").fill("")
    page.get_by_role("button", name="Begin maintenance").click()
    expect(page.get_by_text("rack is r1*")).to_be_visible()
    page.goto(f"{stack.server.url}/incidents?state=silenced&rack=r12")
    expect(page.locator(".incident-list li")).to_have_count(1)


def test_a_leaked_token_is_revoked_with_what_was_made_with_it(stack: Stack, open_as: OpenAs) -> None:
    def leak() -> None:
        leaked, secret = make_api_token(Team.objects.get(), "leaked", Role.ADMIN, timedelta(days=5))
        asked = Client(headers={"Authorization": f"Token {secret}"})
        asked.post(
            "/api/v1/api-tokens", {"label": "child", "role": "viewer", "days": 3}, content_type="application/json"
        )
        asked.post(f"/api/v1/api-tokens/{leaked.pk}/rotate", {}, content_type="application/json")

    stack.do(leak)
    page = open_as("ada", "/settings")
    expect(page.get_by_role("row", name=re.compile("child"))).to_contain_text("with leaked")
    first = page.get_by_role("row", name=re.compile("leaked")).filter(has_text="Revoke with 2 more")
    expect(first).to_contain_text("revoked")  # by its own rotation
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=f"{folder}/tokens.png", full_page=True)
    first.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 other tokens end with it")
    if folder:
        page.screenshot(path=f"{folder}/tokens-dialog.png")
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("button", name=re.compile("^Revoke API token"))).to_have_count(0)
    assert not stack.do(ApiToken.objects.filter(revoked_at=None).exists)
