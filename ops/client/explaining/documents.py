"""Explanations as JSON, for `why -o json` and for the web page."""

from __future__ import annotations

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.explaining.causes import Chain
from kubechronicle.ops.client.explaining.explainer import Explanation


def explanation_document(found: Explanation) -> Object:
    """Return an explanation, its suspects with their chains of causes."""
    document: Object = {
        "object": str(found.subject),
        "namespace": found.subject.namespace,
        "symptoms": [{"object": name, "text": each.text, "since": each.since} for name, each in found.symptoms],
        "events": [
            {part: event.get(part) for part in ("reason", "message", "count", "lastTimestamp")}
            for event in found.events
        ],
        "suspects": [
            {"object": str(each.related.subject), "relation": each.related.relation, "before": each.before}
            | _chain_document(each.chain)
            | ({"commit": {"id": each.commit[0], "from": each.commit[1]}} if each.commit[0] else {})
            for each in found.suspects
        ],
        "notSearched": found.unread,
    }
    return document | ({"deletion": _chain_document(found.deletion)} if found.deletion is not None else {})


def _chain_document(chain: Chain) -> Object:
    return {"links": chain.links} | ({"stopped": chain.stopped} if chain.stopped else {})
