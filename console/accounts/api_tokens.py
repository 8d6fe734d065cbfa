"""Making, rotating and revoking API tokens. None can do more, or live longer, than the token that makes it.

A person who administers the team may make any token of it. A token that may administer makes tokens within its own scopes
and life only. Any token may rotate itself: the new secret ends when the old one would have. A secret that leaked is over when
its token is revoked: whatever was made with it, rotations by itself among them, is revoked with it (token_families.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When
from django.utils import timezone

from console.accounts.access import Caller, verbs_of
from console.accounts.models import ApiToken, Role, alive
from console.accounts.secrets import make_api_token
from console.accounts.token_families import family_of, own_turns
from console.incidents.record import BadAct, TooMany
from ingest.models import Team

LIVE_MAX: Final = 100
DAYS: Final = 90
DAYS_MAX: Final = 366
GRACE_MINUTES_MAX: Final = 24 * 60
MADE_A_DAY_MAX: Final = 500
OWN_TURNS_A_DAY_MAX: Final = 50
"""Rotations of a token by itself: counted apart, or any script could keep its team from replacing a token that leaked."""
FORGOTTEN_AT_ONCE: Final = 2000
SHOWN_AFTER_END: Final = timedelta(days=30)
KEPT_AFTER_END: Final = timedelta(days=365)


def shown_tokens(team_ids: Sequence[int]) -> QuerySet[ApiToken]:
    """Those that are good, then those whose end was lately; the newest first."""
    now = timezone.now()
    ended = now - SHOWN_AFTER_END
    still = Q(revoked_at=None) | Q(revoked_at__gt=ended)
    lately = Q(expires_at=None) | Q(expires_at__gt=ended)
    found = ApiToken.objects.filter(still, lately, team__in=team_ids).select_related("team")
    return found.order_by(Case(When(alive(now), then=0), default=1), "-pk")


def make_token(
    caller: Caller, team: Team, label: str, role: Role, scopes: Sequence[str], days: int
) -> tuple[ApiToken, str]:
    """A token and its secret. Raises BadAct, TooMany, PermissionDenied when it would be wider than the caller's own."""
    stray = sorted(set(scopes) - set(verbs_of(role)))
    if stray:
        raise BadAct(f"A {role} may not {', '.join(stray)}: choose another role, or other scopes.")
    lifetime = timedelta(days=days)
    _check_no_wider(caller, team, role, scopes, timezone.now() + lifetime)
    with transaction.atomic():
        _hold(team.pk, caller)
        _check_room(team.pk, n_more=1)
        _check_day(team.pk)
        more = {"scopes": sorted(set(scopes)), "made_by": caller.name, "made_with_id": _own_token(caller)}
        return make_api_token(team, label, role, lifetime, **more)


def rotate_token(caller: Caller, token_id: int, days: int | None, grace_minutes: int) -> tuple[ApiToken, str]:
    """Another secret for the same; the old one is good for `grace_minutes` more. Raises as make_token does."""
    with transaction.atomic():
        old, now = ApiToken.objects.select_related("team").get(pk=token_id, team__in=caller.team_ids), timezone.now()
        _hold(old.team_id, caller)
        is_own = caller.kind == "api" and caller.id == old.pk
        if not is_own and not caller.may("administer", old.team_id):
            raise PermissionDenied
        if not ApiToken.objects.filter(alive(now), pk=old.pk, rotated_to=None).exists():
            raise BadAct("This token was revoked or rotated before, or has expired: make a new one.")
        ends_at = _new_end(old, now, days)
        if is_own:
            ends_at = old.expires_at if days is None else _earlier(old.expires_at, ends_at)
        else:
            _check_no_wider(caller, old.team, Role(old.role), old.scopes, ends_at)
        _check_room(old.team_id, n_more=1 if grace_minutes else 0)
        _check_turns(old.pk) if is_own else _check_day(old.team_id)
        more: dict[str, Any] = {
            "scopes": old.scopes,
            "made_by": caller.name,
            "made_with_id": _own_token(caller),
            "expires_at": ends_at,
            "rotated_from": old,
        }
        made = make_api_token(old.team, old.label, Role(old.role), **more)
        _end(old, now + timedelta(minutes=grace_minutes))
    return made


def revoke_token(token: ApiToken) -> list[int]:
    """From now on it is nobody's, nor what was made with it: which others that were good ended with it."""
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=token.team_id)  # nothing is made with any of them meanwhile
        now = timezone.now()
        doomed = ApiToken.objects.filter(alive(now), pk__in=family_of(token.pk))
        others = list(doomed.exclude(pk=token.pk).order_by("pk").values_list("pk", flat=True))
        doomed.update(revoked_at=now)
    return others


def drop_ended_tokens() -> int:
    """Forget tokens a year after their end, not before those that were made with them; how many.

    One whose place another took goes out of their chain: whoever was before it is before the other then.
    """
    before = timezone.now() - KEPT_AFTER_END
    ended = ApiToken.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before))
    others = ApiToken.objects.filter(made_with=OuterRef("pk")).exclude(rotated_from=OuterRef("pk"))
    numbers = list(ended.filter(~Exists(others)).order_by("pk").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    for number in numbers:
        _forget(number)
    return len(numbers)


def _forget(number: int) -> None:
    with transaction.atomic():
        old = ApiToken.objects.get(pk=number)
        Team.objects.select_for_update(no_key=True).get(
            pk=old.team_id
        )  # nobody follows the chain to revoke it meanwhile
        old.refresh_from_db()
        ApiToken.objects.filter(rotated_from=old, made_with=old).update(made_with=old.made_with_id)
        ApiToken.objects.filter(rotated_from=old).update(rotated_from=old.rotated_from_id)
        old.delete()


def state_of(token: ApiToken, now: datetime) -> str:
    """revoked, expired, rotated (good for a while yet, beside the one that takes its place), or live."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "rotated" if token.rotated_to.exists() else "live"


def _hold(team_id: int, caller: Caller) -> None:
    """Until the transaction is over nobody else makes or revokes a token of the team; who was revoked meanwhile makes none."""
    Team.objects.select_for_update(no_key=True).get(pk=team_id)
    own = _own_token(caller)
    if own is not None and not ApiToken.objects.filter(alive(timezone.now()), pk=own).exists():
        raise PermissionDenied("The token that asks was revoked.")


def _own_token(caller: Caller) -> int | None:
    return caller.id if caller.kind == "api" else None


def _check_room(team_id: int, n_more: int) -> None:
    tokens = ApiToken.objects.filter(team=team_id)
    if n_more and tokens.filter(alive(timezone.now())).count() + n_more > LIVE_MAX:
        raise TooMany(f"At most {LIVE_MAX} API tokens of a team: revoke one that is not needed any more.")


def _check_day(team_id: int) -> None:
    """Rotations of tokens by themselves are not the team's."""
    made = ApiToken.objects.filter(team=team_id, made_at__gt=timezone.now() - timedelta(days=1))
    if made.exclude(rotated_from__isnull=False, made_with=F("rotated_from")).count() >= MADE_A_DAY_MAX:
        raise TooMany(f"At most {MADE_A_DAY_MAX} API tokens of a team are made in a day.")


def _check_turns(token_id: int) -> None:
    if own_turns(token_id, timezone.now() - timedelta(days=1)) >= OWN_TURNS_A_DAY_MAX:
        raise TooMany(f"A token rotates itself at most {OWN_TURNS_A_DAY_MAX} times a day; an administrator may still.")


def _check_no_wider(caller: Caller, team: Team, role: Role, scopes: Sequence[str], ends_at: datetime | None) -> None:
    wanted = set(scopes) or set(verbs_of(role))
    beyond = sorted(wanted - caller.verbs_in(team.pk))
    if beyond:
        raise PermissionDenied(f"This token would do more than the one that makes it: {', '.join(beyond)}.")
    own = ApiToken.objects.get(pk=caller.id).expires_at if caller.kind == "api" else None
    if own is not None and (ends_at is None or ends_at > own):
        raise PermissionDenied(f"This token would outlast the one that makes it, which ends {own:%Y-%m-%d %H:%M} UTC.")


def _new_end(old: ApiToken, now: datetime, days: int | None) -> datetime | None:
    """As many days as asked for, else as long as the old one was made for."""
    if days is not None:
        return now + timedelta(days=days)
    return now + (old.expires_at - old.made_at) if old.expires_at else None


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _end(old: ApiToken, at: datetime) -> None:
    is_now = at <= timezone.now()
    fields = {"revoked_at": at} if is_now else {"expires_at": _earlier(old.expires_at, at)}
    ApiToken.objects.filter(pk=old.pk).update(**fields)
