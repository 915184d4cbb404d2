"""BranchCreation: the storage hook of new branches, which sets and checks the base, and bounds their number."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.admission.chain import CREATE, Attributes, State
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.history.branches import MOST, RESOURCE, base_of
from kubechronicle.eventlog.entries import Entry


class BranchCreation:
    """A StorageHook. ``needed``: resources without which no rule can be decided at the base."""

    resources = frozenset({RESOURCE})

    def __init__(self, reads: Reads, needed: Sequence[str]) -> None:
        self._reads = reads
        self._needed = needed

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """Return nothing: the changes of a deleted branch are removed by a loop."""
        return ()

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """Begin a branch without a base at the present revision. Note a base outside of history: 422. StatusError 403:
        there are as many branches as there may be."""
        obj = attributes.object
        if attributes.operation != CREATE or obj is None:
            return
        count = len(state.entries(RESOURCE, ""))
        if count >= MOST:
            why = f"there are {count} branches, and may be {MOST}; delete one that is not used any more"
            raise status.forbidden(attributes.rt, obj["metadata"].get("name") or "", why)
        spec = obj.get("spec")
        if spec is None or (isinstance(spec, dict) and spec.get("revision") is None):
            obj["spec"] = {**(spec or {}), "revision": self._reads.applied}
        elif isinstance(spec, dict) and isinstance(spec["revision"], int) and (problem := self._problem(base_of(obj))):
            attributes.causes.append(invalid_value("spec.revision", spec["revision"], problem))

    def _problem(self, base: int) -> str:
        """Return why a branch cannot begin at a revision, or ""."""
        applied = self._reads.applied
        if base > applied:
            return f"lies in the future: the newest revision is {applied}"
        begins = max(self._reads.views.compacted_for(resource) for resource in self._needed)
        if base < begins:
            return f"lies before the retained history of objects that rules need, which begins at revision {begins}"
        return ""
