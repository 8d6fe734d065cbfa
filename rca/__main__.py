"""`python -m rca window.npz`: the diagnosis of a saved window; `bundle FOLDER_OR_ZIP`: that of dumps, or of an incident's
evidence; `stages FILE…`: stages."""

import sys

from nccl_instrument.command_line import run
from rca.bundle.evidence import evidence_among

COMMAND = sys.argv[1] if sys.argv[1:2] in (["bundle"], ["stages"]) else ""

# One of them: what diagnoses windows is most of rca, and loading it would take a fifth of a small bundle's time.
if COMMAND == "bundle" and evidence_among(sys.argv[2:]):
    from rca.bundle.evidence_command import main
elif COMMAND == "bundle":
    from rca.bundle.command import main
elif COMMAND == "stages":
    from rca.frontier.command import main
else:
    from rca.saved_window import main

if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1 + bool(COMMAND) :]))
