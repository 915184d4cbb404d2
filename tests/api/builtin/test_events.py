"""Rules of Events in events.k8s.io/v1."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pipeline_writes import causes, context, create

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Prepared
from kubechronicle.api.registry.registry import builtin_registry

EVENTS = "events.k8s.io/v1/events"


EVENT = {
    "eventTime": "2026-03-04T05:06:07.000001Z",
    "reportingController": "example.com/watcher",
    "reportingInstance": "w-1",
    "action": "Looking",
    "reason": "Seen",
    "type": "Normal",
    "note": "all quiet",
    "regarding": {"kind": "ConfigMap", "namespace": "shop", "name": "c", "apiVersion": "v1"},
}


def test_only_the_series_of_an_event_may_change() -> None:
    stored = create(EVENTS, EVENT)
    series = {"count": 2, "lastObservedTime": "2026-03-04T05:07:00.000000Z"}
    rt = builtin_registry().lookup(*EVENTS.split("/"))
    assert rt is not None
    held = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}
    shown = pipeline.to_request_version(rt, copy.deepcopy(held))
    ctx = context(EVENTS, name="one")

    def changed(**members: Any) -> Prepared:
        new, _ = pipeline.decode_object(rt, {**copy.deepcopy(shown), **members}, ctx, create=False)
        return pipeline.prepare_update(rt, held, new, ctx)

    assert changed(series=series).object["series"]["count"] == 2
    with pytest.raises(StatusError) as rejected:
        changed(series={**series, "count": 1}, note="louder")
    assert causes(rejected.value) == [
        'series.count: Invalid value: "": should be at least 2',
        'message: Invalid value: "louder": field is immutable',
    ]
    assert "group" not in (rejected.value.details or {})
    with pytest.raises(StatusError) as rejected:
        changed(related={})
    (found,) = causes(rejected.value)
    assert found.startswith('related: Invalid value: {"Kind":"","Namespace":"",')


@pytest.mark.parametrize(("path", "field"), [(EVENTS, "reportingController"), ("/v1/events", "reportingComponent")])
def test_the_reporting_controller_has_the_name_of_the_requests_version(path: str, field: str) -> None:
    body = {**EVENT, "reportingController": "", "involvedObject": EVENT["regarding"]}
    with pytest.raises(StatusError) as rejected:
        create(path, body)
    assert f"{field}: Required value" in causes(rejected.value)
