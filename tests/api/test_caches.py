"""Caches at module level: all that may hold texts of objects are registered, so that an erasure empties them."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubechronicle import actors, api, http
from kubechronicle.api.meta import stored_contents, stored_sets
from kubechronicle.api.selectors import label_selectors
from kubechronicle.api.values import names
from kubechronicle.api.values.caches import CACHES, Caches, kept, kept_in_order, remembered

ROOT = Path(__file__).parents[2]
MUTABLE = frozenset({"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "WeakKeyDictionary", "Counter"})

PROGRAM = "the same in every process: made of the program's own data, and no text of an object is an argument"
NEVER_CHANGED = "an empty value that nobody changes"
ALLOWED = {
    "api.builtin.batch.cronjob.validation._zones": PROGRAM,
    "api.builtin.common.go_shapes._members": PROGRAM,
    "api.cel.admission.environment": PROGRAM,
    "api.cel.devices.environment": PROGRAM,
    "api.cel.environment.base_environment": PROGRAM,
    "api.codecs.wire.compiler.function_name": PROGRAM,
    "api.codecs.wire.json_order._exceptions": PROGRAM,
    "api.codecs.wire.json_order._fields": PROGRAM,
    "api.codecs.wire.json_order._messages": PROGRAM,
    "api.codecs.wire.table._table": PROGRAM,
    "api.codecs.wire.table.message_named": PROGRAM,
    "api.configuration.structuring.converter": PROGRAM,
    "api.configuration.structuring.fields_of": PROGRAM,
    "api.openapi.published._by_field": PROGRAM,
    "api.openapi.v3._makers": PROGRAM,
    "api.pipeline.body_types._known_kinds": PROGRAM,
    "api.pipeline.conversion._ways": PROGRAM,
    "api.pipeline.defaulting._plan_of": PROGRAM,
    "api.pipeline.defaulting._reaching": PROGRAM,
    "api.registry.registry._builtin_types": PROGRAM,
    "api.registry.registry.builtin_registry": PROGRAM,
    "api.registry.registry.known_registry": PROGRAM,
    "api.schema.free_fields._names": PROGRAM,
    "api.schema.published.definitions": PROGRAM,
    "api.schema.types._presence": PROGRAM,
    "api.schema.types.definition_type": PROGRAM,
    "api.schema.types.object_type": PROGRAM,
    "api.subresources.eviction.eviction_type": PROGRAM,
    "api.subresources.token_request.token_type": PROGRAM,
    "api.schema.null_lists._PLANS": PROGRAM,
    "api.configuration.files._schemas": PROGRAM,
    "api.audit.events.SECONDS": "texts of seconds",
    "api.admission.replays.NOTHING": NEVER_CHANGED,
    "api.builtin.core.pod.columns._NOTHING": NEVER_CHANGED,
    "api.custom.schema.structure.NO_FIELDS": NEVER_CHANGED,
    "api.managed_fields.changes.NO_FIELDS": NEVER_CHANGED,
    "api.managed_fields.field_sets._LEAF": NEVER_CHANGED,
    "api.patch.known_parts.NOTHING": NEVER_CHANGED,
    "api.patch.typed_readers._LEAF": NEVER_CHANGED,
    "api.patch.typed_values._LEAF": NEVER_CHANGED,
    "api.selectors.field_selectors._NOTHING": NEVER_CHANGED,
    "actors.admission.pod_security.standards.checks_of": PROGRAM,
    "actors.random_names._unused": "uids that no object has yet",
    "actors.writing.targets._timestamp": "texts of seconds",
    "http.audit.record.CODES": "texts of numbers",
    "http.authentication.oidc.expressions._claims_environment": PROGRAM,
    "http.authentication.oidc.expressions._user_environment": PROGRAM,
    "http.authorization.match_conditions._environment": PROGRAM,
    "http.handlers.branches.branch_requests._BACKENDS": "by the open branches, which an erasure closes",
    "http.handlers.routes.NONE": NEVER_CHANGED,
    "http.wire.http2.headers._names": "names of header fields",
    "http.wire.websocket.protocol.hypercorn_config": PROGRAM,
}


def _memos(module: ModuleType) -> set[str]:
    """Return the functions of a module with a cache that is not registered."""
    short = module.__name__.removeprefix("kubechronicle.")
    return {
        f"{short}.{name}"
        for name, value in vars(module).items()
        if isinstance(value, functools._lru_cache_wrapper)
        and not hasattr(value, "registered")
        and getattr(value, "__module__", module.__name__) == module.__name__
    }


def _rebound(path: Path) -> set[str]:
    """Return the names at module level that functions bind anew."""
    tree = ast.parse(path.read_text())
    return {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}


def _empty_containers(path: Path) -> set[str]:
    """Return the containers that a module makes empty: to be filled later."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            value = node.value
            empty = (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)
            made = isinstance(value, ast.Call) and not value.args and ast.unparse(value.func).split("[")[0] in MUTABLE
            if empty or made:
                found.add(".".join((*path.relative_to(ROOT).with_suffix("").parts, target)))
    return found


@pytest.mark.parametrize("package", [api, actors, http], ids=["api", "actors", "http"])
def test_every_cache_at_module_level_is_registered(package: Any) -> None:
    name = package.__name__
    found: set[str] = set()
    for each in pkgutil.walk_packages(package.__path__, f"{name}."):
        found |= _memos(importlib.import_module(each.name))
    folder = ROOT / name.removeprefix("kubechronicle.")
    for path in folder.rglob("*.py"):
        found |= _empty_containers(path)
        assert _rebound(path) == set(), path
    prefix = f"{folder.name}."
    assert found == {one for one in ALLOWED if one.startswith(prefix)}


def test_one_call_empties_all() -> None:
    value = {"k": "x" * 2000}
    stored_contents.note({"apiVersion": "v1", "kind": "A", "metadata": {}, "data": value})
    stored_sets.decode(b'{"metadata":{"managedFields":[{"fieldsV1":{"f:%b":{}},"manager":"a"}]}}' % (b"y" * 300))
    label_selectors.parse_label_selector("marked=text")
    names.dns_subdomain("marked")
    mapping, ordered = kept("a"), kept_in_order("b")
    mapping["k"] = ordered["k"] = "marked"
    assert stored_contents.text_of("data", value) is not None
    assert CACHES.entries()["stored field sets"]
    CACHES.forget_all()
    assert stored_contents.text_of("data", value) is None
    assert not mapping
    assert not ordered
    assert {name for name, size in CACHES.entries().items() if size} <= {"last digest", "last chunk"}


def test_the_registry_keeps_no_part_of_a_server_alive() -> None:
    caches = Caches()

    class Part:
        def __len__(self) -> int:
            return 3

        def forget(self) -> None: ...

    part = caches.add("part", Part())
    assert caches.entries() == {"part": 3}
    del part
    gc.collect()
    assert caches.entries() == {}


def test_remembered_results_are_computed_again_after_forgetting() -> None:
    calls = []

    @remembered(2)
    def double(text: str) -> str:
        calls.append(text)
        return text * 2

    assert [double("a"), double("a")] == ["aa", "aa"]
    CACHES.forget_all()
    assert double("a") == "aa"
    assert calls == ["a", "a"]
