"""`kubechronicle import --from-kubeconfig`: the objects of a running cluster, all as of one revision.

Each resource is listed as of the revision at which the import began, so that all objects belong together although the
cluster is written to meanwhile. kube-apiserver keeps a revision for five to ten minutes. If it has forgotten it, the
import goes on as of a newer one: all lists are read again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import trio

from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.transfer.founding import Founder
from kubechronicle.eventlog.transfer.loader import loading
from kubechronicle.eventlog.transfer.staging import Staging, open_staging
from kubechronicle.ops import terminal
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration.cluster_source import ClusterSource, ListedObjects, SourceCompacted, open_cluster
from kubechronicle.ops.migration.compare import Expected
from kubechronicle.ops.migration.database import DatabasePlace, finish, founding_of, verify
from kubechronicle.ops.migration.report import MigrationReport
from kubechronicle.ops.migration.storage_form import NotStorable, StoredForm
from kubechronicle.ops.progress import ProgressLine

ROUNDS = 5
"""Attempts to read everything before the source forgets the revision."""


async def run(place: DatabasePlace, arguments: argparse.Namespace) -> int:
    """Import, or compare. Return the exit code. OperatorError."""
    source = await trio.to_thread.run_sync(open_cluster, arguments.from_kubeconfig, arguments.context)
    report = MigrationReport()
    listed = await trio.to_thread.run_sync(source.survey, report)
    if arguments.verify:
        return await _verify(place, source, listed)
    return await _Import(place, source, report).run(listed, arguments)


@dataclass(slots=True)
class _Import:
    place: DatabasePlace
    source: ClusterSource
    report: MigrationReport

    async def run(self, listed: Sequence[ListedObjects], arguments: argparse.Namespace) -> int:
        started = time.monotonic()
        async with open_session(self.place.url, application="kubechronicle import") as session:
            async with loading(session):
                pass  # the log must be empty
            staging = await open_staging(
                session,
                name=self.source.name,
                identity=self.source.identity,
                revision=await trio.to_thread.run_sync(self.source.revision),
                restart=arguments.restart,
            )
            with ProgressLine("reading", "resources") as progress:
                await self._read(staging, listed, progress)
            async with loading(session) as loader:
                founder = Founder(loader, self.source.name, datetime.now(UTC))
                with ProgressLine("writing", "objects") as progress:
                    await self._write(staging, founder, progress)
                await staging.drop()
        return finish(self.report, founder, time.monotonic() - started, staging.revision, arguments.report)

    async def _read(self, staging: Staging, listed: Sequence[ListedObjects], progress: ProgressLine) -> None:
        """Stage all objects as of one revision. OperatorError: the source forgets revisions too quickly."""
        for _ in range(ROUNDS):
            try:
                done = await staging.done()
                for number, each in enumerate(listed):
                    progress(number, len(listed))
                    if each.path not in done:
                        await self._stage(staging, each)
            except SourceCompacted:
                await staging.begin_again(await trio.to_thread.run_sync(self.source.revision))
            else:
                return
        raise OperatorError(
            f"{self.source.name} forgets a revision before all objects of it are read; "
            "set its --etcd-compaction-interval to an hour for the import"
        )

    async def _stage(self, staging: Staging, listed: ListedObjects) -> None:
        revision = staging.revision
        if not await trio.to_thread.run_sync(_has, self.source, listed, revision):
            revision = 0
            self.report.notes.append(f"{listed.stored} gets new resourceVersions: the source keeps it in another etcd")
        pages = self.source.pages(listed, revision)
        try:
            while (page := await trio.to_thread.run_sync(next, pages, None)) is not None:
                await self.place.encryption.contents.draw_keys([listed.stored] * len(page))
                await staging.put([row for obj in page if (row := self._row(listed, obj, revision)) is not None])
        except ApiError as error:
            self.report.add_problem(listed.path, f"the list is refused: {error}")
        await staging.finish(listed.path, [listed.stored])

    def _row(self, listed: ListedObjects, obj: Object, revision: int) -> tuple[Any, ...] | None:
        try:
            stored = self.source.form.stored(obj)
        except NotStorable as error:
            metadata = obj.get("metadata") or {}
            where = "/".join(str(metadata.get(field)) for field in ("namespace", "name") if metadata.get(field))
            self.report.add_problem(f"{listed.path} {where}", str(error))
            return None
        body = self.place.encryption.contents.encrypted(stored.key, stored.body).decode()
        own = revision_of(obj)
        return (*stored.key, own if own <= revision else 0, stored.uid, stored.at, stored.manager, body)

    async def _write(self, staging: Staging, founder: Founder, progress: ProgressLine) -> None:
        total = await staging.count()
        async for change in staging.objects():
            self.report.imported[change.key.resource] += 1
            await founder.add_object(change)
            progress(founder.objects, total)
        await founder.end_objects(staging.revision)
        for change in await staging.moved():
            self.report.imported[change.key.resource] += 1
            await founder.add_change(change)
        await founder.finish(staging.revision)


def _has(source: ClusterSource, listed: ListedObjects, revision: int) -> bool:
    """Return whether a resource can be listed as of a revision of the cluster. Compacted: no resource can."""
    try:
        source.client.get(
            listed.path, {"limit": "1", "resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        )
    except ApiError as error:
        if error.code not in (410, 504):
            return True  # the list says why
        next(source.pages(ListedObjects("namespaces", "/api/v1/namespaces"), revision))
        return False
    return True


def revision_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def _verify(place: DatabasePlace, source: ClusterSource, listed: Sequence[ListedObjects]) -> int:
    """Compare the founding objects with the source, as of the same revision if it still has it."""
    async with open_session(place.url, application="kubechronicle import") as session:
        founding = await founding_of(session)
    if founding is None:
        raise OperatorError("the database was not founded by an import")
    expected, resources, newer = Expected(), set[str](), 0
    revision = founding.last
    for each in listed:
        try:
            objects = await trio.to_thread.run_sync(_all, source, each, revision)
        except SourceCompacted:
            objects = await trio.to_thread.run_sync(_all, source, each, 0)
            terminal.stderr().line(
                f"{each.stored}: the source has forgotten revision {revision}; its present is compared"
            )
        resources.add(each.stored)
        for own, stored in objects:
            if own > revision:
                newer += 1
            else:
                expected.put(stored.key, own, stored.body)
    if newer:
        terminal.stderr().line(f"{newer} objects of the source are newer than the import")
    return await verify(place, expected, resources=resources, after=revision, until=revision, source=source.name)


def _all(source: ClusterSource, listed: ListedObjects, revision: int) -> list[tuple[int, StoredForm]]:
    found = []
    for page in source.pages(listed, revision):
        for obj in page:
            try:
                found.append((revision_of(obj), source.form.stored(obj)))
            except NotStorable:
                continue
    return found
