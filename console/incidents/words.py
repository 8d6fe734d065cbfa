"""What codes are called where people read of an incident away from its page: in tickets, mails, drafts.

The same words as the pages' (frontend/src/state/words.ts, parts/bits.tsx); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SYMPTOM: Final = {
    "failure": "Hang", "straggler": "Straggler", "idle": "Idle", "silence": "Silence", "external": "Reported by hand",
}  # fmt: skip
CONDITION: Final = {"firing": "still happening", "clearing": "clearing", "clear": "no longer seen"}
COMPONENT: Final = {
    "nic": "NIC", "network": "Network", "copy": "GPU copy", "gpu": "GPU", "node": "Node", "proxy": "NCCL proxy thread",
    "process": "Process", "software": "Training code", "unknown": "Unknown component",
}  # fmt: skip


def word_of(words: Mapping[str, str], code: str) -> str:
    """The word for a code; a code that has none stands for itself."""
    return words.get(code, code)
