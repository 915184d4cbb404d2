"""Validation of Jobs, and of the template of Jobs in a CronJob."""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.builtin.batch.job_policies_and_status import (
    failure_policy,
    scheduling,
    scheduling_update,
    success_policy,
)
from kubechronicle.api.builtin.common.checks import label_selector, not_negative, sorted_labels
from kubechronicle.api.builtin.common.go_shapes import record, selector
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate import (
    immutable_selector,
    pod_template,
    selector_matches,
    template_labels,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required, too_long
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.strategy.strategy import keep
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


def _restart_policy(template: Object, field: str) -> list[Cause]:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("OnFailure", "Never"):
        return []
    if policy in ("", "Always"):
        return [required(f"{field}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')]
    return [not_supported(f"{field}.spec.restartPolicy", policy, ("OnFailure", "Never"))]


MAX_PARALLELISM: Final = 100_000
MAX_FAILED_INDEXES: Final = 100_000
MANY_COMPLETIONS: Final = 100_000
"""Completions above which a job with limits per index may have fewer pods and failures (KEP-3850)."""

MAX_FAILED_OF_MANY: Final = 10_000
MAX_PARALLELISM_OF_MANY: Final = 10_000
_PER_INDEX: Final = ("backoffLimitPerIndex", "maxFailedIndexes")


def job_spec(spec: Object, field: str, options: PodOptions) -> list[Cause]:
    """Check the rules that Jobs share with the template of CronJobs."""
    members = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    causes = not_negative(spec, field, *members, *_PER_INDEX)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    causes += _managed_by(spec.get("managedBy"), f"{field}.managedBy")
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        causes.append(not_supported(f"{field}.completionMode", mode, ("NonIndexed", "Indexed")))
    elif mode == "Indexed":
        causes += _indexed(spec, field)
    else:
        causes += [
            invalid_value(f"{field}.{name}", spec[name], "requires indexed completion mode")
            for name in _PER_INDEX
            if spec.get(name) is not None
        ]
    if spec.get("podFailurePolicy") is not None:
        causes += failure_policy(spec, f"{field}.podFailurePolicy")
    success = spec.get("successPolicy")
    if success is not None and mode != "Indexed":
        shown = record(success, "SuccessPolicy")
        causes.append(invalid_value(f"{field}.successPolicy", shown, "requires indexed completion mode"))
    elif success is not None:
        causes += success_policy(success, spec.get("completions") or 0, f"{field}.successPolicy")
    causes += _replacement(spec, f"{field}.podReplacementPolicy")
    if spec.get("scheduling") is not None:
        causes += scheduling(spec, f"{field}.scheduling")
    template = spec.get("template") or {}
    causes += pod_template(template, f"{field}.template", options) + _restart_policy(template, f"{field}.template")
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy == "OnFailure" and spec.get("podFailurePolicy") is not None:
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid_value(f"{field}.template.spec.restartPolicy", policy, detail))
    return causes


def _indexed(spec: Object, field: str) -> list[Cause]:
    """Check the limits of an Indexed job: completions, parallelism and failed indexes."""
    causes: list[Cause] = []
    names = ("completions", "parallelism", "maxFailedIndexes", "backoffLimitPerIndex")
    completions, parallelism, failed, limit = (spec.get(name) for name in names)
    if completions is None:
        causes.append(required(f"{field}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > MAX_PARALLELISM:
        detail = f"must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
        causes.append(invalid_value(f"{field}.parallelism", parallelism, detail))
    path = f"{field}.maxFailedIndexes"
    if failed is not None and completions is not None and failed > completions:
        causes.append(invalid_value(path, failed, "must be less than or equal to completions"))
    if failed is not None and failed > MAX_FAILED_INDEXES:
        causes.append(invalid_value(path, failed, f"must be less than or equal to {MAX_FAILED_INDEXES}"))
    if completions is None or completions <= MANY_COMPLETIONS or limit is None:
        return causes
    words = f"when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    if failed is None:
        causes.append(required(path, f"must be specified when completions is above {MANY_COMPLETIONS}"))
    if parallelism is not None and parallelism > MAX_PARALLELISM_OF_MANY:
        detail = f"must be less than or equal to {MAX_PARALLELISM_OF_MANY} {words}"
        causes.append(invalid_value(f"{field}.parallelism", parallelism, detail))
    if failed is not None and failed > MAX_FAILED_OF_MANY:
        causes.append(invalid_value(path, failed, f"must be less than or equal to {MAX_FAILED_OF_MANY} {words}"))
    return causes


MAX_MANAGER: Final = 63


def _managed_by(manager: str | None, field: str) -> list[Cause]:
    if manager is None:
        return []
    domain, slash, path = manager.partition("/")
    if not manager:
        causes = [required(field)]
    elif not slash or not domain or not path:
        causes = [invalid_value(field, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    else:
        causes = [invalid_value(field, domain, problem) for problem in names.dns_subdomain(domain)]
        if not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", path):
            causes.append(invalid_value(field, path, _PATH_MESSAGE))
    if len(manager) > MAX_MANAGER:
        causes.append(too_long(field, MAX_MANAGER))
    return causes


_PATH_MESSAGE: Final = names.regex_message("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+")


def _replacement(spec: Object, field: str) -> list[Cause]:
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    return [] if policy is None or policy in allowed else [not_supported(field, policy, allowed)]


def job(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the spec and the selector of a Job, and that names of indexed pods are valid host names."""
    spec = obj["spec"]
    is_generated = spec.get("selector") is not None and not spec.get("manualSelector")
    causes = _generated_selector(obj["metadata"], spec) if is_generated else []
    return causes + _whole_spec(spec, options) + _host_names(obj)


def _host_names(obj: Object) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    if spec.get("completionMode") != "Indexed" or (spec.get("completions") or 0) <= 0:
        return []
    host = f"{name}-{spec['completions'] - 1}"
    if not names.dns_label(host):
        return []
    return [invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {host}")]


def _whole_spec(spec: Object, options: PodOptions) -> list[Cause]:
    causes = job_spec(spec, "spec", options)
    given = spec.get("selector")
    if given is None:
        return [*causes, required("spec.selector"), *template_labels(spec)]
    return causes + (label_selector(given, "spec.selector") or template_labels(spec))


_GENERATED: Final = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    (CONTROLLER_UID, "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)
"""Labels that the server adds to a job's template, each with its source in the job's metadata."""


def _generated_selector(metadata: Object, spec: Object) -> list[Cause]:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    causes: list[Cause] = []
    wanted = {label: metadata.get(source, "") for label, source in _GENERATED}
    for label, value in wanted.items():
        field = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            causes.append(required(field, f"must be '{value}'"))
        elif labels[label] != value:
            causes.append(invalid_value(field, sorted_labels(labels), f"must be '{value}'"))
    if not label_selector(spec["selector"], "") and not selector_matches(spec["selector"], wanted):
        causes.append(invalid_value("spec.selector", selector(spec["selector"]), "`selector` not auto-generated"))
    return causes


_STAYING: Final = (
    ("completionMode", ""),
    ("podFailurePolicy", "PodFailurePolicy"),
    ("backoffLimitPerIndex", ""),
    ("managedBy", ""),
    ("successPolicy", "SuccessPolicy"),
)
"""Immutable fields of a Job, with their Go types for messages."""


def job_update(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a changed Job as a new one, and that its selector, template (unless suspended) and policies stay."""
    spec, held = new["spec"], old["spec"]
    causes = _whole_spec(spec, options) + _completions(spec, held)
    causes += immutable_selector(spec.get("selector"), held.get("selector"))
    causes += _template_update(spec.get("template") or {}, old, options)
    for name, kind in _STAYING:
        if spec.get(name) != held.get(name):
            shown = record(spec.get(name), kind) if kind else spec.get(name)
            causes.append(invalid_value(f"spec.{name}", shown, IMMUTABLE))
    return causes + scheduling_update(spec, held, "spec.scheduling") + _host_names(new)


def _completions(spec: Object, held: Object) -> list[Cause]:
    """Reject a new number of completions, except for an Indexed job that changes it together with its parallelism."""
    wanted, field = spec.get("completions"), "spec.completions"
    if wanted == held.get("completions"):
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid_value(field, wanted, IMMUTABLE)]
    if wanted is None or wanted == spec.get("parallelism"):
        return []
    return [invalid_value(field, wanted, "can only be modified in tandem with spec.parallelism")]


_SCHEDULING: Final = ("nodeSelector", "tolerations", "schedulingGates")


def _template_update(template: Object, old: Object, options: PodOptions) -> list[Cause]:
    """Reject a changed template. The metadata, scheduling and resources of a suspended job's template may change."""
    held = old["spec"].get("template") or {}
    if template == held:
        return []
    idle = _is_suspended_and_idle(old)
    unstarted = bool(old["spec"].get("suspend")) and not (old.get("status") or {}).get("startTime")
    if idle if options.scheduling_of_suspended else unstarted:
        held = _with_scheduling(held, template)
    if idle and options.resources_of_suspended:
        wanted, spec = template.get("spec") or {}, _with_resources(held, template)
        if record(wanted, "PodSpec", compared=True) == record(spec, "PodSpec", compared=True):
            return []
        return [invalid_value("spec.template.spec", record(wanted, "PodSpec"), IMMUTABLE)]
    if record(template, "PodTemplateSpec", compared=True) == record(held, "PodTemplateSpec", compared=True):
        return []
    return [invalid_value("spec.template", record(template, "PodTemplateSpec"), IMMUTABLE)]


def _is_suspended_and_idle(old: Object) -> bool:
    """Return whether a job is suspended and has no pods: then its scheduling fields and resources may change
    (KEP-5440)."""
    status = old.get("status") or {}
    suspended = any(
        each.get("type") == "Suspended" and each.get("status") == "True" for each in status.get("conditions") or ()
    )
    return bool(old["spec"].get("suspend")) and not status.get("active") and (suspended or not status.get("startTime"))


def _with_scheduling(held: Object, template: Object) -> Object:
    """Return the old template with the labels, annotations and scheduling fields of the new one."""
    spec: Object = copy_object(held.get("spec") or {})
    wanted = template.get("spec") or {}
    metadata = dict(held.get("metadata") or {})
    for name in ("labels", "annotations"):
        keep(name, metadata, template.get("metadata") or {})
    for name in _SCHEDULING:
        keep(name, spec, wanted)
    affinity = dict(spec.pop("affinity", None) or {})
    keep("nodeAffinity", affinity, wanted.get("affinity") or {})
    if affinity or "affinity" in wanted:
        spec["affinity"] = affinity
    return {**held, "metadata": metadata, "spec": spec}


def _with_resources(held: Object, template: Object) -> Object:
    """Return the spec of the old template with the resources of the new one's containers."""
    spec: Object = copy_object(held.get("spec") or {})
    wanted = template.get("spec") or {}
    for group in ("containers", "initContainers"):
        mine, others = spec.get(group) or (), wanted.get(group) or ()
        for one, other in zip(mine, others, strict=True) if len(mine) == len(others) else ():
            if one.get("name") == other.get("name"):
                keep("resources", one, other)
    return spec
