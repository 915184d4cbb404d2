"""Comparison of a source with the log: the objects at the imported revision, and the changes after the compacted one.

The log is read as servers read it, so the comparison does not depend on the code that wrote it. Only digests of the
expected bodies are kept in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import orjson

from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key, Operation

PAGE: Final = 500


@dataclass(slots=True)
class Expected:
    """The state of the source.

    ``objects``: revision and digest of the body, by key.
    ``changes``: key and operation of each change of its history, by revision.
    """

    objects: dict[Key, tuple[int, bytes]] = field(default_factory=dict)
    changes: dict[int, tuple[Key, Operation]] = field(default_factory=dict)

    def put(self, key: Key, revision: int, body: bytes) -> None:
        self.objects[key] = (revision, digest_of(body))


def digest_of(body: bytes) -> bytes:
    """Return the digest of an object, whatever the order of its members."""
    return sha256(orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)).digest()


def shown(key: Key) -> str:
    return f"{key.resource} {key.namespace}/{key.name}" if key.namespace else f"{key.resource} {key.name}"


async def differences(log: RevisionLog, expected: Expected, *, revision: int, resources: set[str]) -> list[str]:
    """Return a line for each difference at ``revision``. ``resources``: those to compare, with objects or without."""
    found: list[str] = []
    left = dict(expected.objects)
    for resource in sorted(resources):
        after: tuple[str, str] | None = None
        while True:
            page = await log.list_at(resource, revision=revision, after=after, limit=PAGE)
            for record in page:
                found += _compare(record.key, (record.revision, digest_of(record.body)), left.pop(record.key, None))
            if page.is_last(PAGE):
                break
            after = (page[-1].key.namespace, page[-1].key.name)
    found += [f"{shown(key)}: it is missing" for key in left]
    return found


async def differing_changes(
    log: RevisionLog, expected: Expected, *, after: int, until: int, resources: set[str]
) -> list[str]:
    """Return a line for each change of the history that is not in the log, or is another one there."""
    found: list[str] = []
    left = dict(expected.changes)
    for resource in sorted(resources):
        start = after
        while True:
            chunk = await log.read_resource(resource, after=start, until=until, limit=PAGE)
            for record, _ in chunk:
                wanted = left.pop(record.revision, None)
                if wanted != (record.key, record.operation):
                    found.append(
                        f"revision {record.revision} is a change of {shown(record.key)}, which the source does not have"
                    )
            if chunk.is_last(PAGE):
                break
            start = chunk[-1][0].revision
    found += [f"revision {revision}, a change of {shown(key)}, is missing" for revision, (key, _) in left.items()]
    return found


def _compare(key: Key, present: tuple[int, bytes], wanted: tuple[int, bytes] | None) -> list[str]:
    if wanted is None:
        return [f"{shown(key)}: the source does not have it"]
    if present[0] != wanted[0]:
        return [f"{shown(key)}: its resourceVersion is {present[0]}, not {wanted[0]}"]
    return [f"{shown(key)}: its contents differ"] if present[1] != wanted[1] else []
