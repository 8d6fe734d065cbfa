"""Django's settings, read from the environment; every variable is named in README.md.

Beside a running `manage.py up` nothing needs to be set: the data folder says where its servers listen and keeps its
secret key. Limits and periods of the console live here too, so that an operator finds them in one place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

from console.accounts.grants import oidc_app, origins_of, read_grants
from console.operations.logs import logging_settings
from ingest.process import NAME

VERSION = "0.1.0"
BASE_DIR = Path(__file__).resolve().parents[1]
DATA_FOLDER = Path(os.environ.get("DIOGENES_DATA", BASE_DIR / "var"))


def _flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).lower() in ("1", "true", "yes", "on")


def _names(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _noted(name: str) -> str:
    """What a running stack noted in its data folder: `runtime` (where its sockets are), `secret_key`."""
    try:
        return (DATA_FOLDER / name).read_text().strip()
    except OSError:
        return ""


POOL = {"min_size": 1, "max_size": 20, "timeout": 5.0, "reconnect_timeout": 0.0, "max_idle": 60.0}
"""Connections of the web process, which answers each request in a thread of its own: making one takes longer than most of
what is asked. Seconds. A request that gets none in time is answered 503; nobody goes on knocking at a database that is away."""


def _database(url: str) -> dict[str, Any]:
    """Django's entry for a libpq URL; what Django has no key for (sslmode, …) is handed to the driver."""
    try:
        parts = conninfo_to_dict(url)
    except Exception as error:
        raise ImproperlyConfigured(f"DATABASE_URL is not a PostgreSQL URL: {error}") from error
    named = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    taken = {key: str(parts.pop(name, "") or "") for key, name in named.items()}
    options = parts if taken["HOST"].startswith("/") else {**_NOTICE_DEATH, **parts}
    pooled: dict[str, Any] = {"CONN_HEALTH_CHECKS": True} if NAME == "web" else {}
    if pooled:
        options = {**options, "pool": POOL}
    return {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": 0, "OPTIONS": options, **pooled, **taken}


def _mail_server(url: str) -> dict[str, Any]:
    """Django's names for smtp://USER:PASSWORD@HOST:PORT (STARTTLS), smtps:// (TLS) or smtp+plain:// (neither)."""
    parts = urlsplit(url)
    usual = {"smtp": 587, "smtps": 465, "smtp+plain": 25}
    if parts.scheme not in usual or not parts.hostname:
        raise ImproperlyConfigured("DIOGENES_SMTP_URL is smtp://, smtps:// or smtp+plain:// and a host")
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or usual[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp",
        "EMAIL_USE_SSL": parts.scheme == "smtps",
    }


_NOTICE_DEATH: dict[str, Any] = {
    # A database whose machine lost power says nothing: without these a look would wait for it for a quarter of an hour.
    "connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip


def _broker(url: str) -> str:
    """The same server as Celery's client spells it."""
    return f"redis+socket://{url.removeprefix('unix://')}" if url.startswith("unix://") else url


_RUNTIME = _noted("runtime") or "/run/diogenes"
DATABASE_URL = os.environ.get("DATABASE_URL") or f"postgresql:///diogenes?host={quote(_RUNTIME, safe='')}&user=postgres"
REDIS_URL = os.environ.get("REDIS_URL") or f"unix://{_RUNTIME}/valkey.sock"
CELERY_BROKER_URL = _broker(REDIS_URL)

DEBUG = _flag("DIOGENES_DEBUG")
DEMO = _flag("DIOGENES_DEMO")
SECRET_KEY = os.environ.get("DIOGENES_SECRET_KEY") or _noted("secret_key") or ("only-for-debugging" if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured(
        f"Nothing runs in {DATA_FOLDER}: set DIOGENES_DATA (`make`: DATA=) to the data folder of a running stack, or"
        " DIOGENES_SECRET_KEY, DATABASE_URL and REDIS_URL to servers of your own."
    )

ALLOWED_HOSTS = _names("DIOGENES_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _names("DIOGENES_TRUSTED_ORIGINS")
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
LOGIN_URL = "/signin"
LOGIN_REDIRECT_URL = "/"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "ingest",
    "console.accounts",
    "console.silences",
    "console.incidents",
    "console.dumps",
    "console.tickets",
    "console.stages",
    "console.evidence",
    "console.dashboard",
    "console.operations",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "console.dashboard.static_parts.StaticParts",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.dashboard.policy.ContentSecurityPolicy",
    "console.dashboard.away.DatabaseAway",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "console.dashboard.given.NoNul",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "console.accounts.audit.Audit",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": _database(DATABASE_URL)}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "dgs"}
}

# ---- safety of the pages ---------------------------------------------------------------------------------------------
HTTPS = _flag("DIOGENES_HTTPS")  # off by default: a first look is at http://localhost
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 14 * 24 * 3600
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = (
    256 * 1024
)  # ingest has its own application and its own limits; files: console/dumps/uploads.py
BUNDLES_FOLDER = DATA_FOLDER / "bundles"  # web and workers share it
EVIDENCE_FOLDER = DATA_FOLDER / "evidence"  # and this
# Nothing inline, neither scripts nor styles: what the charting library would write there is frontend/src/styles/plotly.css.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    f"form-action 'self' {origins_of(os.environ)}"
)

# ---- static files ----------------------------------------------------------------------------------------------------
FRONTEND_DIST = Path(os.environ.get("DIOGENES_FRONTEND_DIST", BASE_DIR / "frontend" / "dist"))
STATIC_URL = "/static/"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.is_dir() else []
WHITENOISE_USE_FINDERS = True  # no collectstatic: Vite has already put hashes into the names
WHITENOISE_IMMUTABLE_FILE_TEST = r"^.+/assets/.+-[A-Za-z0-9_-]{8}\..+$"

# ---- REST API --------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.accounts.authentication.ApiTokenAuthentication",
        "console.accounts.authentication.BrowserSession",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["console.accounts.rate.CallerRate"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.dashboard.given.BoundedJSON"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is 405: the schema says what there is
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "console.dashboard.errors.answer_error",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
API_REQUESTS_PER_MINUTE = int(os.environ.get("DIOGENES_API_PER_MINUTE", "1200"))  # of one person or token
SPECTACULAR_SETTINGS = {
    "TITLE": "Diogenes",
    "DESCRIPTION": "Incidents of distributed training jobs: what happened, who started it, what people did about it.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "console.dashboard.document.complete",
    ],
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},  # else it asks a server on the internet
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# ---- sign-in ---------------------------------------------------------------------------------------------------------
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUDIT_DAYS = float(os.environ.get("DIOGENES_AUDIT_DAYS", "365"))  # console/accounts/audit.py
SIGNIN_LINK_SECONDS = 15 * 60
SIGNIN_FAILURES_MAX = 10  # of an account from one address, in SIGNIN_FAILURE_SECONDS; see console/accounts/throttle.py
GUESSES_MAX = 30  # unknown API tokens, or sign-in links, from one address in the same time
SIGNIN_FAILURE_SECONDS = 5 * 60

# Signing in at an OpenID Connect provider; off without an issuer. See docs/sign-in.md.
OIDC_ISSUER = os.environ.get("DIOGENES_OIDC_ISSUER", "")
OIDC_NAME = os.environ.get("DIOGENES_OIDC_NAME", "single sign-on") if OIDC_ISSUER else ""
OIDC_CLAIM = os.environ.get("DIOGENES_OIDC_CLAIM", "groups")
OIDC_GROUPS = read_grants(os.environ.get("DIOGENES_OIDC_GROUPS", ""))
OIDC_CA = os.environ.get("DIOGENES_OIDC_CA", "")
OIDC_SESSION_SECONDS = int(float(os.environ.get("DIOGENES_OIDC_SESSION_HOURS", "12")) * 3600)
ACCOUNT_ADAPTER = "console.accounts.oidc.Accounts"
ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SIGNUP_FIELDS = ["username*"]
SOCIALACCOUNT_ADAPTER = "console.accounts.oidc.Identities"
SOCIALACCOUNT_PROVIDERS = {"oidc": {"APPS": [oidc_app(os.environ)] if OIDC_ISSUER else []}}

# ---- looks and incidents ---------------------------------------------------------------------------------------------
WATCH_HEARD_SECONDS = float(os.environ.get("DIOGENES_WATCH_HEARD_SECONDS", "1"))  # 0 switches the light beat off
WATCH_ALL_SECONDS = 10.0
WATCH_STAGES_SECONDS = 5.0  # a window of stages is closed after seconds: looking for one more often finds none
LOOK_WINDOW_SECONDS = 15.0  # longer than Δ ever is; what lies further back is in the normal
LOOKS_KEPT_PER_ATTEMPT = 1000
CLEAN_LOOKS_TO_CLEAR = 3
CLEAN_LOOK_SECONDS = 3.0  # looks closer together than this count as one: the light beat must not shorten hysteresis
REGRESSED_SECONDS = 30 * 60
RESOLVE_AFTER_CLEAR_SECONDS = float(os.environ.get("DIOGENES_RESOLVE_AFTER_CLEAR_SECONDS", "600"))
REVISIONS_MAX = 100
# After how long an acknowledgement ends by itself, unless the act says otherwise; 0: never.
ACKNOWLEDGED_MINUTES = int(os.environ.get("DIOGENES_ACKNOWLEDGED_MINUTES", "0"))
WORSE_FACTOR, WORSE_RANKS_MIN = 2.0, 8  # so many times the ranks, and so many more, undo an acknowledgement
STREAM_MESSAGES_KEPT = 1000

# ---- tickets and notifications ---------------------------------------------------------------------------------------
PUBLIC_URL = os.environ.get("DIOGENES_URL", "").rstrip("/")  # in links; without it messages have none
TICKETS_KEY = os.environ.get("DIOGENES_TICKETS_KEY", "")  # encrypts destinations' secrets; else the secret key does
TICKETS_KEYS_OLD = _names("DIOGENES_TICKETS_KEYS_OLD")  # open what they sealed, and seal nothing
TICKETS_HOSTS = frozenset(_names("DIOGENES_TICKETS_HOSTS"))  # name or name:port inside our own network
# How often a ticket of an open incident is looked at, at most; of older and closed ones ten times less. 0: never.
TICKETS_LOOK_SECONDS = float(os.environ.get("DIOGENES_TICKETS_LOOK_SECONDS", "60"))
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = os.environ.get("DIOGENES_EMAIL_FROM", "diogenes@localhost")
SMTP_URL = os.environ.get("DIOGENES_SMTP_URL", "")
if SMTP_URL:
    globals().update(_mail_server(SMTP_URL))

# ---- the Kafka road: `manage.py consume` ------------------------------------------------------------------------------
KAFKA_SERVERS = os.environ.get("DIOGENES_KAFKA_SERVERS", "")
KAFKA_TOPIC = os.environ.get("DIOGENES_KAFKA_TOPIC", "diogenes.batches")
KAFKA_GROUP = os.environ.get("DIOGENES_KAFKA_GROUP", "diogenes")
KAFKA_CONFIG = Path(os.environ["DIOGENES_KAFKA_CONFIG"]) if os.environ.get("DIOGENES_KAFKA_CONFIG") else None

# ---- operations ------------------------------------------------------------------------------------------------------
DEAD_MAN_URL = os.environ.get("DIOGENES_DEAD_MAN_URL", "")
if DEAD_MAN_URL and urlsplit(DEAD_MAN_URL).scheme not in ("http", "https"):
    raise ImproperlyConfigured("DIOGENES_DEAD_MAN_URL is an http:// or https:// address")
METRICS_TOKEN = os.environ.get("DIOGENES_METRICS_TOKEN") or _noted("metrics_token")
# Where this process answers /healthz, /readyz and /metrics beside its own port: host:port (0: any), or off.
OPERATIONS = os.environ.get("DIOGENES_OPERATIONS") or "127.0.0.1:0"
LOG_FORM = os.environ.get("DIOGENES_LOG") or "text"
LOGGING = logging_settings(LOG_FORM, os.environ.get("DIOGENES_LOG_LEVEL", "WARNING"))
