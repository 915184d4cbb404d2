"""The status of a Transaction: the outcome of each change, and the range of revisions."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.writing.together import Result
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.pipeline.pipeline import Outcome
from kubechronicle.api.values.objects import Object


def status_of(results: Sequence[Result], *, dry_run: bool) -> Object:
    """Return the status. A dry run has no revisions."""
    found = [_result(each) for each in results]
    revisions = [
        int(each["resourceVersion"])
        for each in found
        if each["outcome"] != "unchanged" and each.get("resourceVersion") and not dry_run
    ]
    if not revisions:
        return {"changes": found}
    return {"firstRevision": str(min(revisions)), "lastRevision": str(max(revisions)), "changes": found}


def _result(result: Result) -> Object:
    rt = result.target.rt
    found: Object = {"outcome": _outcome(result), "apiVersion": rt.api_version, "kind": rt.kind}
    return found | {name: value for name, value in _identity(result.written).items() if value}


def _identity(written: Written) -> Object:
    """Return what identifies the object. That of an entry need not be decoded: it may be large."""
    entry = written.entry
    if entry is not None:
        _, namespace, name = entry.key
        return {"namespace": namespace, "name": name, "uid": entry.uid, "resourceVersion": str(entry.revision)}
    assert written.prepared is not None
    metadata = (written.object or written.prepared.object)["metadata"]
    return {name: metadata.get(name) for name in ("namespace", "name", "uid", "resourceVersion")}


def _outcome(result: Result) -> str:
    prepared = result.written.prepared
    assert prepared is not None
    if prepared.outcome is Outcome.UNCHANGED:
        return "unchanged"
    if prepared.outcome is Outcome.GONE or result.removed:
        return "deleted"
    if result.deletes:
        return "marked"
    return "created" if result.written.created else "changed"
