"""Flags: audit. The two backends have the same flags for buffers and long events."""

from __future__ import annotations

from kubechronicle.ops.settings.flags.flag import Flag


def _batch(backend: str, *, mode: str, max_size: str, max_wait: str, throttle: str, qps: str, burst: str) -> list[Flag]:
    name, only = f"audit-{backend}-batch", "Only in mode batch."
    return [
        Flag(
            name=f"audit-{backend}-mode", placeholder="MODE", default=mode,
            help="How requests and events meet. blocking: an answer waits until its events are written. "
            "blocking-strict: as blocking, and a request is rejected if its first event cannot be written. batch: "
            "events wait in a buffer, requests do not.",
        ),
        Flag(
            name=f"{name}-buffer-size", placeholder="N", default="10000",
            help="The events that wait at most; further ones are dropped and counted.",
        ),
        Flag(name=f"{name}-max-size", placeholder="N", default=max_size, help=f"The events of a batch. {only}"),
        Flag(
            name=f"{name}-max-wait", placeholder="DURATION", default=max_wait,
            help=f"The time after which a batch is sent that is not full. {only}",
        ),
        Flag(
            name=f"{name}-throttle-enable", placeholder="true|false", default=throttle, switch=True,
            help=f"Limit the batches a second. {only}",
        ),
        Flag(name=f"{name}-throttle-qps", placeholder="N", default=qps, help=f"The batches a second. {only}"),
        Flag(
            name=f"{name}-throttle-burst", placeholder="N", default=burst,
            help=f"The batches sent at once after a pause. {only}",
        ),
    ]  # fmt: skip


def _truncation(backend: str) -> list[Flag]:
    name = f"audit-{backend}-truncate"
    return [
        Flag(
            name=f"{name}-enabled", placeholder="true|false", default="false", switch=True,
            help="Limit the size of events and batches.",
        ),
        Flag(
            name=f"{name}-max-batch-size", placeholder="BYTES", default="10485760",
            help="The size of a batch. A larger one is split.",
        ),
        Flag(
            name=f"{name}-max-event-size", placeholder="BYTES", default="102400",
            help="The size of an event. A larger one loses the objects of request and answer; if it is still too "
            "large, it is dropped and counted.",
        ),
    ]  # fmt: skip


FLAGS = (
    Flag(
        name="audit-policy-file", placeholder="FILE", default="",
        help="The audit policy: a Policy of audit.k8s.io/v1. Reloaded when it changes. Without it, there are no audit "
        "events.",
    ),
    Flag(
        name="audit-changes", placeholder="true|false", default="false", switch=True,
        help="Annotate the audit events of writes with what they changed: the revision in the log, or that nothing was "
        "stored (no-op, dry-run); from level Request on the difference, too.",
    ),
    Flag(
        name="audit-log-path", placeholder="FILE", default="",
        help="The file that audit events are written to, one a line; - is standard output.",
    ),
    Flag(
        name="audit-log-maxage", placeholder="DAYS", default="366",
        help="The days that rotated files are kept, by the time in their names; 0: no limit.",
    ),
    Flag(
        name="audit-log-maxbackup", placeholder="N", default="100",
        help="The number of rotated files that are kept; 0: no limit.",
    ),
    Flag(
        name="audit-log-maxsize", placeholder="MIB", default="100",
        help="The size at which the file is rotated; 0: never.",
    ),
    Flag(
        name="audit-log-format", placeholder="FORMAT", default="json",
        help="json: the events of audit.k8s.io. legacy: their main facts as text.",
    ),
    Flag(
        name="audit-log-version", placeholder="VERSION", default="audit.k8s.io/v1",
        help="The API version of the events in the file.",
    ),
    Flag(
        name="audit-log-compress", placeholder="true|false", default="false", switch=True,
        help="Compress rotated files with gzip.",
    ),
    *_batch("log", mode="blocking", max_size="1", max_wait="0s", throttle="false", qps="0", burst="0"),
    *_truncation("log"),
    Flag(
        name="audit-webhook-config-file", placeholder="FILE", default="",
        help="The server that audit events are sent to: a kubeconfig file. Its user is this server.",
    ),
    Flag(
        name="audit-webhook-version", placeholder="VERSION", default="audit.k8s.io/v1",
        help="The API version of the events for the webhook.",
    ),
    Flag(
        name="audit-webhook-initial-backoff", placeholder="DURATION", default="10s",
        help="The time after which a failed batch is sent again. Each further wait is half as long again; after five "
        "attempts the events are given up.",
    ),
    *_batch("webhook", mode="batch", max_size="400", max_wait="30s", throttle="true", qps="10", burst="15"),
    *_truncation("webhook"),
    Flag(
        name="audit-reads-policy-file", placeholder="FILE", default="",
        help="Record reads in the database: a Policy of audit.k8s.io/v1. Each get, list and watch of objects whose "
        "level in this policy is not None is a row of `chronicle.reads`. Reloaded when it changes.",
    ),
    Flag(
        name="audit-reads-retention", placeholder="DAYS", default="366",
        help="The days that recorded reads are kept; 0: for ever.",
    ),
)  # fmt: skip
