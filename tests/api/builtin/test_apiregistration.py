"""Status of APIServices."""

from __future__ import annotations

from pipeline_writes import NOW, create, rejections_of


def test_local_api_service_is_available() -> None:
    path = "apiregistration.k8s.io/v1/apiservices"
    spec = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    local = create(path, {"spec": spec}, "v1.x.example.com")
    assert local["status"]["conditions"] == [
        {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
    ]
    away = create(path, {"spec": {**spec, "service": {"name": "s", "namespace": "n"}}}, "v1.x.example.com")
    assert away["status"] == {}
    wrong = {"conditions": [{"type": "Available", "status": "Perhaps"}]}
    assert rejections_of(path, {"spec": spec}, {"status": wrong}, name="v1.x.example.com", below="status") == [
        'status.conditions[0].status: Unsupported value: "Perhaps": supported values: "True", "False", "Unknown"'
    ]
