"""Audit settings: --audit-*, and the parts of audit that they ask for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.store import Store
from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import AuditPolicy, PolicyError
from kubechronicle.http.audit.accesses import AccessRecorder
from kubechronicle.http.audit.audit import Audit, AuditParts
from kubechronicle.http.audit.backends import (
    BATCH,
    AuditBackend,
    AuditMetrics,
    BatchSettings,
    LogSettings,
    TruncateSettings,
    WebhookSettings,
)
from kubechronicle.http.audit.log_backend import LogBackend
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.audit.webhook_backend import WebhookBackend
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.free_memory import overwrite_cached
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

LOG, WEBHOOK = "log", "webhook"
POLICY: Final = "audit-policy-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """The policy, its file and content, and the backends; None for those that are off.

    ``tells_changes``: events say what writes changed.
    """

    policy: AuditPolicy
    file: Path
    content: bytes
    log: LogSettings | None = None
    webhook: WebhookSettings | None = None
    tells_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsPlan:
    """The policy of recorded reads or accesses, its file and content, and the days that reads are kept; 0: for ever."""

    policy: AuditPolicy
    file: Path
    content: bytes
    days: int


def reads_plan(settings: Settings) -> ReadsPlan | None:
    """Return the plan of recorded reads; None if they are off. Raise OperatorError."""
    file = settings.audit_reads_policy_file
    if file is None:
        return None
    policy, content = read_policy("audit-reads-policy-file", file)
    return ReadsPlan(policy=policy, file=file, content=content, days=settings.audit_reads_retention)


def record_plan(settings: Settings) -> ReadsPlan | None:
    """Return the plan of recorded accesses; None if they are off. Raise OperatorError."""
    file = settings.record
    if file is None:
        return None
    policy, content = read_policy("record", file)
    return ReadsPlan(policy=policy, file=file, content=content, days=0)


def audit_plan(settings: Settings) -> AuditPlan | None:
    """Return the plan; None if there is no policy or no backend. Raise OperatorError."""
    file_log, webhook = _log_settings(settings), _webhook_settings(settings)
    file = settings.audit_policy_file
    if file is None:
        for name, given in (("audit-log-path", file_log), ("audit-webhook-config-file", webhook)):
            if given is not None:
                log.warning("--%s has no effect without --%s", name, POLICY)
        return None
    policy, content = read_policy(POLICY, file)
    if file_log is None and webhook is None:
        log.warning("--%s has no effect without --audit-log-path or --audit-webhook-config-file", POLICY)
        return None
    tells_changes = settings.audit_changes
    return AuditPlan(
        policy=policy, file=file, content=content, log=file_log, webhook=webhook, tells_changes=tells_changes
    )


def read_policy(flag: str, file: Path) -> tuple[AuditPolicy, bytes]:
    """Return the policy of a file, and its content. Raise OperatorError."""
    try:
        content = file.read_bytes()
        policy, warnings = policies.load(content)
    except OSError as error:
        raise OperatorError(f"--{flag}: cannot read {file}: {error.strerror}") from None
    except PolicyError as error:
        raise OperatorError(f"--{flag}: {file}: {error}") from None
    if warnings:
        log.warning("--%s: %s has problems, which are ignored: %s", flag, file, ", ".join(warnings))
    return policy, content


def read_recorder(plan: ReadsPlan | None, reads: Reads, server: str) -> ReadRecorder | None:
    """Return the recorder of reads; None if they are not recorded. ``server``: the name of this process."""
    if plan is None:
        return None
    return ReadRecorder(reads.log.recorded, plan.policy, revision=lambda: reads.applied, server=server, days=plan.days)


def access_recorder(plan: ReadsPlan | None, store: Store, server: str) -> AccessRecorder | None:
    """Return the recorder of accesses; None if they are not recorded."""
    return None if plan is None else AccessRecorder(store, plan.policy, server=server)


def audit_parts(plan: AuditPlan | None, outgoing: Outgoing, *, server: str = "") -> AuditParts | None:
    """Return the parts of audit; None if it is off. Raise OperatorError."""
    if plan is None:
        return None
    metrics, backends = AuditMetrics(), list[AuditBackend]()
    if plan.log is not None:
        file_log = LogBackend(plan.log, metrics, overwrite=overwrite_cached)
        try:
            file_log.open()
        except OSError as error:
            raise OperatorError(f"--audit-log-path: cannot open {plan.log.path}: {error.strerror}") from None
        backends.append(file_log)
    if plan.webhook is not None:
        peer = read_kubeconfig(plan.webhook.kubeconfig)
        client = outgoing.client(peer, network=Network.CONTROL_PLANE)
        backends.append(WebhookBackend(plan.webhook, client, metrics))
    audit = Audit(Matcher(plan.policy), backends, metrics, tells_changes=plan.tells_changes)
    return AuditParts(audit, plan.file, plan.content, server=server)


def _log_settings(settings: Settings) -> LogSettings | None:
    if settings.audit_log_path is None:
        return None
    return LogSettings(
        path=settings.audit_log_path,
        format=settings.audit_log_format,
        mode=settings.audit_log_mode,
        max_age=settings.audit_log_maxage,
        max_backups=settings.audit_log_maxbackup,
        max_size=settings.audit_log_maxsize,
        compress=settings.audit_log_compress,
        batch=_batch(settings, LOG, settings.audit_log_mode),
        truncate=_truncation(settings, LOG),
    )


def _webhook_settings(settings: Settings) -> WebhookSettings | None:
    file = settings.audit_webhook_config_file
    if file is None:
        return None
    try:
        read_kubeconfig(file)
    except KubeconfigError as error:
        raise OperatorError(f"--audit-webhook-config-file: {error}") from None
    return WebhookSettings(
        kubeconfig=file,
        mode=settings.audit_webhook_mode,
        initial_backoff=settings.audit_webhook_initial_backoff,
        batch=_batch(settings, WEBHOOK, settings.audit_webhook_mode),
        truncate=_truncation(settings, WEBHOOK),
    )


def _batch(settings: Settings, backend: str, mode: str) -> BatchSettings:
    prefix = f"audit_{backend}_batch_"
    batch = BatchSettings(
        buffer_size=getattr(settings, f"{prefix}buffer_size"),
        max_size=getattr(settings, f"{prefix}max_size"),
        max_wait=getattr(settings, f"{prefix}max_wait"),
        throttle=getattr(settings, f"{prefix}throttle_enable"),
        qps=getattr(settings, f"{prefix}throttle_qps"),
        burst=getattr(settings, f"{prefix}throttle_burst"),
    )
    needed: dict[str, float] = {"buffer-size": batch.buffer_size}
    if mode == BATCH:
        needed["max-size"] = batch.max_size
        if batch.throttle:
            needed |= {"throttle-qps": batch.qps, "throttle-burst": batch.burst}
    for name, value in needed.items():
        if value <= 0:
            raise OperatorError(f"--audit-{backend}-batch-{name}: must be a positive number, got {value:g}")
    return batch


def _truncation(settings: Settings, backend: str) -> TruncateSettings:
    prefix = f"audit_{backend}_truncate_"
    limits = TruncateSettings(
        enabled=getattr(settings, f"{prefix}enabled"),
        max_batch_size=getattr(settings, f"{prefix}max_batch_size"),
        max_event_size=getattr(settings, f"{prefix}max_event_size"),
    )
    if limits.max_event_size <= 0:
        raise OperatorError(f"--audit-{backend}-truncate-max-event-size: must be a positive number")
    if limits.max_batch_size < limits.max_event_size:
        raise OperatorError(
            f"--audit-{backend}-truncate-max-batch-size: must be at least --audit-{backend}-truncate-max-event-size"
        )
    return limits
