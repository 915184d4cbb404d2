"""Validation of Jobs and CronJobs."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create, rejections_of, rules_with
from rejections import causes_of_change, rejection_causes

from kubechronicle.api.builtin.batch import job_validation
from kubechronicle.api.builtin.batch.cronjob import schedule_problem
from kubechronicle.api.builtin.batch.job import prepare_new_job
from kubechronicle.api.builtin.batch.job_policies_and_status import job_status
from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.meta import metadata
from kubechronicle.api.values.objects import Object

CONTAINER = {"name": "c", "image": "i"}


JOB: dict[str, Any] = {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "batch/v1/jobs",
            {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}},
            "spec.template.spec.restartPolicy",
            'Required value: valid values: "OnFailure", "Never"',
        ),
        (
            "batch/v1/cronjobs",
            {"spec": {"timeZone": "Mars/Olympus"}},
            "spec.timeZone",
            'Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus',
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("path", "spec", "causes"),
    [
        (
            "batch/v1/jobs",
            {**JOB, "backoffLimitPerIndex": 1},
            [("backoffLimitPerIndex", "Invalid value: 1: requires indexed completion mode")],
        ),
        (
            "batch/v1/jobs",
            {
                **JOB,
                "podFailurePolicy": {
                    "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0, 0]}}]
                },
            },
            [
                (
                    "podFailurePolicy.rules[0].action",
                    'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
                ),
                *(
                    (
                        f"podFailurePolicy.rules[0].onExitCodes.values[{index}]",
                        "Invalid value: 0: must not be 0 for the In operator",
                    )
                    for index in (0, 1)
                ),
                ("podFailurePolicy.rules[0].onExitCodes.values[1]", "Duplicate value: 0"),
            ],
        ),
        (
            "batch/v1/jobs",
            {**JOB, "managedBy": "x"},
            [("managedBy", 'Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")')],
        ),
        (
            "batch/v1/cronjobs",
            {"schedule": "TZ=UTC * * * * *", "timeZone": "Nowhere/X", "jobTemplate": {"spec": JOB}},
            [
                (
                    "schedule",
                    'Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field '
                    "instead",
                ),
                ("timeZone", 'Invalid value: "Nowhere/X": unknown time zone Nowhere/X'),
            ],
        ),
    ],
)
def test_messages_of_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 * * * *", ""),
        ("0 0 1-15 jan,mar mon-fri", ""),
        ("TZ=UTC 0 0 * * *", ""),
        ("@hourly", ""),
        ("@every 1h30m", ""),
        ("every day", "expected exactly 5 fields, found 2: [every day]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@never", "unrecognized descriptor: @never"),
    ],
)
def test_schedules(schedule: str, problem: str) -> None:
    assert schedule_problem(schedule) == problem


JOB: dict[str, Any] = {
    "suspend": True,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
}


def _with_template(**spec: Any) -> dict[str, Any]:
    return {**JOB, "template": {**JOB["template"], "spec": {**JOB["template"]["spec"], **spec}}}


def _causes_of_update(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    selected = {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}

    def job(spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"labels": {"a": "b"}, **(spec["template"].get("metadata") or {})}
        return {"spec": {**spec, **selected, "template": {**spec["template"], "metadata": metadata}}}

    return [field for field, _ in rejection_causes("batch/v1/jobs", job(before), job(after))]


def test_the_scheduling_of_a_suspended_job_may_change_but_not_its_image() -> None:
    resources = {"resources": {"limits": {"cpu": "1"}}}
    moved = _with_template(nodeSelector={"a": "b"}, containers=[{"name": "c", "image": "i", **resources}])
    assert _causes_of_update(JOB, moved) == []
    assert _causes_of_update(JOB, _with_template(containers=[{"name": "c", "image": "j"}])) == ["spec.template.spec"]
    running = {**JOB, "suspend": False}
    assert _causes_of_update(running, {**moved, "suspend": False}) == ["spec.template"]


def test_other_metadata_of_a_suspended_jobs_template_may_change() -> None:
    template = {**JOB["template"], "metadata": {"finalizers": ["a.b/c"]}}
    assert _causes_of_update(JOB, {**JOB, "template": template}) == []


def test_a_policy_that_was_removed_is_shown_as_null() -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
    causes = rejection_causes(
        "batch/v1/jobs", {"spec": {**JOB, "podFailurePolicy": {"rules": rules}}}, {"spec": {**JOB}}
    )
    assert ("spec.podFailurePolicy", "Invalid value: null: field is immutable") in causes


def test_a_job_without_a_name_is_prepared_for_its_rejection() -> None:
    new: dict[str, Any] = {"metadata": {"uid": "u"}, "spec": {"template": {}}}
    prepare_new_job(new)
    assert new["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == ""


def test_labels_of_its_pods_are_those_of_a_job_without_labels() -> None:
    template = {**JOB["template"], "metadata": {"labels": {"a": "b"}}}
    job = create("batch/v1/jobs", {"spec": {"template": template}})
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"]
    assert sorted(job["metadata"]["labels"]) == sorted(
        ("a", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
    )
    own = create("batch/v1/jobs", {"metadata": {"labels": {"a": "b"}}, "spec": {"template": template}})
    assert own["metadata"]["labels"] == {"a": "b"}


def true(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


TIMES = {"startTime": "2026-11-29T00:00:00Z", "completionTime": "2026-11-29T00:00:01Z"}


@pytest.mark.parametrize(
    ("spec", "before", "after", "fields"),
    [
        # A suspended job without completions is complete, and never starts.
        (
            {"suspend": True, "completions": 0},
            {"conditions": true("SuccessCriteriaMet")},
            {"conditions": true("SuccessCriteriaMet", "Complete"), "completionTime": TIMES["completionTime"]},
            [],
        ),
        (
            {"completions": 0},
            {"conditions": true("SuccessCriteriaMet")},
            {"conditions": true("SuccessCriteriaMet", "Complete"), "completionTime": TIMES["completionTime"]},
            ["status.startTime"],
        ),
        # A job that is resumed loses its former start.
        (
            {},
            {"startTime": TIMES["startTime"], "conditions": true("Suspended")},
            {"startTime": TIMES["completionTime"], "conditions": [{"type": "Suspended", "status": "False"}]},
            [],
        ),
        ({}, {"startTime": TIMES["startTime"]}, {"startTime": TIMES["completionTime"]}, ["status.startTime"]),
        # A status that broke a rule may be updated, unless the fields of the rule change.
        ({}, {"ready": 3}, {"ready": 3, "failed": 1}, []),
        ({}, {"ready": 3}, {"ready": 4}, ["status.ready"]),
        ({}, {"conditions": true("Failed")}, {"conditions": true("Failed"), "failed": 1}, []),
    ],
)
def test_a_status_is_judged_by_its_changes(spec: Object, before: Object, after: Object, fields: list[str]) -> None:
    found = job_status({"spec": spec, "status": after}, {"spec": spec, "status": before})
    assert [cause.field for cause in found] == fields


def test_the_checks_of_the_status_of_a_finished_job() -> None:
    status = {
        "startTime": "2024-01-02T03:04:05Z",
        "completionTime": "2023-01-02T03:04:05Z",
        "ready": 5,
        "terminating": 3,
        "completedIndexes": "a",
        "conditions": [{"type": name, "status": "True"} for name in ("Complete", "SuccessCriteriaMet")],
    }
    found = rejection_causes("batch/v1/jobs", {"spec": JOB}, {"spec": JOB, "status": status}, "status")
    assert [(field, text) for field, text in found if "Indexes" not in field] == [
        ("status.completionTime", 'Invalid value: "2023-01-02T03:04:05Z": must be equal to or after `startTime`'),
        ("status.terminating", "Invalid value: 3: terminating>0 is invalid for finished job"),
        ("status.ready", "Invalid value: 5: cannot set more ready pods than active"),
    ]


def test_a_generated_selector_is_checked_in_new_jobs_only() -> None:
    labels = {"controller-uid": "u", "job-name": "a"}
    labels |= {f"batch.kubernetes.io/{name}": value for name, value in labels.items()}

    def job(labels: dict[str, str]) -> dict[str, Any]:
        template = {**JOB["template"], "metadata": {"labels": labels}}
        spec = {"selector": {"matchLabels": {"job-name": "a"}}, "template": template, "suspend": True}
        return {"metadata": {"name": "a", "uid": "u"}, "spec": spec}

    wrong, place = job({**labels, "controller-uid": ""}), "spec.template.metadata.labels[controller-uid]"
    assert place in [cause.field for cause in job_validation.job(wrong)]
    assert place not in [cause.field for cause in job_validation.job_update(wrong, job(labels))]


def test_a_job_with_a_generated_name_has_the_labels_of_its_request() -> None:
    labels = {"a": "b"}
    job: dict[str, Any] = {
        "metadata": {"generateName": "a-", "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}}},
    }
    metadata.generate_name(job["metadata"], name_suffix="12345")
    prepare_new_job({"metadata": {**job["metadata"], "uid": "u"}, "spec": job["spec"]})
    assert job["metadata"]["labels"] == {"a": "b"}
    assert labels["job-name"] == "a-12345"


def test_the_message_about_a_resize_policy_names_the_restart_policy_of_the_pod() -> None:
    policies = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    job = {"spec": _with_template(containers=[{"name": "c", "image": "i", "resizePolicy": policies}])}
    assert rejection_causes("batch/v1/jobs", job) == [
        (
            "spec.template.spec.containers[0].resizePolicy",
            "Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
        )
    ]


def test_claims_for_a_whole_pod_are_rejected_even_if_the_list_is_empty() -> None:
    cause = "claims may not be set for Resources at pod-level"
    job = {"spec": _with_template(resources={"claims": []})}
    assert ("spec.template.spec.resources.claims", f"Forbidden: {cause}") in rejection_causes("batch/v1/jobs", job)


def test_an_empty_preemption_policy_is_missing() -> None:
    job = {"spec": _with_template(preemptionPolicy="")}
    assert rejection_causes("batch/v1/jobs", job) == [("spec.template.spec.preemptionPolicy", "Required value")]


def test_gates_of_changes_of_a_suspended_job() -> None:
    def job(*, cpu: str = "1", selector: str = "a", started: bool = True) -> Object:
        container = {**CONTAINER, "resources": {"requests": {"cpu": cpu}}}
        template = {"spec": {"containers": [container], "restartPolicy": "Never", "nodeSelector": {"n": selector}}}
        status = {"startTime": "2026-11-29T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]}
        spec = {"suspend": True, "manualSelector": True, "template": template, "podReplacementPolicy": "Failed"}
        return {"metadata": {"name": "j"}, "spec": spec, "status": status if started else {}}

    def changed(gate: str, **change: Any) -> list[str]:
        started = change.pop("started", True)
        rules = KindRules(FeatureGates(given={gate: False} if gate else {}))
        causes = rules.of("jobs.batch").validate_update(job(started=started, **change), job(started=started))
        return [cause.field for cause in causes if cause.field in ("spec.template", "spec.template.spec")]

    resources, scheduling = "MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs"
    assert changed("", cpu="2", selector="b") == []
    assert changed(resources, cpu="2") == ["spec.template"]
    assert changed(resources, selector="b") == []
    assert changed(scheduling, cpu="2") == []
    assert changed(scheduling, selector="b") == ["spec.template.spec"]
    assert changed(scheduling, selector="b", started=False) == []


SCHEDULED = rules_with("WorkloadWithJob", "GenericWorkload")
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"scheduling": GANG}, ["gang.minCount: Invalid value: 2: must not be greater than parallelism (1)"]),
        ({"parallelism": 2, "scheduling": {**GANG, "disruptionMode": {"all": {}}}}, None),
        (
            {"scheduling": {"disruptionMode": {"all": {}}}},
            ['Invalid value: "": the disruptionMode `all` is not supported with the Basic scheduling policy'],
        ),
    ],
)
def test_scheduling_of_a_job(spec: dict[str, Any], causes: list[str] | None) -> None:
    for path, body in (
        ("batch/v1/jobs", {"spec": {**JOB, **spec}}),
        ("batch/v1/cronjobs", {"spec": {"schedule": "@daily", "jobTemplate": {"spec": {**JOB, **spec}}}}),
    ):
        if causes is None:
            assert "scheduling" in str(create(path, body, rules=SCHEDULED))
            assert "scheduling" not in str(create(path, body)["spec"])
        else:
            found = rejections_of(path, body, rules=SCHEDULED)
            assert [each.endswith(cause) for each, cause in zip(found, causes, strict=True)] == [True] * len(causes)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            {"schedulingPolicy": {"basic": {}}},
            "spec.scheduling.schedulingPolicy: Invalid value: null: the basic/gang policy variant is immutable after "
            "creation; only schedulingPolicy.gang.minCount may be updated",
        ),
        (None, "spec.scheduling: Invalid value: null: field cannot be cleared once set"),
    ],
)
def test_the_policy_of_a_job_stays(change: Any, cause: str) -> None:
    job = {"spec": {**JOB, "parallelism": 2, "scheduling": GANG}}
    assert rejections_of("batch/v1/jobs", job, {"spec": {"scheduling": change}}, rules=SCHEDULED) == [cause]
