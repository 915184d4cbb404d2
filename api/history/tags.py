"""Tags: names for moments of history. ``tag:release-7`` stands wherever a moment does (moments.py).

A Tag is an object (history.kubechronicle.dev/v1) whose spec has a revision and its time. Its creation is a change in
the log as any other, so the hash chain covers it. It keeps no history: a tag of a dropped revision is an error, as the
revision itself is.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.names import path_segment

TAGS: Final = "tags"
RESOURCE: Final = f"{TAGS}.{HISTORY}"
PREFIX: Final = "tag:"


def tag_named(moment: str) -> str:
    """Return the name of the tag that a moment is, "" if it is another moment. ValueError: no tag has that name."""
    if not moment.startswith(PREFIX):
        return ""
    name = moment.removeprefix(PREFIX)
    if not name or path_segment(name):
        raise ValueError(f"{moment!r} is no moment: write tag:NAME, as in tag:release-7")
    return name


def unknown(name: str) -> str:
    return f"there is no tag {name}; kubectl get tags lists them"
