"""Warnings that changes are in another database: the server's words, which its client knows again."""

from __future__ import annotations

import re
from typing import Final

LEFT_OUT: Final = (
    "changes of {} are in another database, and left out here; list them with --field-selector object.resource={}"
)
EARLIER: Final = (
    "earlier changes, up to revision {revision}, are in the main log; list them with --field-selector "
    "revision.to={revision}"
)
FORMER: Final = "changes of Events or Leases may be in another database, which this server is not given any more"
_KNOWN: Final = re.compile(
    r'"((?:changes of [^"]* (?:are|may be) in another database|earlier changes, up to revision)[^"]*)"'
)


def notes_in(warnings: str) -> list[str]:
    """Return these warnings among those of a response's header ``Warning``."""
    return _KNOWN.findall(warnings)
