"""Signing in at somebody else's door: there by a form, so that no page elsewhere can send people, and back."""

from __future__ import annotations

import requests
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.accounts.oidc import AWAY, FAILED, log, refused
from console.accounts.provider import SignIn
from console.accounts.views import safe_next

PROVIDER = "sso"


@never_cache
@require_POST
def leave(request: HttpRequest) -> HttpResponse:
    """To the provider, with a state that the session keeps."""
    try:
        provider = get_adapter(request).get_provider(request, PROVIDER)
        answer: HttpResponse = provider.redirect(request, "login", next_url=safe_next(request))
        return answer
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    except ImmediateHttpResponse as answered:
        return answered.response
    except (requests.RequestException, OAuth2Error) as error:
        log.warning("the sign-in provider cannot be asked: %s", error)
        return refused(request, "provider away", AWAY, 503)


@never_cache
@require_safe
def come_back(request: HttpRequest) -> HttpResponse:
    """From the provider, with a code for a token."""
    try:
        answer: HttpResponse = Callback.adapter_view(SignIn(request, PROVIDER))(request)
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    except requests.RequestException as error:
        log.warning("the sign-in provider cannot be asked: %s", error)
        return refused(request, "provider away", AWAY, 503)
    except (OAuth2Error, KeyError, ValueError) as error:  # what the provider sent is no answer of one
        log.warning("a sign-in at the provider failed: %s", error)
        return refused(request, "bad answer", FAILED, 401)
    if request.user.is_authenticated:
        request.session.set_expiry(settings.OIDC_SESSION_SECONDS)
    return answer


class Callback(OAuth2CallbackView):
    """allauth's, which also hands the request's nonce to who checks the token."""

    def _get_state(self, request: HttpRequest, provider: object) -> tuple[dict[str, str] | None, HttpResponse | None]:
        state, answer = super()._get_state(request, provider)
        self.adapter.nonce = (state or {}).get("nonce", "")
        return state, answer
