#!/usr/bin/env python3
"""Our door to everything: `manage.py up` starts the whole stack, `manage.py demo` a live job, the rest is Django's.

`up` and `demo` need no settings (`up` makes what settings are read from), so they start without Django's. Called by a
Python that has no Django, this file hands over to the one `make` installed beside it.
"""

import importlib.util
import os
import sys
from pathlib import Path

OWN_PYTHON = Path(__file__).resolve().parent / ".venv" / "bin" / "python"

if importlib.util.find_spec("django") is None:
    if OWN_PYTHON.exists() and Path(sys.prefix) != OWN_PYTHON.parents[1]:
        os.execv(OWN_PYTHON, [str(OWN_PYTHON), *sys.argv])
    sys.exit("This Python has no Django: run `make run` once, then use .venv/bin/python manage.py.")

from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.core.management import execute_from_command_line  # noqa: E402

from console.supervisor import demo, up  # noqa: E402

READER_GONE = 141  # as of a program that SIGPIPE ended
OURS = {"up": up.main, "demo": demo.main}


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in OURS:
        return OURS[sys.argv[1]](sys.argv[2:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except ImproperlyConfigured as reason:
        print(reason, file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read what we say, as `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return READER_GONE
    return 0


if __name__ == "__main__":
    sys.exit(main())
