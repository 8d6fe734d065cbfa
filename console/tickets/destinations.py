"""Every sort of destination by its name, and the settings that a form may give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from console.tickets.guard import split
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


def _keep_with_address(kind: Kind, kept: Config, settings: Mapping[str, str], fresh: Mapping[str, str]) -> None:
    moved = [one.name for one in kind.settings if one.is_address and not one.is_secret
             and settings.get(one.name, "") != kept.settings.get(one.name, "")]  # fmt: skip
    if moved and (stale := sorted(set(kept.secrets) - set(fresh))):
        raise Refused(f"another address: enter {stale[0]} again, so that nobody leads secrets elsewhere")


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
