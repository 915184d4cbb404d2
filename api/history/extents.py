"""RevisionExtents as text: what a search without result covered, and since when.

12 changes were searched, from 2026-11-21 17:08:10Z (revision 202) to 2026-11-21 17:14:06Z (revision 218)
none of the 12 changes lies in that time: they were made from … to …
the history has no change of it; it begins at 2026-11-20 09:00:00Z (revision 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubechronicle.api.values.printable import printable


def moment_text(moment: Mapping[str, str]) -> str:
    """Return a moment of an extent: ``2026-11-21 17:08:10Z (revision 202)``."""
    time = moment.get("time", "")
    number = f"revision {moment['revision']}"
    return f"{time[:19].replace('T', ' ')}Z ({number})" if time else number


def covered(extent: Mapping[str, Any]) -> str:
    """Return one sentence about the changes that a search covered, without a full stop."""
    return f"{_covered(extent)}{_elsewhere(extent)}"


def _covered(extent: Mapping[str, Any]) -> str:
    searched, held, since = extent["searched"], extent["held"], moment_text(extent["since"])
    if "changes" not in searched:
        return f"more changes than are counted were searched, since {since}"
    if "changes" not in held and not searched["changes"]:
        return f"no change lies in that time; the history begins at {since}"
    if held.get("changes") == 0:
        return f"the history has no change of it; it begins at {since}"
    if not searched["changes"]:
        made = f"from {moment_text(held['first'])} to {moment_text(held['last'])}"
        return f"none of the {_number(held['changes'])} lies in that time: they were made {made}"
    span = f"from {moment_text(searched['first'])} to {moment_text(searched['last'])}"
    begins = "" if extent["complete"] else f"; the history begins at {since}"
    verb = "was" if searched["changes"] == 1 else "were"
    return f"{_number(searched['changes'])} {verb} searched, {span}{begins}{_later(extent)}"


def _number(changes: int) -> str:
    return f"{changes} change" if changes == 1 else f"{changes} changes"


def _elsewhere(extent: Mapping[str, Any]) -> str:
    """Return a remark about the resources in other databases, which were not searched."""
    names = [printable(each) for each in extent.get("elsewhere") or ()]
    return f"; {', '.join(names)} are in another database, and were not searched" if names else ""


def _later(extent: Mapping[str, Any]) -> str:
    """Return a remark about the resources whose history begins later than that of the others."""
    return "".join(
        f"; that of {printable(each['resource'])} only at {moment_text(each['since'])}"
        for each in extent.get("later") or ()
    )
