"""Warnings of answers about history that lack something: the server's words, which its client knows again."""

from __future__ import annotations

import re
from typing import Final

BY_TIME: Final = "revision {revision} is of one database; changes in another one are chosen by its commit time"
ERASED: Final = "left out: their contents were erased from history"
"""The warning of a list of the past, after the number of objects and their resource."""
ENDS: Final = "history of branch"
"""Begins the warning of answers about history in a branch, which lack its own changes."""
FORMER: Final = "changes of Events or Leases may be in another database, which this server is not given any more"
_KNOWN: Final = r'"(changes of Events or Leases may be in another database[^"]*|revision \d+ is of one database;[^"]*)"'


def notes_in(warnings: str) -> list[str]:
    """Return these warnings among those of a response's header ``Warning``."""
    return re.findall(_KNOWN, warnings) if warnings else []
