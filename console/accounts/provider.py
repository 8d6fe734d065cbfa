"""The sign-in provider, as django-allauth finds it: OpenID Connect with PKCE, and a nonce that ties the token to the request.

allauth brings the code flow, its state and the link between an identity there and a user here. What it leaves to the
way the token came is checked always (id_token.py), and nothing of the request's address may change what is asked for.
"""

from __future__ import annotations

import secrets
from typing import Any

import requests
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider, OpenIDConnectProviderAccount
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from console.accounts.id_token import BadToken, read_id_token


class SignIn(OpenIDConnectOAuth2Adapter):
    """One sign-in. nonce: what its request carried, from the state that the session kept."""

    nonce = ""

    @property
    def openid_config(self) -> dict[str, Any]:
        """What the provider says of itself; it must call itself what we were told it is called."""
        config: dict[str, Any] = super().openid_config
        wanted = self.get_provider().app.settings["server_url"]
        if str(config.get("issuer", "")).rstrip("/") != wanted.rstrip("/"):
            raise OAuth2Error(f"the provider calls itself {config.get('issuer')!r}, not {wanted!r}")
        return config

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        claims = self._claims(app, str(kwargs["response"].get("id_token") or ""))
        told = self._fetch_user_info(token.token) if "userinfo_endpoint" in self.openid_config else {}
        if told and told.get("sub") != claims["sub"]:
            raise OAuth2Error("the provider's answers are about different people")
        return self.get_provider().sociallogin_from_response(request, {"id_token": claims, "userinfo": claims | told})

    def _claims(self, app: Any, raw: str) -> dict[str, Any]:
        with get_adapter().get_requests_session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
        try:
            return read_id_token(raw, answer.json(), self.openid_config["issuer"], app.client_id, self.nonce)
        except (BadToken, requests.JSONDecodeError) as error:
            raise OAuth2Error(f"the ID token is not good: {error}") from error

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return request.build_absolute_uri(reverse("signin-oidc-callback"))


class SingleSignOn(OpenIDConnectProvider):
    """The one provider of this installation (settings: DIOGENES_OIDC_…)."""

    id = "oidc"
    name = "Single sign-on"
    account_class = OpenIDConnectProviderAccount
    oauth2_adapter_class = SignIn
    pkce_enabled_default = True
    supports_token_authentication = False

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, *given: Any, **kwargs: Any
    ) -> HttpResponse:
        nonce = secrets.token_urlsafe(32)
        answer: HttpResponse = super().redirect(
            request, process, next_url, *given, auth_params={"nonce": nonce}, nonce=nonce, **kwargs
        )
        return answer

    def extract_email_addresses(self, claims: dict[str, Any]) -> list[Any]:
        """None: an address proves nothing about who somebody is here."""
        return []


provider_classes = [SingleSignOn]
