"""The console's settings as mypy's Django plugin reads them: with a key, so that plain `mypy` needs no environment."""

import os

os.environ.setdefault("DIOGENES_SECRET_KEY", "only-for-type-checks")

from console.settings import *  # noqa: F403
