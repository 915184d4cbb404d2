"""Records of accesses: what each type says, and their names.

    Denied      ann was refused to delete secrets/key, three times between 12:00:05 and 12:00:41
    Session     ann had an exec session with pods/web-1 from 12:00 to 12:07
    Token       ann got a token of the service account ci, until 13:00
    Recording   a server records by a policy

A record is an object with one of SLOTS names of its type, which a later record takes over. So the number of objects is
bounded, and each record is a revision of the log. The two revisions of a session have one auditID.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

ACCESS_RECORDS: Final = "accessrecords"
RESOURCE: Final = f"{ACCESS_RECORDS}.history.kubechronicle.dev"
DENIED, SESSION, TOKEN, RECORDING = "Denied", "Session", "Token", "Recording"
TYPE: Final = "history.kubechronicle.dev/type"
"""The label of a record with its type."""
SESSIONS: Final = frozenset(("exec", "attach", "portforward"))
SLOTS: Final = 1000
"""Objects of one type. A record has 4 KiB at most, see MOST_TEXT."""
MOST_TEXT: Final = 256
"""Characters of a text in a record, which clients choose freely."""
MOST_GROUPS: Final = 8


def short(text: str) -> str:
    """Return a text that fits into a record."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def name_for(type_: str, id_: str) -> str:
    """Return the name of the object of a record."""
    return f"{type_.lower()}-{crc32(id_.encode()) % SLOTS:03}"


def about(spec: Mapping[str, Any]) -> str:
    """Return the request of a record and its object: ``get secrets/key -n shop``."""
    resource, subresource = spec.get("resource", ""), spec.get("subresource", "")
    if not resource:
        return f"{spec.get('verb', '')} {spec.get('path', '')}".strip()
    name = "/".join(filter(None, (resource, spec.get("name", ""), subresource)))
    where = f" -n {spec['namespace']}" if spec.get("namespace") else ""
    return f"{spec.get('verb', '')} {name}{where}".strip()
