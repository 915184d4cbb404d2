"""RevisionExtents as text: what a search without result covered, and since when.

12 changes were searched, from 2026-11-21 17:08:10Z (revision 202) to 2026-11-21 17:14:06Z (revision 218)
none of the 12 changes lies in that time: they were made from … to …
the history has no change of it; it begins at 2026-11-20 09:00:00Z (revision 1)
in the main database, the history has no change of it; …; in database events, 12 changes were searched, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.values.printable import printable

MAIN: Final = "main"
"""The name of the main database in extents of several."""


def moment_text(moment: Mapping[str, str]) -> str:
    """Return a moment of an extent: ``2026-11-21 17:08:10Z (revision 202)``."""
    time = moment.get("time", "")
    number = f"revision {moment['revision']}"
    return f"{time[:19].replace('T', ' ')}Z ({number})" if time else number


def covered(extent: Mapping[str, Any]) -> str:
    """Return one sentence about the changes that a search covered, without a full stop."""
    if "databases" not in extent:
        return _covered(extent)
    return "; ".join(f"{_place(each['database'])}, {_covered(each)}" for each in extent["databases"])


def _place(database: str) -> str:
    return "in the main database" if database == MAIN else f"in database {printable(database)}"


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


def _later(extent: Mapping[str, Any]) -> str:
    """Return a remark about the resources whose history begins later than that of the others."""
    return "".join(
        f"; that of {printable(each['resource'])} only at {moment_text(each['since'])}"
        for each in extent.get("later") or ()
    )


# -- several extents ----------------------------------------------------------------------------------------------


def together(extents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the extent of several searches together: of the lists of one question, or of several logs."""
    if len(extents) == 1:
        return dict(extents[0])
    short = [extent["since"] for extent in extents if not extent["complete"]]
    begins = (extent["since"] for extent in extents)
    found = {
        **extents[0],
        "since": max(short, key=_in_time) if short else min(begins, key=_in_time),
        "complete": not short,
        "whole": all(extent["whole"] for extent in extents),
        "newest": max((extent["newest"] for extent in extents), key=_in_time),
    }
    for name in ("searched", "held"):
        found[name] = _sum([extent[name] for extent in extents])
    if fields := [extent["fields"] for extent in extents if "fields" in extent]:
        found["fields"] = _fields(fields)
    if any("databases" in extent for extent in extents):
        found["databases"] = _by_database(extents)
    return found


def _in_time(moment: Mapping[str, str]) -> tuple[str, int]:
    return moment.get("time", ""), int(moment["revision"])


def _sum(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the number of changes, with the first and the last one. No number: there are too many."""
    if any("changes" not in count for count in counts):
        return {}
    total: dict[str, Any] = {"changes": sum(count["changes"] for count in counts), "operations": {}}
    for count in counts:
        for operation, changes in count["operations"].items():
            total["operations"][operation] = total["operations"].get(operation, 0) + changes
    if made := [count for count in counts if count["changes"]]:
        total["first"] = min((count["first"] for count in made), key=_in_time)
        total["last"] = max((count["last"] for count in made), key=_in_time)
    return total


def _fields(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return which fields no version had in any of the searches."""
    read = [each for each in found if each["versions"]] or found
    unknown = [{one["field"] for one in each["unknown"]} for each in read]
    return {
        "versions": sum(each["versions"] for each in found),
        "whole": all(each["whole"] for each in found),
        "unknown": [one for one in read[0]["unknown"] if all(one["field"] in each for each in unknown)],
    }


def _by_database(extents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for extent in extents:
        for each in extent.get("databases") or ({**extent, "database": MAIN},):
            found.setdefault(each["database"], []).append(each)
    return [{**together(parts), "database": name} for name, parts in found.items()]
