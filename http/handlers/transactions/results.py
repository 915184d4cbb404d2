"""The status of a Transaction: the outcome of each change, and the range of revisions."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.writing.together import Result
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
    written, rt = result.written, result.target.rt
    assert written.prepared is not None
    obj = written.entry.object() if written.entry is not None else written.object or written.prepared.object
    metadata = obj["metadata"]
    named = {name: metadata.get(name) for name in ("namespace", "name", "uid", "resourceVersion")}
    found: Object = {"outcome": _outcome(result), "apiVersion": rt.api_version, "kind": rt.kind}
    return found | {name: value for name, value in named.items() if value}


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
