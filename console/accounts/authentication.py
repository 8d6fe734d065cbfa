"""How REST requests say who they are: a browser's session, or `Authorization: Bearer …` of a script; `Token …` means the same."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from console.accounts.access import TokenUser
from console.accounts.models import ApiToken
from console.accounts.secrets import find_api_token, note_use
from console.accounts.throttle import count_guess

SCHEME = "Bearer"
SCHEMES = frozenset({"bearer", "token"})


def secret_in(header: bytes) -> str | None:
    """What an `Authorization` header holds as an API token; None where it is of another scheme."""
    scheme, _, secret = header.decode("latin-1").partition(" ")
    return secret.strip() if scheme.lower() in SCHEMES else None


class ApiTokenAuthentication(BaseAuthentication):
    """A script's token. No cookie is involved, so no CSRF token is asked for."""

    def authenticate(self, request: Request) -> tuple[TokenUser, ApiToken] | None:
        secret = secret_in(get_authorization_header(request))
        if secret is None:
            return None
        token = find_api_token(secret)
        if token is None:
            if not count_guess("token", request.META.get("REMOTE_ADDR", "")):
                raise Throttled(settings.SIGNIN_FAILURE_SECONDS, "Too many unknown tokens from this address.")
            raise AuthenticationFailed("This API token is unknown, expired or revoked.")
        note_use(token)
        return TokenUser(token), token

    def authenticate_header(self, request: Request) -> str:
        return SCHEME


class BrowserSession(SessionAuthentication):
    """Django's session, CSRF token included; a stranger gets 401, so that the page can send them to sign in."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        found: tuple[User, None] | None = super().authenticate(request)
        return found

    def authenticate_header(self, request: Request) -> str:
        return "Session"


class ApiTokenScheme(OpenApiAuthenticationExtension):
    target_class = ApiTokenAuthentication
    name = "apiToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API token. `Token` in place of `Bearer` is taken, too.",
        }


class BrowserSessionScheme(OpenApiAuthenticationExtension):
    target_class = BrowserSession
    name = "session"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
