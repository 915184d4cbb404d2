"""Sequences: from a seed to the steps of one object's life. Each step follows the reference's last answer."""

from __future__ import annotations

import copy
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kubechronicle.ops.development.differential import queries, subresources
from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.guards import DRY_RUN_ONLY, guard, own_addresses
from kubechronicle.ops.development.differential.mutations import Place, mutate, number_of_mutations
from kubechronicle.ops.development.differential.objects import delete_options, name_for, portable
from kubechronicle.ops.development.differential.odd_requests import odd_request
from kubechronicle.ops.development.differential.patches import json_patch, merge_patch, projection, strategic_patch
from kubechronicle.ops.development.differential.preludes import afterwards, prelude
from kubechronicle.ops.development.differential.seeds import Seeds
from kubechronicle.ops.development.differential.steps import Exchange, Step
from kubechronicle.ops.development.differential.texts import as_text

Talk = Generator[Step, Exchange, None]
# Areas and the share of each among the steps on an existing object.
AREAS = {
    "create": 14,
    "update": 16,
    "patch": 24,
    "apply": 14,
    "status": 8,
    "subresources": 6,
    "read": 6,
    "list": 7,
    "delete": 3,
    "watch": 0.4,
    "http": 5,
    "settings": 0,
}
APPLY = "application/apply-patch+yaml"
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": APPLY,
}
SETTINGS = 0.12  # share of sequences in a namespace with a setting of its own
OTHERS = 0.2  # share of sequences with more objects than one
LONGEST = 14  # steps of one sequence, without its set-up and clean-up


@dataclass(slots=True)
class Sequence:
    """One object of one resource, and the steps around it."""

    rng: Random
    catalogue: Catalogue
    seeds: Seeds
    resource: Resource
    areas: frozenset[str] = frozenset(AREAS)
    sent: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, Any] | None = None

    @property
    def one(self) -> str:
        return f"{self.resource.collection()}/${{name}}"

    def step(self, area: str, verb: str, method: str, path: str, **rest: Any) -> Step:
        made = Step(method, path, kind=self.resource.kind, verb=verb, area=area, **rest)
        if made.text is not None and made.body is not None:
            made.body = None
        return made

    # Bodies

    def fresh(self) -> dict[str, Any]:
        """Return an object to create, with the sequence's name."""
        body = own_addresses(self.rng, self.seeds.choose(self.rng, self.resource))
        metadata = body.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if self.resource.verbs >= {"get"} and not (metadata.get("generateName") and not metadata.get("name")):
            metadata["name"] = name_for(self.rng, self.resource)
        if not self.resource.namespaced or metadata.get("namespace") not in (None, "$NS"):
            metadata.pop("namespace", None)
        body["metadata"] = metadata
        return body

    def mutated(self, document: dict[str, Any], count: int | None = None) -> dict[str, Any]:
        changed = copy.deepcopy(document)
        mutate(
            Place(self.rng, self.catalogue, self.resource, changed),
            number_of_mutations(self.rng) if count is None else count,
        )
        guard(self.resource, changed)
        return changed

    def base(self) -> dict[str, Any]:
        """Return the object to edit: the stored one, or the one that was sent."""
        if self.stored is not None and self.rng.random() < 0.6:
            return portable(self.stored)
        document = copy.deepcopy(self.sent)
        document.setdefault("metadata", {})
        if isinstance(document["metadata"], dict):
            document["metadata"]["name"] = "${name}"
            document["metadata"].pop("generateName", None)
        return document

    # Life

    def talk(self) -> Talk:
        if "create" not in self.resource.verbs:
            return
        if "get" not in self.resource.verbs:
            yield from self.reviews()
            return
        steps = prelude(self.rng, self.resource) if "settings" in self.areas and self.rng.random() < SETTINGS else []
        for step in steps:
            yield step
        yield from self.life()
        for step in afterwards(steps):
            yield step
        if (self.stored is not None and not self.resource.namespaced) or self.resource.kind == "Service":
            yield self.step("other", "delete", "DELETE", f"{self.one}?gracePeriodSeconds=0")

    def life(self) -> Talk:
        yield from self.creations()
        if self.rng.random() < OTHERS and self.resource.namespaced:
            for name in ("b1", "b2"):
                body = self.fresh()
                body["metadata"]["name"] = name
                yield self.step("create", "create", "POST", self.resource.collection(), body=body, aside=True)
        areas = [
            area
            for area in AREAS
            if (area in self.areas and area != "create") or (area == "create" and self.areas == {"create"})
        ]
        weights = [AREAS[area] for area in areas]
        for _ in range(self.rng.randint(4, LONGEST)):
            if self.stored is None:
                if self.rng.random() < 0.3:
                    break
                yield from self.creations()
                continue
            area = self.rng.choices(areas, weights)[0]
            yield from getattr(self, f"do_{area}")()
        if (self.stored is not None and not self.resource.namespaced) or self.resource.kind == "Service":
            yield self.step("other", "delete", "DELETE", f"{self.one}?gracePeriodSeconds=0")

    def reviews(self) -> Talk:
        for _ in range(self.rng.randint(3, 8)):
            yield self.post(self.mutated(self.fresh()))

    def post(self, body: dict[str, Any], *, dry: bool = False) -> Step:
        path = self.resource.collection()
        query = queries.query(self.rng, queries.WRITE_PARAMETERS, 2) if self.rng.random() < 0.15 else ""
        if dry and "dryRun" not in query:
            query += ("&" if query else "?") + "dryRun=All"
        headers = {}
        if self.rng.random() < 0.03:
            headers["Accept"] = self.rng.choice(queries.ACCEPTS)
        if self.rng.random() < 0.02:
            headers["Content-Type"] = self.rng.choice(queries.CONTENT_TYPES)
        text = as_text(self.rng, body, headers) if self.rng.random() < 0.07 else None
        return self.step("create", "create", "POST", path + query, body=body, headers=headers, text=text)

    def birth(self, body: dict[str, Any]) -> Step:
        """Create by POST, or now and then by a PUT or an apply on an absent name."""
        if self.resource.kind in DRY_RUN_ONLY:
            return self.post(body, dry=True)
        chance, metadata = self.rng.random(), body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if chance > 0.1 or not isinstance(name, str) or not name or "/" in name:
            return self.post(body)
        path = f"{self.resource.collection()}/{name}"
        if chance < 0.05:
            return self.step("update", "create", "PUT", path, body=body)
        headers = {"Content-Type": APPLY}
        return self.step("apply", "create", "PATCH", f"{path}?fieldManager=m1", body=body, headers=headers)

    def creations(self) -> Talk:
        """Create with mutations, first without storing, until the reference takes one."""
        base = self.fresh()
        for number in range(self.rng.choice([0, 1, 2, 3])):
            yield self.post(self.mutated(base if self.rng.random() < 0.8 else self.fresh(), 1 + number % 2), dry=True)
        for count in (number_of_mutations(self.rng), 1, 0):
            step = self.birth(self.mutated(base, count))
            exchange = yield step
            if self.note(exchange, step):
                return
            base = self.fresh()

    def note(self, exchange: Exchange, step: Step) -> bool:
        """Remember the reference's object after a write."""
        data = exchange.want_form
        if exchange.want.status >= 300 or step.dry_run:
            return False
        if isinstance(data, dict) and data.get("kind") == self.resource.kind and isinstance(data.get("metadata"), dict):
            self.stored = data
            if step.verb == "create" and isinstance(step.body, dict):
                self.sent = step.body
            return True
        return False

    def do_create(self) -> Talk:
        yield self.post(self.mutated(self.fresh()), dry=True)

    def do_http(self) -> Talk:
        yield odd_request(self.rng, self.resource)

    def do_update(self) -> Talk:
        body = self.mutated(self.base())
        metadata = body.get("metadata")
        if isinstance(metadata, dict) and "resourceVersion" not in metadata and self.rng.random() < 0.7:
            metadata["resourceVersion"] = "${rv}"
        yield from self.write("update", "update", "PUT", self.one, body)

    def write(
        self, area: str, verb: str, method: str, path: str, body: Any, content_type: str = "", odds: float = 0.15
    ) -> Talk:
        query = queries.query(self.rng, queries.WRITE_PARAMETERS, 2) if self.rng.random() < odds else ""
        if "?" in path:
            query = query.replace("?", "&")
        headers = {"Content-Type": content_type} if content_type else {}
        if self.rng.random() < 0.02:
            headers["Accept"] = self.rng.choice(queries.ACCEPTS)
        if self.rng.random() < 0.015:
            headers["Content-Type"] = self.rng.choice(
                queries.PATCH_TYPES if method == "PATCH" else queries.CONTENT_TYPES
            )
        text = as_text(self.rng, body, headers) if self.rng.random() < 0.04 else None
        step = self.step(area, verb, method, path + query, body=body, headers=headers, text=text)
        self.note((yield step), step)

    def patched(self, target: dict[str, Any], area: str, path: str, schema: Any) -> Talk:
        """Patch the stored object towards ``target`` in one of the three formats."""
        old = portable(self.stored or {})
        form = self.rng.choice(["merge", "strategic", "json"])
        patch: Any
        if form == "merge":
            patch = merge_patch(old, target)
        elif form == "strategic":
            patch = strategic_patch(self.rng, self.catalogue, schema, old, target)
        else:
            patch = json_patch(self.rng, self.catalogue, schema, old, target)
        if self.rng.random() < 0.02:
            patch = self.rng.choice([None, [], {}, "x", 1, True, [[]], {"a": None}])
        guard(self.resource, patch)
        yield from self.write(area, f"{form} patch", "PATCH", path, patch, PATCHES[form])

    def do_patch(self) -> Talk:
        target = self.mutated(self.base(), self.rng.choice([1, 1, 1, 2]))
        yield from self.patched(target, "patch", self.one, self.catalogue.of(self.resource))

    def do_apply(self) -> Talk:
        body = projection(self.rng, self.base(), self.rng.choice([0.3, 0.6, 1]))
        body = self.mutated(body)
        if isinstance(body.get("metadata"), dict):
            for key in ("managedFields", "creationTimestamp", "uid", "generation", "resourceVersion"):
                if self.rng.random() < 0.95:
                    body["metadata"].pop(key, None)
        query = f"?fieldManager={self.rng.choice(['m1', 'm1', 'm2', 'm3'])}"
        if self.rng.random() < 0.5:
            query += "&force=true"
        if self.rng.random() < 0.03:
            query = ""
        yield from self.write("apply", "apply", "PATCH", self.one + query, body, APPLY, 0.06)

    def do_status(self) -> Talk:
        properties = self.catalogue.of(self.resource).get("properties", {})
        if not self.resource.has("status") or "status" not in properties:
            return
        path = f"{self.one}/status"
        target = subresources.status_of(self.rng, self.catalogue, self.resource, self.base())
        target = self.mutated(target, self.rng.choice([0, 0, 1, 2]))
        form = self.rng.choice(["put", "put", "patch", "patch", "apply", "get"])
        if form == "put":
            yield from self.write("status", "update status", "PUT", path, target)
        elif form == "patch":
            yield from self.patched(target, "status", path, self.catalogue.of(self.resource))
        elif form == "apply":
            body: dict[str, Any] = {key: target.get(key) for key in ("apiVersion", "kind", "status") if key in target}
            body["metadata"] = {"name": "${name}"}
            query = f"?fieldManager={self.rng.choice(['m1', 's1'])}&force={self.rng.choice(['true', 'false'])}"
            yield from self.write("status", "apply status", "PATCH", path + query, body, APPLY)
        else:
            yield self.step("status", "get status", "GET", path)

    def do_subresources(self) -> Talk:
        names = [name for name, _ in self.resource.subresources if name != "status"]
        if not names:
            yield from self.do_patch()
            return
        name = self.rng.choice(names)
        if name not in subresources.REQUESTS:
            return
        choices = subresources.REQUESTS[name](self.rng, portable(self.stored or {}))
        request = self.rng.choice(choices)
        path, verb = f"{self.one}/{name}", f"{name}"
        if request.method == "GET":
            headers = {"Accept": self.rng.choice(queries.ACCEPTS)} if self.rng.random() < 0.3 else {}
            yield self.step("subresources", f"get {verb}", "GET", path, headers=headers)
        elif request.method in PATCHES:
            query = f"?fieldManager={self.rng.choice(['m1', 'm2'])}" if request.method == "apply" else ""
            yield from self.write(
                "subresources", f"patch {verb}", "PATCH", path + query, request.body, PATCHES[request.method]
            )
        else:
            yield from self.write(
                "subresources", f"{request.method.lower()} {verb}", request.method, path, request.body
            )

    def do_read(self) -> Talk:
        headers = {"Accept": self.rng.choice(queries.ACCEPTS)} if self.rng.random() < 0.5 else {}
        query = queries.query(self.rng, queries.LIST_PARAMETERS, 2) if self.rng.random() < 0.3 else ""
        odd = ["none", "A", "a%2Fb", "..", "%00"] + ([""] if self.resource.namespaced else [])
        path = self.one if self.rng.random() < 0.9 else f"{self.resource.collection()}/{self.rng.choice(odd)}"
        yield self.step("read", "get", self.rng.choice(["GET"] * 9 + ["HEAD"]), path + query, headers=headers)

    def do_list(self) -> Talk:
        query = queries.query(self.rng, queries.LIST_PARAMETERS) if self.rng.random() < 0.85 else ""
        if not self.resource.namespaced:
            query = queries.of_one_object(query)
        headers = {"Accept": self.rng.choice(queries.ACCEPTS)} if self.rng.random() < 0.4 else {}
        yield self.step("list", "list", "GET", self.resource.collection() + query, headers=headers)

    def do_delete(self) -> Talk:
        query = queries.query(self.rng, queries.DELETE_PARAMETERS, 2) if self.rng.random() < 0.5 else ""
        body = delete_options(self.rng) if self.rng.random() < 0.5 else None
        if self.rng.random() < 0.15 and self.resource.namespaced and "deletecollection" in self.resource.verbs:
            chosen = queries.query(self.rng, queries.LIST_PARAMETERS, 1) if self.rng.random() < 0.5 else "?"
            yield self.step(
                "delete",
                "deletecollection",
                "DELETE",
                self.resource.collection() + chosen + query.replace("?", "&"),
                body=body,
            )
        else:
            yield self.step("delete", "delete", "DELETE", self.one + query, body=body)
        exchange = yield self.step("delete", "get", "GET", self.one)
        if exchange.want.status == 404:
            self.stored = None

    def do_watch(self) -> Talk:
        query = "?watch=true&timeoutSeconds=1" + self.rng.choice(
            [
                "",
                "&resourceVersion=0",
                "&resourceVersion=${rv}",
                "&resourceVersion=${first}",
                "&resourceVersion=${first}",
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "&resourceVersion=x",
            ]
        )
        if not self.resource.namespaced or self.rng.random() < 0.3:
            query += "&fieldSelector=metadata.name=${name}"
        headers = {"Accept": self.rng.choice(queries.ACCEPTS)} if self.rng.random() < 0.3 else {}
        yield self.step("watch", "watch", "GET", self.resource.collection() + query, headers=headers)
