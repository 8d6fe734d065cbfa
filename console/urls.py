"""Every address of the console. Ingest's own address, /ingest/, is mounted beside Django in asgi.py."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

handler404 = "console.dashboard.views.not_found"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("console.accounts.urls")),
    path("api/v1/", include("console.dashboard.api_urls")),
    path("", include("console.dashboard.urls")),
]
