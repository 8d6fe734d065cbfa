"""What an entry of the audit says in words, and which page shows what it was about.

An entry of a REST request keeps method and route; this is how people read them. What has no words here is shown as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

WORDS: Final[dict[str, str]] = {
    "POST incidents/acts": "acted on several incidents",
    "GET incidents/<int:number>/window": "took the traces of incident {number} away",
    "GET incidents/<int:number>/dumps.zip": "took the dumps of incident {number} away",
    "POST incidents/<int:number>/dumps": "asked for dumps of incident {number}",
    "POST incidents/<int:number>/acknowledge": "acknowledged incident {number}",
    "POST incidents/<int:number>/unacknowledge": "took the acknowledgement of incident {number} back",
    "POST incidents/<int:number>/resolve": "resolved incident {number}",
    "POST incidents/<int:number>/reopen": "reopened incident {number}",
    "POST incidents/<int:number>/diagnose": "had incident {number} diagnosed again",
    "POST incidents/<int:number>/assign": "assigned incident {number}",
    "POST incidents/<int:number>/attach": "attached incident {number} to another",
    "POST incidents/<int:number>/detach": "detached incident {number}",
    "POST incidents/<int:number>/review": "reviewed incident {number}",
    "POST incidents/<int:number>/comments": "commented on incident {number}",
    "POST incidents/<int:number>/evidence": "had evidence of incident {number} gathered",
    "GET incidents/<int:number>/evidence/<int:bundle_id>": "took evidence of incident {number} away",
    "GET incidents/<int:number>/post-mortem": "took the post-mortem of incident {number} away",
    "POST silences": "made a silence",
    "POST silences/preview": "previewed a silence",
    "DELETE silences/<int:silence_id>": "ended silence {silence_id}",
    "POST views": "saved a view",
    "DELETE views/<int:view_id>": "deleted view {view_id}",
    "PATCH jobs/<int:job_id>/settings": "changed thresholds of job {job_id}",
    "POST jobs/<int:job_id>/pause": "declared a pause of job {job_id}",
    "DELETE jobs/<int:job_id>/pause": "ended the pause of job {job_id}",
    "POST jobs/<int:job_id>/wanted-pace": "took the pace of job {job_id} as normal",
    "POST jobs/<int:job_id>/triggers": "reported a problem of job {job_id}",
    "POST jobs/<int:number>/dumps": "asked for dumps of job {number}",
    "GET jobs/<int:job_id>/question.csv": "took an answer about job {job_id} away as CSV",
    "GET jobs/<int:job_id>/question.parquet": "took an answer about job {job_id} away as Parquet",
    "POST bundles": "brought a bundle of dumps",
    "POST destinations": "made a destination",
    "POST destinations/preview": "previewed a ticket",
    "PATCH destinations/<int:destination_id>": "changed destination {destination_id}",
    "DELETE destinations/<int:destination_id>": "removed destination {destination_id}",
    "POST destinations/<int:destination_id>/test": "tested destination {destination_id}",
    "POST deliveries/<int:delivery_id>/replay": "sent delivery {delivery_id} again",
    "GET audit.csv": "took the audit away",
    "POST tokens": "made an agents’ token",
    "DELETE tokens/<int:token_id>": "revoked agents’ token {token_id}",
    "POST api-tokens": "made an API token",
    "DELETE api-tokens/<int:api_token_id>": "revoked API token {api_token_id}",
    "POST api-tokens/<int:api_token_id>/rotate": "rotated API token {api_token_id}",
}
_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")


def words_of(act: str, subject: str) -> str:
    """The act in words; as it stands where there are none."""
    words = WORDS.get(act)
    if words is None:
        return act
    found = _pattern(act.partition(" ")[2]).match(subject)
    return words.format_map(found.groupdict()) if found else _PLACE.sub("", words).strip()


_PLACE: Final = re.compile(r" ?\{\w+\}")


@lru_cache(maxsize=256)
def _pattern(route: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/:]+)", route))
