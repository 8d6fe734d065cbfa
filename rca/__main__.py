"""`python -m rca window.npz`: the diagnosis of a saved window; `bundle FOLDER_OR_ZIP`: that of dumps; `stages FILE…`: stages."""

import os
import sys

COMMAND = sys.argv[1] if sys.argv[1:2] in (["bundle"], ["stages"]) else ""

# One of them: what diagnoses windows is most of rca, and loading it would take a fifth of a small bundle's time.
if COMMAND == "bundle":
    from rca.bundle.command import main
elif COMMAND == "stages":
    from rca.frontier.command import main
else:
    from rca.saved_window import main

READER_GONE = 141  # as of a program that SIGPIPE ended


def run() -> int:
    """Run the command; that nobody reads the rest, as with `| head`, is no fault of ours and no traceback."""
    try:
        status = main(sys.argv[1 + bool(COMMAND) :])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return READER_GONE
    return status


if __name__ == "__main__":
    sys.exit(run())
