"""The incident of a failed test: its changes as text, and the server's report of an incident as one HTML file.

The page is that of `kubectl chronicle incident -o html` (api/explaining/reports.py): the unusual changes first, with
what followed from each. The failure stands above them, and each object before and after its changes below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.api.explaining.reports import FailedTest, Period, html_report
from kubechronicle.ops.client.revision_reader import RevisionQuery, parameters_of, scopes_in
from kubechronicle.ops.testing.history import Change

if TYPE_CHECKING:
    from kubechronicle.ops.testing.cluster import Cluster

MOST: Final = 500
"""Changes whose objects are in a page; a browser shows that many at once."""
LINES: Final = 40
"""Changes in the text."""


def incident_of(cluster: Cluster, test: str, failure: str, folder: Path) -> tuple[str, str]:
    """Write the page of a failed test, and return the heading and the text of the section in its report."""
    changes = cluster.history.all()
    people = [each for each in changes if not each.user.startswith("system:")]
    shown = [str(each) for each in (people or changes)[-LINES:]]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / (re.sub(r"[^\w.-]+", "-", test).strip("-")[-150:] + ".html")
    found = _with_objects(_read(cluster), changes[-MOST:])
    page.write_text(html_report(found, Period(), FailedTest(test, failure)), encoding="utf-8")
    own = len(changes) - len(people)
    lines = [*shown, f"{own} changes by the system are in the page" if own and people else "", f"page: {page}"]
    return "changes in the cluster", "\n".join(each for each in lines if each)


def _read(cluster: Cluster) -> Mapping[str, Any]:
    """Return the RevisionIncident of the test."""
    query = RevisionQuery(scopes_in(""), cluster.history.fields, content="")
    scope = query.scopes[0]
    parameters = {"summary": "incident", "include": "clusterrevisions", **parameters_of(query, scope)}
    return cluster.history.client.get(scope.path, parameters)


def _with_objects(found: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Add the objects before and after each change."""
    known = {str(each.revision): {"before": each.before, "after": each.after} for each in changes}
    return {**found, "changes": [{**each, **known.get(each["metadata"]["name"], {})} for each in found["changes"]]}
