"""Addresses of the sign-in pages."""

from __future__ import annotations

from django.urls import path

from console.accounts import views

urlpatterns = [
    path("signin", views.signin, name="signin"),
    path("signin/<str:secret>", views.signin_by_link, name="signin-link"),
    path("signout", views.signout, name="signout"),
]
