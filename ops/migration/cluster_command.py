"""`kubechronicle import --from-kubeconfig`: the objects of a running cluster, all as of one revision.

Each resource is listed as of the revision at which the import began, so that all objects belong together although the
cluster is written to meanwhile. kube-apiserver keeps a revision for five to ten minutes. If it has forgotten it, the
import goes on as of a newer one: all lists are read again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import trio

from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.transfer.founding import Founder
from kubechronicle.eventlog.transfer.loader import loading
from kubechronicle.eventlog.transfer.staging import Staging, open_staging
from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration.compare import Expected
from kubechronicle.ops.migration.database import DatabasePlace, finish, founding_of, verify
from kubechronicle.ops.migration.report import MigrationReport
from kubechronicle.ops.migration.storage_form import DEFINITIONS, NotStorable, StorageForm, StoredForm
from kubechronicle.ops.progress import ProgressLine

PAGE: Final = 500
GONE, TOO_NEW, FORBIDDEN, NOT_FOUND = 410, 504, 403, 404


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """A resource of the source. ``stored``: its name here. ``path``: of its list."""

    stored: str
    path: str


class SourceCompacted(Exception):
    """The source has forgotten the revision."""


@dataclass(slots=True)
class ClusterSource:
    """``name``: its URL. ``identity``: the uid of its namespace kube-system, which a cluster keeps for life."""

    client: Client
    name: str
    identity: str = ""
    form: StorageForm = field(default_factory=StorageForm)

    def identify(self) -> None:
        """Read the identity. OperatorError."""
        namespace = self._get("/api/v1/namespaces/kube-system")
        self.identity = str(namespace["metadata"]["uid"])

    def revision(self) -> int:
        """Return the newest revision. OperatorError."""
        found = self._get("/api/v1/namespaces", limit="1")
        return int(found["metadata"]["resourceVersion"])

    def survey(self, report: MigrationReport) -> list[ListedObjects]:
        """Read the definitions of custom resources, and return all resources to import, definitions first."""
        for page in self.pages(
            ListedObjects(DEFINITIONS, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"), 0
        ):
            for definition in page:
                self.form.define(definition)
        found: dict[str, ListedObjects] = {}
        for group_version, document in self._resources(report):
            for each in document.get("resources") or ():
                name, verbs = str(each["name"]), each.get("verbs") or ()
                if "/" in name or "list" not in verbs or "get" not in verbs:
                    continue
                self._add(found, group_version, name, str(each["kind"]), report)
        first = found.pop(DEFINITIONS, None)
        return [*([first] if first else []), *found.values()]

    def pages(self, listed: ListedObjects, revision: int) -> Iterator[Sequence[Object]]:
        """Yield the objects as of a revision (0: the newest) page by page. Compacted, ApiError."""
        query = {"limit": str(PAGE)}
        if revision:
            query |= {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        while True:
            try:
                page = self.client.get(listed.path, query)
            except ApiError as error:
                if error.code == GONE:
                    raise SourceCompacted from None
                raise
            kind, api_version = str(page["kind"]).removesuffix("List"), page["apiVersion"]
            yield [{"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or ()]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {"limit": str(PAGE), "continue": str(token)}

    def _resources(self, report: MigrationReport) -> Iterator[tuple[str, Object]]:
        """Yield (group version, discovery document) of all groups, the preferred version of each first."""
        yield "v1", self._get("/api/v1")
        for group in self._get("/apis").get("groups") or ():
            preferred = group["preferredVersion"]["groupVersion"]
            versions = [version["groupVersion"] for version in group["versions"]]
            for version in sorted(versions, key=lambda each: each != preferred):
                try:
                    yield version, self.client.get(f"/apis/{version}")
                except ApiError as error:
                    report.add_problem(f"group {version}", f"its server does not answer: {error}")

    def _add(
        self, found: dict[str, ListedObjects], group_version: str, name: str, kind: str, report: MigrationReport
    ) -> None:
        """Add a resource in the version that is stored here, or else in the first one that can be converted."""
        group, _, version = group_version.rpartition("/")
        path = f"/apis/{group_version}/{name}" if group else f"/api/{version}/{name}"
        rt = known_registry().known(group, version, name)
        if rt is not None and rt.group == HISTORY:
            if rt.stored:
                report.notes.append(f"left out: {name} of {group_version}, which name revisions of the other log")
        elif rt is not None:
            if rt.stored and (rt.resource not in found or rt.is_storage_version):
                found[rt.resource] = ListedObjects(rt.resource, path)
        elif (group, kind) in self.form.custom:
            found.setdefault(self.form.custom[group, kind][0], ListedObjects(self.form.custom[group, kind][0], path))
        else:
            report.notes.append(f"left out: {name} of {group_version}, which no definition describes")

    def _get(self, path: str, **query: str) -> Object:
        try:
            return self.client.get(path, query)
        except ApiError as error:
            raise OperatorError(f"--from-kubeconfig: {self.name} answers {path} with: {error}") from None


def open_cluster(file: str, context: str) -> ClusterSource:
    """Return the cluster of a kubeconfig. OperatorError."""
    parser = argparse.ArgumentParser()
    kubeconfig.add_flags(parser)
    target = kubeconfig.load(parser.parse_args(["--kubeconfig", file, "--context", context]))
    source = ClusterSource(Client(HttpTransport(target), ""), target.server.url)
    source.identify()
    return source


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
