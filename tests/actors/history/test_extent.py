"""RevisionExtent: the changes that a search covers, whatever else it selects."""

from __future__ import annotations

from kubechronicle.actors.history.extent import _naming
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.records import Operation


def test_a_search_covers_the_changes_of_its_objects() -> None:
    """Otherwise a mistyped reason would look like an object that never existed."""
    named = ChangeQuery(resources=("pods",), namespace="a", texts=(("uid", Text(value="u")),))
    asked = ChangeQuery(
        resources=("pods",),
        namespace="a",
        texts=(("uid", Text(value="u")), ("user_name", Text(value="jane"))),
        operations=(Operation.DELETE,),
        reason="ticket 42",
    )
    assert _naming(asked) == named
