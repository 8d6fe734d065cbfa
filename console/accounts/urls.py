"""Addresses of the sign-in pages."""

from __future__ import annotations

from django.urls import path

from console.accounts import oidc_views, views

urlpatterns = [
    path("signin", views.signin, name="signin"),
    path("signin/oidc", oidc_views.leave, name="signin-oidc"),
    path("signin/oidc/callback", oidc_views.come_back, name="signin-oidc-callback"),
    path("signin/<str:secret>", views.signin_by_link, name="signin-link"),
    path("signout", views.signout, name="signout"),
]
