"""`kubechronicle history status`: the size of history, its growth, and when it is dropped."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.retention.retention import RetentionPolicy
from kubechronicle.eventlog.retention.status import HistoryStatus, ResourceStatus, history_status
from kubechronicle.ops import terminal
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.server.retention import FOREVER, retention_policies
from kubechronicle.ops.settings.settings import Settings

_UNITS = ("B", "kB", "MB", "GB", "TB")


async def run(settings: Settings, *, as_json: bool) -> int:
    """Print the status. Raise OperatorError."""
    policies = retention_policies(settings)
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle history") as session:
        await check_schema(session)
        status = await history_status(session, policies)
        await tell_of_others(session)
    if as_json:
        terminal.stdout().json(_json(status), indented=True, zulu=True)
    else:
        terminal.stdout().lines(f"{text(status)}\n")
    return 0


def text(status: HistoryStatus) -> str:
    """Return the totals, a table of resources and a table of partitions, for people."""
    about = "" if status.exact else "about "
    oldest = min((each.oldest for each in status.resources if each.oldest is not None), default=None)
    lines = [
        f"log {status.log_id}",
        f"newest  revision {status.revision}" + (f", {_time(status.committed_at)}" if status.revision else ""),
        "oldest  " + (f"revision {oldest[0]}, {_time(oldest[1])}" if oldest is not None else "none"),
        f"size    {_size(status.log_bytes)} of changes, {_size(status.kept_bytes)} of objects older than these, "
        f"{_size(status.tombstone_bytes)} of digests, {_size(status.live_bytes)} of the index of existing objects",
        "",
    ]
    lines += _table(
        ("RESOURCE", "CHANGES", "SIZE", "CHANGES/DAY", "SIZE/DAY", "SINCE", "KEPT"),
        [
            (
                each.resource,
                about + str(each.changes),
                about + _size(each.bytes),
                "-" if each.changes_per_day is None else f"{each.changes_per_day:.0f}",
                "-" if each.bytes_per_day is None else _size(round(each.bytes_per_day)),
                _time(each.oldest[1]) if each.oldest is not None else "-",
                _policy(each.policy),
            )
            for each in status.resources
        ],
    )
    lines += [
        "",
        *_table(
            ("PARTITION", "REVISIONS", "SIZE", "GOES"),
            [
                (
                    partition.name,
                    f"{partition.first}-{partition.last}",
                    _size(partition.bytes),
                    _time(partition.droppable_at)
                    if partition.droppable_at is not None
                    else "never"
                    if partition.for_ever
                    else "not full yet",
                )
                for partition in status.partitions
            ],
        ),
    ]
    return "\n".join(lines)


def _table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heading, *rows)
    ]


def _time(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _size(number: float) -> str:
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


def _age(age: timedelta | None) -> str:
    if age is None:
        return FOREVER
    days, seconds = divmod(round(age.total_seconds()), 86400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number)


def _policy(policy: RetentionPolicy) -> str:
    return _age(policy.max_age) + (f", {policy.max_changes} changes" if policy.max_changes is not None else "")


def _json(status: HistoryStatus) -> dict[str, Any]:
    """Return the status for programs: camelCase keys, times of RFC 3339, sizes in bytes, null for unknown values."""
    resources = [_resource_json(each) for each in status.resources]
    partitions = [{_camel(name): value for name, value in asdict(partition).items()} for partition in status.partitions]
    totals = {_camel(name): value for name, value in asdict(status).items() if name not in ("resources", "partitions")}
    return {**totals, "resources": resources, "partitions": partitions}


def _resource_json(status: ResourceStatus) -> dict[str, Any]:
    document: dict[str, Any] = {_camel(name): value for name, value in asdict(status).items() if name != "policy"}
    for edge in ("oldest", "newest"):
        if document[edge] is not None:
            document[edge] = dict(zip(("revision", "time"), document[edge], strict=True))
    return {**document, "maxAge": _age(status.policy.max_age), "maxChanges": status.policy.max_changes}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
