"""Rules of lifecycle.k8s.io: the turns of responders, what they report, and tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipeline_writes import Object

from kubechronicle.api.builtin import lifecycle
from kubechronicle.api.builtin.common.cell_text import ages_at
from kubechronicle.api.builtin.lifecycle import eviction_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = "b.example.com/x", "a.example.com/x"


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def status(first: str, second: str, *, reports: tuple[Object, Object] = ({}, {}), **more: Any) -> Object:
    """Return a status of two responders in these states; the first one has the higher priority."""
    targets = [{"name": SECOND, "priority": 2000, "state": second}, {"name": FIRST, "priority": 3000, "state": first}]
    responders = [{"name": FIRST, **reports[0]}, {"name": SECOND, **reports[1]}]
    return {"status": {"targetResponders": targets, "responders": responders, **more}}


def problems(new: Object, old: Object) -> list[str]:
    return [str(cause) for cause in eviction_status(new, old, ago())]


def ended(kind: str, status: str = "True", reason: str = "R") -> list[Object]:
    return [{"type": kind, "status": status, "lastTransitionTime": ago(), "reason": reason, "message": ""}]


STARTED = {"startTime": ago()}
RUNNING = status("Active", "Inactive", reports=({"startTime": ago(minutes=5)}, {}))
DONE = {"startTime": ago(minutes=5), "completionTime": ago()}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (status("Active", "Inactive", reports=(STARTED, {})), {}),
        (RUNNING, RUNNING),
        (
            status("Completed", "Active", reports=(DONE, STARTED)),
            status("Active", "Inactive", reports=(DONE, {})),
        ),
        (
            status("Interrupted", "Active", reports=({"startTime": ago(minutes=21)}, STARTED)),
            status("Active", "Inactive", reports=({"startTime": ago(minutes=21)}, {})),
        ),
        (
            status("Canceled", "Inactive", reports=({"startTime": ago(minutes=5)}, {}), conditions=ended("Failed")),
            RUNNING,
        ),
    ],
)
def test_turns_in_order(new: Object, old: Object) -> None:
    assert problems(new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        (
            status("Inactive", "Active", reports=({}, STARTED)),
            {},
            [
                'targetResponders[1].state: Invalid value: "Inactive": must be one of: Active, because this responder '
                "is next in line",
                'targetResponders[0].state: Invalid value: "Active": must be one of: Inactive, because the previously '
                "active has not finished processing",
            ],
        ),
        (
            status("Canceled", "Active", reports=({"startTime": ago(minutes=5)}, STARTED)),
            RUNNING,
            [
                "targetResponders[1].state: Forbidden: must stay Active because the responder is in progress and it "
                "should report status.responders.heartbeatTime or status.responders.completionTime"
            ],
        ),
        (
            status("Active", "Inactive", reports=(STARTED, {})),
            status("Completed", "Active", reports=(DONE, STARTED)),
            [
                'targetResponders[1].state: Invalid value: "Active": must be one of: Completed, because final state is '
                "immutable",
                'targetResponders[0].state: Invalid value: "Inactive": must be one of: Canceled, Completed, '
                "Interrupted, because this responder must reach a final state",
                'responders[1]: Invalid value: {"Name":"a.example.com/x","StartTime":null,"HeartbeatTime":null,'
                '"ExpectedCompletionTime":null,"CompletionTime":null,"Message":null}: field is immutable',
            ],
        ),
        (
            {"status": {"targetResponders": RUNNING["status"]["targetResponders"][:1]}},
            RUNNING,
            [
                'targetResponders: Invalid value: [{"Name":"a.example.com/x","Priority":2000,"State":"Inactive"}]: '
                "must preserve the same length and the same keys",
                "responders: Invalid value: null: must be the same length as status.targetResponders and contain the "
                "same keys",
            ],
        ),
        (
            status("Active", "Inactive", reports=({"startTime": ago(minutes=1), "heartbeatTime": ago(hours=1)}, {})),
            {},
            [
                f'responders[0].startTime: Invalid value: "{ago(minutes=1)}": must be set to the present time',
                f'responders[0].heartbeatTime: Invalid value: "{ago(hours=1)}": must occur after '
                "status.responders[0].startTime",
            ],
        ),
        (
            {**RUNNING, "status": {**RUNNING["status"], "conditions": ended("Failed", reason="Other")}},
            {"status": {**RUNNING["status"], "conditions": ended("Failed")}},
            [
                f'conditions: Invalid value: [{{"type":"Failed","status":"True","lastTransitionTime":"{ago()}",'
                '"reason":"Other","message":""}]: Failed condition status cannot be reverted',
                'targetResponders[1].state: Invalid value: "Active": must be one of: Canceled, Completed, Interrupted, '
                "because the eviction request has finished processing",
            ],
        ),
    ],
)
def test_turns_out_of_order(new: Object, old: Object, found: list[str]) -> None:
    assert problems(new, old) == [f"status.{each}" for each in found]


def test_priorities_below_1000_are_reserved() -> None:
    target = {"name": "imperative-eviction.k8s.io/evictor", "priority": 100, "state": "Active"}
    new = {"status": {"targetResponders": [target], "responders": [{"name": target["name"], **STARTED}]}}
    assert problems(new, {}) == []
    target["priority"] = 101
    assert problems(new, {}) == [
        "status.targetResponders[0].priority: Invalid value: 101: core k8s responder is expected to have priority: 100"
    ]


def cells(kind: Any, obj: Object) -> list[Any]:
    made: list[Any] = kind.printer.cells({"metadata": {"name": "e", "creationTimestamp": ago(hours=3)}, **obj}, AGES)
    return made


AGES = ages_at(NOW)
POD = {"spec": {"target": {"pod": {"name": "p"}}}}


def test_rows() -> None:
    assert cells(lifecycle.EVICTION, POD) == [
        *("e", "p", "Pod", "Pending", "<unset> (0/0)", "<unset>", "<unknown>", "<none>", "3h", "<unset>", "<unset>"),
    ]
    later = (NOW + timedelta(minutes=3)).isoformat()
    report = {"startTime": ago(minutes=5), "heartbeatTime": ago(seconds=9), "expectedCompletionTime": later}
    running = status("Active", "Inactive", reports=({**report, "message": " m "}, {}))
    running["status"]["requesters"] = [{"name": "b/x", "intent": "Eviction"}, {"name": "a/x", "intent": "Eviction"}]
    assert cells(lifecycle.EVICTION, POD | running)[4:8] == [
        *("b.example.com/x (1/2)", "Started (5m ago)", "in 3m", "a/x + 1 more..."),
    ]
    assert cells(lifecycle.EVICTION, POD | running)[9:] == ["9s ago", "m"]
    done = status("Completed", "Interrupted", reports=(DONE, {}), conditions=ended("TargetEvicted"))
    done["status"]["requesters"] = [{"name": "b/x", "intent": "Withdrawn"}]
    assert cells(lifecycle.EVICTION, done)[1:8] == [
        *("<unset>", "<unset>", "TargetEvicted (R)", "b.example.com/x (2/2)", "Completed (0s ago)", "-", "<withdrawn>"),
    ]
    asked = {"spec": {**POD["spec"], "requester": "a/x", "intent": "Eviction"}, "status": {"observedGeneration": 1}}
    assert cells(lifecycle.EVICTIONREQUEST, asked) == ["e", "p", "Pod", "Progressing", "a/x", "Eviction", "3h"]
