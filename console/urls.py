"""Every address of the console. Ingest's own address, /ingest/, is mounted beside Django in asgi.py."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from console.tickets.hooks_api import PagerDutyHook

handler404 = "console.dashboard.views.not_found"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("console.accounts.urls")),
    path("api/v1/", include("console.dashboard.api_urls")),
    path("hooks/pagerduty/<uuid:key>", PagerDutyHook.as_view()),
    path("", include("console.dashboard.urls")),
]
