"""Signing in and out: the only pages a stranger can see."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts.secrets import find_signin_user, use_signin_link
from console.accounts.throttle import count_guess, forget_tries, try_password

WRONG = "That name and password do not fit."
BLOCKED = "Too many failed attempts. Wait a few minutes, or use a sign-in link."
USED = "This sign-in link was used already, or it has expired. Make a new one on the server with: make signin"
BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def signin(request: HttpRequest) -> HttpResponse:
    """The form, and what it sends."""
    if request.method != "POST":
        return _signin_page(request)
    account, address = request.POST.get("username", ""), request.META.get("REMOTE_ADDR", "")
    if not try_password(account, address):
        return _signin_page(request, BLOCKED, 429)
    user = authenticate(request, username=account, password=request.POST.get("password", ""))
    if user is None:
        return _signin_page(request, WRONG, 401)
    forget_tries(account, address)
    login(request, user)
    return HttpResponseRedirect(safe_next(request))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def signin_by_link(request: HttpRequest, secret: str) -> HttpResponse:
    """A one-time link: a page with one button, which signs in and uses the link up.

    Looking at the link must not: previews of chats and mail would use it up, and a page elsewhere could sign its reader
    in as somebody else.
    """
    if request.method != "POST":
        user = find_signin_user(secret)
        return render(request, "signin_link.html", {"name": user}) if user else _no_link(request)
    user = use_signin_link(secret)
    if user is None:
        return _no_link(request)
    login(request, user, backend=BACKEND)
    return HttpResponseRedirect(settings.LOGIN_REDIRECT_URL)


@require_POST
def signout(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponseRedirect(settings.LOGIN_URL)


def _no_link(request: HttpRequest) -> HttpResponse:
    is_within = count_guess("link", request.META.get("REMOTE_ADDR", ""))
    return _signin_page(request, USED, 401) if is_within else _signin_page(request, BLOCKED, 429)


def _signin_page(request: HttpRequest, error: str = "", status: int = 200) -> HttpResponse:
    return render(
        request,
        "signin.html",
        {"error": error, "next": safe_next(request), "oidc_name": settings.OIDC_NAME},
        status=status,
    )


def safe_next(request: HttpRequest) -> str:
    """Where to go afterwards: a page of ours, whatever the address said."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if is_ours else str(settings.LOGIN_REDIRECT_URL)
