"""A request body for every operation that takes one, as somebody would send it; shown on the API's page.

A test sends each of them: what is shown is accepted.
"""

from __future__ import annotations

from typing import Any, Final

_MATCHERS: Final = [{"field": "node", "values": ["gpu-17", "gpu-18"]}, {"field": "symptom", "values": ["straggler"]}]

EXAMPLES: Final[dict[str, Any]] = {
    "incident_acknowledge": {"version": 4, "note": "Looking at node gpu-17.", "minutes": 30},
    "incident_unacknowledge": {"version": 5, "note": "Handing over to the morning shift."},
    "incident_resolve": {"version": 6, "reason": "Cable of gpu-17 replaced, the job runs again."},
    "incident_reopen": {"version": 7, "note": "It hangs again."},
    "incident_assign": {"version": 4, "assignee": "rita", "note": "You know this cluster."},
    "incident_attach": {"version": 4, "root": 41, "note": "The same switch."},
    "incident_detach": {"version": 5, "note": "Another rack after all."},
    "incident_comment": {"text": "Rank 12 is back after a restart of the driver."},
    "incident_review": {
        "alarm": "real", "verdict": "right", "cause": "A flapping optical module.", "component": "nic",
        "culprits": [12], "node": "gpu-17",
    },
    "incident_diagnose": {"note": "With today's thresholds."},
    "incident_dumps_ask": {"kinds": ["stacks"], "ranks": [12, 13]},
    "job_dumps_ask": {"kinds": ["stacks", "recorder"]},
    "incidents_act": {
        "verb": "acknowledge", "targets": [{"number": 41, "version": 4}, {"number": 42}], "note": "One bad switch.",
    },
    "silence_make": {"matchers": _MATCHERS, "minutes": 120, "reason": "Firmware update, ticket OPS-311."},
    "silence_preview": {"matchers": _MATCHERS},
    "view_save": {"name": "Mine, unresolved", "query": "state=open,acknowledged&who=me", "shared": False},
    "job_settings_change": {"changes": {"delta_max_s": 20}, "reason": "Checkpoints of this job take that long.", "version": 0},
    "job_pause": {"reason": "Evaluation without collectives.", "minutes": 45},
    "job_wanted_pace": {"reason": "The batch size was doubled on purpose."},
    "job_report": {"note": "Loss has not moved for ten minutes."},
    "destination_preview": {
        "title_template": "[{severity}] {job}: {headline}", "body_template": "Rank {ranks} on {nodes}.\n{url}",
    },
    "destination_make": {
        "name": "On-call", "kind": "pagerduty", "settings": {"routing_key": "0123456789abcdef0123456789abcdef"},
        "severity_min": "high",
    },
    "destination_change": {"enabled": False, "version": 4},
    "token_create": {"label": "cluster a"},
    "api_token_make": {"label": "watchdog", "role": "responder", "scopes": ["trigger"], "days": 30},
    "api_token_rotate": {"grace_minutes": 60},
}  # fmt: skip
