"""Addresses of the pages: one shell, in which the front end draws what the address names."""

from __future__ import annotations

from django.urls import re_path

from console.dashboard import views

urlpatterns = [
    re_path(
        r"^(?:incidents(?:/\d+)?|jobs/\d+(?:/settings|/ranks/\d+)?|nodes(?:/[^/]+)?|questions|bundle(?:/[\w-]+)?|silences|destinations|scorecard|settings|audit)?$",
        views.page,
        name="page",
    ),
]
