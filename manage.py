#!/usr/bin/env python3
"""Django's door: `manage.py up` starts everything, the rest are the usual commands.

Settings are read from the environment (README.md has the table); `up` sets it for the processes it starts.
"""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
