#!/usr/bin/env python3
"""Our door to everything: `manage.py up` starts the whole stack, `manage.py demo` a live job, the rest is Django's.

`up` and `demo` need no settings (`up` makes what settings are read from), so they start without Django.
"""

import os
import sys

from django.core.management import execute_from_command_line

from console.supervisor import demo, up

OURS = {"up": up.main, "demo": demo.main}


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in OURS:
        return OURS[sys.argv[1]](sys.argv[2:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
