"""`migrate-storage`: rewrite objects in the version that their resource is stored in today.

    widgets.example.com    storage version v1 → v2      objects that were written before are still stored in v1
    migrate-storage        each is written once         all are stored in v2, status.storedVersions is [v2]

Afterwards v1 can be removed from the definition. The objects are written through the API, by an apply without fields,
as the storage version migrator of kube-controller-manager does it. So the server converts, cleans and defaults them,
and the log records the user, with the field manager MANAGER. An object that is stored as it should be is not written.
So a command that was interrupted is simply repeated.

status.storedVersions is set only if all objects were written, and the definition's spec is still the one from the
beginning: otherwise other objects may have been stored in another version meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import add_reason_flag
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubechronicle migrate-storage --dry-run                  lists the definitions with objects in several versions
  kubechronicle migrate-storage                            rewrites the objects of all of them
  kubechronicle migrate-storage widgets.example.com        of this resource; built-in ones can be named, too
exit code: 0 all objects are stored in the present version, 1 some were not written, 2 for errors
"""
MANAGER: Final = "kubechronicle-migrate-storage"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
# Definitions read at once, since one may have a megabyte; and objects, of which the metadata is read.
DEFINITIONS_READ: Final = 10
OBJECTS_READ: Final = 500
# Times that a list is begun because its pages have expired, and that the status of a definition is written.
TRIES: Final = 5
# Failures of one resource that are reported.
REPORTED: Final = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource to migrate. ``storage``: its storage version; "" for a built-in one, whose version is the server's.

    ``definition``, ``generation``: the name and generation of its definition.
    """

    kind: Kind
    storage: str = ""
    definition: str = ""
    generation: int = 0
    stored: tuple[str, ...] = ()

    @property
    def needs_migration(self) -> bool:
        return self.stored != (self.storage,)


@dataclass(slots=True)
class MigrationResult:
    """``objects``: those that were looked at. ``rewritten``: those that were written.

    ``failures``: the first ones; ``failed``: the number of all. ``problem``: why status.storedVersions was not set.
    """

    resource: Resource
    objects: int = 0
    rewritten: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def complete(self) -> bool:
        return not self.failed and not self.problem

    def text(self) -> str:
        name, storage = self.resource.kind.full_name, self.resource.storage or "the server's version"
        counts = f"{name}: {self.objects} objects, {self.rewritten} rewritten"
        if self.failed:
            return f"{counts}, {self.failed} failed: {'; '.join(self.failures)}"
        return f"{counts}; {self.problem}" if self.problem else f"{counts}, all stored in {storage}"

    def document(self) -> Object:
        return {
            "resource": self.resource.kind.full_name,
            "storageVersion": self.resource.storage,
            "objects": self.objects,
            "rewritten": self.rewritten,
            "failed": self.failed,
            "failures": self.failures,
            "problem": self.problem,
        }


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resources", nargs="*", metavar="RESOURCE", help="widgets.example.com; default: all in need")
    parser.add_argument("--dry-run", action="store_true", help="only list the resources")
    add_reason_flag(parser)
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, or 1 if some objects were not written. OperatorError."""
    session = Session.open(arguments)
    screen, is_text = session.screen, session.screen.format == "text"
    resources = list(_chosen(session, arguments.resources))
    if arguments.dry_run:
        if not is_text:
            screen.document({"resources": [MigrationResult(each).document() for each in resources]})
        for each in resources if is_text else ():
            screen.line(f"{each.kind.full_name}: stored in {', '.join(each.stored) or '?'}; now {each.storage or '?'}")
        return 0
    results = []
    for each in resources:
        result = _migrate(session.client, each)
        results.append(result)
        if is_text:
            screen.line(result.text())
            screen.out.flush()
    if not is_text:
        screen.document({"resources": [each.document() for each in results]})
    elif not results:
        screen.line("nothing to do: the objects of each definition are stored in one version")
    return 0 if all(each.complete for each in results) else 1


# -- the choice -------------------------------------------------------------------------------------------------------


def _chosen(session: Session, names: Sequence[str]) -> Iterator[Resource]:
    """Yield the named resources, or those whose definition has other stored versions than its storage version."""
    if not names:
        for definition in _definitions(session.client):
            resource = _custom(definition)
            if resource is not None and resource.needs_migration:
                yield resource
        return
    kinds = session.kinds()
    for name in names:
        kind = kinds.find(name)
        found = session.client.get_if(f"{DEFINITIONS}/{kind.full_name}")
        custom = _custom(found) if found is not None else None
        if custom is None and not kind.verbs >= {"list", "patch"}:
            raise OperatorError(f"objects of {kind.full_name} cannot be listed and patched")
        yield custom or Resource(kind)


def _definitions(client: Client) -> Iterator[Object]:
    for page in client.pages(DEFINITIONS, size=DEFINITIONS_READ):
        yield from page.get("items") or []


def _custom(definition: Object) -> Resource | None:
    """Return the resource of a definition; None if no version of it is served."""
    spec, status, metadata = definition["spec"], definition.get("status") or {}, definition["metadata"]
    versions = sorted(spec["versions"], key=lambda one: not one["storage"])
    served = next((one["name"] for one in versions if one["served"]), None)
    names = status.get("acceptedNames") or {}
    if served is None or not names.get("plural"):
        return None
    return Resource(
        Kind(
            spec["group"],
            served,
            names["plural"],
            names.get("singular") or "",
            names["kind"],
            spec["scope"] == "Namespaced",
            frozenset(("list", "patch")),
        ),
        storage=versions[0]["name"],
        definition=metadata["name"],
        generation=metadata.get("generation") or 0,
        stored=tuple(status.get("storedVersions") or ()),
    )


# -- the migration ----------------------------------------------------------------------------------------------------


def _migrate(client: Client, resource: Resource) -> MigrationResult:
    result = MigrationResult(resource)
    with Progress(f"rewriting {resource.kind.full_name}") as progress:
        for metadata in _objects(client, resource.kind):
            result.objects += 1
            progress.step(metadata["name"])
            try:
                result.rewritten += _rewrite(client, resource.kind, metadata)
            except ApiError as error:
                result.failed += 1
                if len(result.failures) < REPORTED:
                    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
                    result.failures.append(f"{name}: {error.message}")
    if resource.definition and resource.needs_migration and not result.failed:
        result.problem = _set_stored_versions(client, resource)
    return result


def _objects(client: Client, kind: Kind) -> Iterator[Object]:
    """Yield the metadata of all objects. A list whose pages have expired is begun anew; that writes nothing twice."""
    for attempt in range(TRIES):
        parameters = {"limit": str(OBJECTS_READ)}
        try:
            while True:
                page = client.get(kind.path(), parameters, accept=METADATA_LIST)
                yield from (item["metadata"] for item in page.get("items") or [])
                token = (page.get("metadata") or {}).get("continue")
                if not token:
                    return
                parameters["continue"] = token
        except ApiError as error:
            if error.code != 410 or attempt + 1 == TRIES:
                raise


def _rewrite(client: Client, kind: Kind, metadata: Object) -> bool:
    """Write an object as it is. Return whether that has changed how it is stored. ApiError.

    An apply is answered with 500 if the object's managed fields do not fit the schema of their version; an update is
    not, and drops them.
    """
    wanted = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if metadata.get(name)}
    body: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": wanted}
    path = kind.path(metadata.get("namespace", ""), metadata["name"])
    for content_type in (APPLY, MERGE):
        try:
            query = {"fieldManager": MANAGER}
            written = client.request("PATCH", path, query, body, content_type=content_type, accept=METADATA)
        except ApiError as error:
            if error.code in (404, 409):  # deleted meanwhile; or changed, and so stored in the present version
                return False
            if error.code != 500 or content_type is MERGE:
                raise
            continue
        return bool(written["metadata"]["resourceVersion"] != metadata["resourceVersion"])
    return False


def _set_stored_versions(client: Client, resource: Resource) -> str:
    """Set status.storedVersions to the storage version. Return the reason if it was not set. ApiError."""
    path = f"{DEFINITIONS}/{resource.definition}"
    for _ in range(TRIES):
        definition = client.get_if(path)
        if definition is None:
            return "its definition was deleted meanwhile"
        if definition["metadata"].get("generation") != resource.generation:
            return "its definition was changed meanwhile, so repeat the command"
        if definition["status"].get("storedVersions") == [resource.storage]:
            return ""
        revision = definition["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": revision}, "status": {"storedVersions": [resource.storage]}}
        try:
            client.request("PATCH", f"{path}/status", {"fieldManager": MANAGER}, body, content_type=MERGE)
        except ApiError as error:
            if error.code != 409:
                raise
    return "the status of its definition changes too often, so repeat the command"
