"""Every sort of destination by its name, and the settings that a form may give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.conf import settings as configured

from console.tickets.guard import objection_to, split
from console.tickets.kinds import (
    alertmanager,
    email,
    github,
    gitlab,
    jira,
    pagerduty,
    servicenow,
    slack,
    webhook,
)
from console.tickets.message import Config, Kind, Refused

KINDS: Final[dict[str, Kind]] = {
    module.KIND.name: module.KIND
    for module in (pagerduty, slack, webhook, alertmanager, jira, servicenow, github, gitlab, email)
}
VALUE_CHARS_MAX: Final = 1000


def parted(kind: Kind, given: Mapping[str, str], kept: Config) -> Config:
    """`given` as settings and secrets, over those that are `kept`. Raises Refused for what the kind does not take.

    An empty secret keeps the old one: forms never know it. A secret is only kept for the address it was entered for.
    """
    known = {one.name: one for one in kind.settings}
    if unknown := sorted(set(given) - set(known)):
        raise Refused(f"{kind.title} has no setting {unknown[0][:40]!r}")
    texts = {name: text.strip() for name, text in given.items()}
    settings = {**kept.settings, **{name: text for name, text in texts.items() if not known[name].is_secret}}
    fresh = {name: text for name, text in texts.items() if known[name].is_secret and text}
    _keep_with_address(kind, kept, settings, fresh)
    made = Config(kept.key, settings, {**kept.secrets, **fresh})
    _check(kind, made)
    return made


def objection_of(kind: Kind, settings: Mapping[str, str]) -> str:
    """Why nothing will be sent with these settings, as far as that shows before it is tried."""
    addresses = (settings.get(one.name, "") for one in kind.settings if one.is_address and not one.is_secret)
    found = (objection_to(address, configured.TICKETS_HOSTS) for address in addresses if address)
    return next((why for why in found if why), "")


def _keep_with_address(kind: Kind, kept: Config, settings: Mapping[str, str], fresh: Mapping[str, str]) -> None:
    moved = [one.name for one in kind.settings if one.is_address and not one.is_secret
             and settings.get(one.name, "") != kept.settings.get(one.name, "")]  # fmt: skip
    if moved and (stale := sorted(set(kept.secrets) - set(fresh))):
        words = next((one.words for one in kind.settings if one.name == stale[0]), stale[0])
        raise Refused(f"another address: enter “{words}” again, so that nobody leads secrets elsewhere")


def _check(kind: Kind, config: Config) -> None:
    for one in kind.settings:
        text = (config.secrets if one.is_secret else config.settings).get(one.name, "")
        if one.is_needed and not text:
            raise Refused(f"{one.words}: this is needed")
        if len(text) > VALUE_CHARS_MAX or "\0" in text or "\n" in text or "\r" in text:
            raise Refused(f"{one.words}: one line of at most {VALUE_CHARS_MAX} characters")
        if one.is_address and text:
            split(text)
        elif not text.isascii() and one.is_secret:
            raise Refused(f"{one.words}: secrets have no letters beyond ASCII")
    kind.check(config)
