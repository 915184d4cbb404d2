"""The parts of writes that the policies of a replay read: the data to fetch, and the data that decides a verdict.

Compiled expressions name the paths that they read (Program.reads). So a reader of the log can ask for these fields of
objects alone. And writes that agree in all that is read have the same verdict: of the updates of a pod, few change a
field that a policy reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from msgspec import UNSET

from kubechronicle.api.admission.logged_writes import Write
from kubechronicle.api.admission.policy_sources import Policy
from kubechronicle.api.history.object_parts import fields_read

OBJECTS: Final = frozenset(("object", "oldObject"))
LABELS: Final = "metadata.labels"
REVISION: Final = ("metadata", "resourceVersion")
"""The field that a reader of the log adds to objects."""

OF_KIND: Final = frozenset(
    f"request.{name}"
    for name in (
        "uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "operation",
        "object", "oldObject", "dryRun",
    )
)  # fmt: skip
"""Parts of a request that follow from its kind, or are always the same."""
USER_NAME: Final = "request.userInfo.username"

LONGEST: Final = 1024
"""Bytes of the objects of a write whose verdict is remembered."""
KEPT: Final = 4096
"""Verdicts that are remembered: at most some 6 MB."""
WORTHWHILE: Final = 4
"""Remembering ends unless one verdict of so many was found again."""


class PolicyReads:
    """The parts of writes that some policies read.

    ``fields``: the fields of objects, as dotted names; None: objects as a whole.
    ``old``: objects before writes are read.
    ``user``: more of the user than the name is read.
    """

    def __init__(self, policies: Sequence[Policy[Any]], *, mutating: bool) -> None:
        """``mutating``: some policies change objects, which takes whole ones."""
        paths = frozenset[str]().union(*(each.evaluator.paths for each in policies))
        matches = [each.match for each in policies]
        matches += [one.match for each in policies for one in each.bindings if one.match is not None]
        self.selects = any(each.selects for each in matches)
        """Some selector looks at labels."""
        self.of_objects = any(each.of_objects for each in matches)
        """Some selector looks at the labels of objects."""
        self.named = any(each.named for each in matches)
        """Some rule is limited to names of objects."""
        heads = {path.partition(".")[0] for path in paths}
        self.old = self.of_objects or "oldObject" in heads
        labels = [f"object.{LABELS}"] if self.selects else []
        self.fields = None if mutating else fields_read((*paths, *labels), OBJECTS)
        of_request = {path for path in paths if path.partition(".")[0] == "request"}
        self.user = "authorizer" in heads or any(_reads_user(path) for path in of_request)
        self.namespace = self.selects or "namespaceObject" in heads
        """The contents of namespaces are read."""
        self._of_request = of_request
        self._decides = not mutating and "authorizer" not in heads and not any(each.param_kind for each in policies)

    def memory(self) -> Memory | None:
        """Return a memory of verdicts; None: they depend on too much."""
        others = {path for path in self._of_request if ".".join(path.split(".")[:2]) not in OF_KIND}
        known = {"request.name", "request.namespace", USER_NAME}
        if not self._decides or self.fields is None or others - known or any(map(_has_revision, self.fields)):
            return None
        return Memory(
            name=self.named or "request.name" in others,
            namespace=self.namespace or "request.namespace" in others,
            user=USER_NAME in others,
        )


def _reads_user(path: str) -> bool:
    return path == "request" or (path.split(".")[:2] == ["request", "userInfo"] and path != USER_NAME)


def _has_revision(field: str) -> bool:
    names = tuple(field.split("."))
    return names == REVISION[: len(names)]


class Memory:
    """Verdicts by all that they depend on: the kind of write, the objects as they were read, and these parts.

    ``name``, ``namespace``, ``user``: the name of the object; the name and version of its namespace; the user's name.
    """

    def __init__(self, *, name: bool, namespace: bool, user: bool) -> None:
        self._name, self._namespace, self._user = name, namespace, user
        self._found: dict[Hashable, Sequence[Any]] = {}
        self._hits = 0
        self._used = True

    def key_of(self, write: Write, namespace_version: str | None) -> Hashable:
        """Return the key of a write, None if its verdict is not to be remembered.

        ``namespace_version``: the resourceVersion of its namespace, "" if there is none.
        """
        if not self._used or namespace_version is None or write.replaced:
            return None
        new, old = write.encoded_new, write.encoded_old
        after, before = b"" if new is UNSET else bytes(new), b"" if old is UNSET else bytes(old)
        if len(after) + len(before) > LONGEST:
            return None
        return (
            write.kind,
            after,
            before,
            write.named if self._name else "",
            (write.request_namespace, namespace_version) if self._namespace else bool(namespace_version),
            write.who.get("username") if self._user else "",
        )

    def get(self, key: Hashable) -> Sequence[Any] | None:
        found = self._found.get(key)
        if found is not None:
            self._hits += 1
        return found

    def put(self, key: Hashable, verdict: Sequence[Any]) -> None:
        if len(self._found) >= KEPT:
            self._used = self._hits * WORTHWHILE >= KEPT
            self._found.clear()
            self._hits = 0
        if self._used:
            self._found[key] = verdict
