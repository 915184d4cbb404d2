"""A running cluster as the source of an import: its resources, and their objects as of one revision."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration.report import MigrationReport
from kubechronicle.ops.migration.storage_form import DEFINITIONS, StorageForm

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
