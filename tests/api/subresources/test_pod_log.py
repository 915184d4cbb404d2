"""The options of a pod's log, the container they mean, and the kubelet's errors."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.subresources import pod_log


def options(*, split: bool = True, **query: str) -> pod_log.PodLogOptions:
    return pod_log.parse({name: [value] for name, value in query.items()}, split=split)


def pod(*containers: str, **others: Any) -> Any:
    spec = {"containers": [{"name": name} for name in containers], **others}
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}


def test_the_request_to_the_kubelet() -> None:
    given = options(follow="", previous="0", tailLines="5", sinceTime="2026-01-02T03:04:05+01:00", timestamps="x")
    assert pod_log.kubelet_target(pod("c"), "c", given) == (
        "/containerLogs/ns/p/c?follow=true&sinceTime=2026-01-02T02%3A04%3A05Z&stream=All&tailLines=5&timestamps=true"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"tailLines": "-1"}, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"limitBytes": "0"}, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"sinceSeconds": "1", "sinceTime": "2026-01-02T03:04:05Z"},
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ({"stream": "Stdin"}, 'stream: Unsupported value: "Stdin"'),
        ({"stream": "Stdout", "tailLines": "1"}, "`tailLines` and specific `stream` are mutually exclusive for now"),
    ],
)
def test_wrong_options(query: dict[str, str], message: str) -> None:
    with pytest.raises(StatusError) as caught:
        pod_log.validate(options(**query), "p", split=True)
    assert caught.value.code == 422
    assert message in caught.value.message


def test_streams_can_be_chosen_by_a_gate_alone() -> None:
    assert "stream" not in pod_log.kubelet_target(pod("c"), "c", options(split=False))
    pod_log.validate(options(split=False), "p")
    for stream in ("All", "Stdout"):
        with pytest.raises(StatusError) as caught:
            pod_log.validate(options(split=False, stream=stream), "p")
        assert "stream: Forbidden: may not be specified" in caught.value.message


def test_options_that_are_no_numbers_or_times() -> None:
    for query in ({"tailLines": "x"}, {"sinceTime": "x"}):
        with pytest.raises(StatusError) as caught:
            options(**query)
        assert caught.value.code == 400


def test_the_container() -> None:
    assert pod_log.container_of(pod("a"), "") == "a"
    several = pod("a", "b", initContainers=[{"name": "i"}], ephemeralContainers=[{"name": "e"}])
    assert pod_log.container_of(several, "e") == "e"
    for wanted, message in (
        ("", "a container name must be specified for pod p, choose one of: [i a b e]"),
        ("z", "container z is not valid for pod p"),
    ):
        with pytest.raises(StatusError) as caught:
            pod_log.container_of(several, wanted)
        assert (caught.value.code, caught.value.message) == (400, message)


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (500, "InternalError", "Internal error occurred: why"),
        (400, "BadRequest", "why"),
        (404, "NotFound", "the server could not find the requested resource ( pods/log p)"),
        (403, "Forbidden", "why ( pods/log p)"),
        (
            502,
            "InternalError",
            'an error on the server ("why") has prevented the request from succeeding ( pods/log p)',
        ),
        (
            418,
            "Unknown",
            "the server responded with the status code 418 but did not return more information ( pods/log p)",
        ),
    ],
)
def test_errors_of_the_kubelet(code: int, reason: str, message: str) -> None:
    error = pod_log.kubelet_error(code, "why", "p")
    assert (error.code, error.reason, error.message) == (code, reason, message)
