"""State at module level, of which there are three sorts; each other one fails here.

    tables    ALLOWED    computed at the first use from data of the program, so nobody can tell when
    texts     TEXTS      results of pure functions of texts: bounded, registered, emptied by an erasure
    a task    TASK       what the present decision may use, which ends with it

Texts may stay in api/ where the functions that ask stand far below the server's parts: a rule that reads an amount
would need the cache as an argument of all rules. Each states its gain: the CPU that a case costs more without it, in
a process with a log in memory, in turns. Those that gain less than a tenth are gone.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import inspect
import pkgutil
from collections import deque
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from kubechronicle import actors, api, http
from kubechronicle.api.codecs import table
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.schema import equality, types
from kubechronicle.api.values import quantity
from kubechronicle.api.values.caches import CACHES, Caches, kept, kept_in_order, remembered

MUTABLE = (dict, list, set, deque, WeakKeyDictionary)
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"}
CHANGES |= {"move_to_end", "remove", "setdefault", "update"}

NO_ARGUMENT = "it has no argument, so it holds data of the program only"
BY_TYPE = "by classes and types of the program"
BY_NAME = "by names of the program's tables: for another name it raises, and keeps nothing"
ALLOWED = {
    "api.builtin.batch.cronjob._zones": NO_ARGUMENT,
    "api.builtin.common.go_shapes._members": BY_NAME,
    "api.cel.admission.environment": "by flags: which variables an expression has",
    "api.cel.devices.environment": NO_ARGUMENT,
    "api.cel.environment.base_environment": NO_ARGUMENT,
    "api.builtin.kinds.default_rules": NO_ARGUMENT,
    "api.codecs.table._message_of": BY_TYPE,
    "api.codecs.table.message_named": BY_NAME,
    "api.configuration.structuring.converter": "by a flag",
    "api.features.gates.gates_of": "by releases of which the package has a table",
    "api.configuration.structuring.fields_of": BY_TYPE,
    "api.kinds.reading.enum": BY_NAME,
    "api.kinds.reading.release": BY_NAME,
    "api.openapi.schemas._kinds_by_definition": "by releases, of which a server has one",
    "api.openapi.v3._makers": NO_ARGUMENT,
    "api.pipeline.conversion._ways": NO_ARGUMENT,
    "api.pipeline.server_side_apply._with_keyless_lists": "by built-in types",
    "api.pipeline.conversion._contains_itself": "by definitions of built-in kinds, which come from object_type",
    "api.pipeline.conversion._plan_of": "by definitions of built-in kinds, which come from object_type",
    "api.registry.registry._builtin_types": NO_ARGUMENT,
    "api.registry.registry.builtin_registry": NO_ARGUMENT,
    "api.registry.registry.known_registry": NO_ARGUMENT,
    "api.schema.equality._names": BY_NAME,
    "api.schema.types.definition_type": BY_NAME,
    "api.schema.empties._PLANS": "by definitions of built-in kinds, which come from object_type",
    "api.admission.matching.UNWANTED": "what is put into it is dropped",
    "api.custom.schema.known_contents._KEPT": "by classes of values; nothing is put into it",
    "api.custom.schema.known_contents._METADATA": "by classes of values; nothing is put into it",
    "actors.admission.pod_security.standards.checks_of": "by the levels of the standard, and minors up to the newest",
    "actors.random_names._unused": "uids that no object has yet",
    "http.authentication.oidc.expressions._claims_environment": NO_ARGUMENT,
    "http.authentication.oidc.expressions._user_environment": NO_ARGUMENT,
    "http.authorization.match_conditions._environment": NO_ARGUMENT,
    "http.handlers.history._BACKENDS": "by the open branches, which an erasure closes",
}


TEXTS = {
    "api.cel.devices.worst_cost": "230 µs an expression, asked twice a claim, which costs 300",
    "api.cel.operations.patterns.PATTERNS": "21 µs or more to compile a pattern, for each object that it judges",
    "api.codecs.values.time": "52 % of decoding a Pod from protobuf: each manager and condition has one",
    "api.codecs.values.write_time": "55 % of encoding a Pod as protobuf, for a list of new ones",
    "api.meta.stored_contents._members": "21 % of an apply of 20 KB that changes a label, 14 % of one of 4 KB",
    "api.meta.stored_contents._sets": "37 % of an apply of 20 KB that changes a label, 10 % of one of 4 KB",
    "api.values.quantity.quantity": "19 % of the create of a Deployment, 29 % of an apply: many steps read amounts",
}
TASK = {
    "api.pipeline.conversion._by_webhook": "the answers of webhooks that this write has; else an argument of each step",
    "api.values.allowance.ALLOWANCE": "the time of this decision; else an argument of all functions of CEL",
}


def _memos(module: ModuleType) -> dict[str, Any]:
    """Return the functions of a module with a cache that is not registered."""
    short = module.__name__.removeprefix("kubechronicle.")
    return {
        f"{short}.{name}": value
        for name, value in vars(module).items()
        if isinstance(value, functools._lru_cache_wrapper)
        and not hasattr(value, "registered")
        and getattr(value, "__module__", module.__name__) == module.__name__
    }


def _rebound(tree: ast.Module) -> set[str]:
    """Return the names at module level that functions bind anew."""
    return {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}


def _changed(function: ast.AST) -> set[str]:
    """Return the names that a function changes in place, and does not bind."""
    own = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    own |= {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            target = node.func.value
        else:
            continue
        found |= {target.id} if isinstance(target, ast.Name) else set()
    return found - own


def _containers(module: ModuleType, tree: ast.Module) -> set[str]:
    """Return the containers at module level that are not registered, and may fill: functions of the module change
    them, or their class has code for it."""
    short = module.__name__.removeprefix("kubechronicle.")
    code = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    changed = {name for node in ast.walk(tree) if isinstance(node, code) for name in _changed(node)}
    made = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found = set()
    for name, value in vars(module).items():
        owner = getattr(value, "__self__", value)  # of a bound method
        fills = name in changed or (name in made and type(owner).__module__.startswith("kubechronicle."))
        if fills and isinstance(owner, MUTABLE) and owner not in CACHES:
            found.add(f"{short}.{name}")
    return found


@pytest.mark.parametrize("package", [api, actors, http], ids=["api", "actors", "http"])
def test_every_cache_at_module_level_is_registered(package: Any) -> None:
    name = package.__name__
    memos: dict[str, Any] = {}
    containers: set[str] = set()
    for each in pkgutil.walk_packages(package.__path__, f"{name}."):
        module = importlib.import_module(each.name)
        memos |= _memos(module)
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        assert _rebound(tree) == set(), module
        containers |= _containers(module, tree)
    prefix = f"{name.removeprefix('kubechronicle.')}."
    assert {*memos, *containers} == {one for one in ALLOWED if one.startswith(prefix)}
    for one, memo in memos.items():
        assert (ALLOWED[one] == NO_ARGUMENT) == (not inspect.signature(memo).parameters), one


def _made(module: ModuleType) -> set[str]:
    """Return the names that a module binds itself, at its top level: by assignment or as functions."""
    assert module.__file__ is not None
    found = set()
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _is_registered(value: Any) -> bool:
    """Return whether a value is a registered cache, or a function with one, which may stand behind a wrapper."""
    inside = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if hasattr(value, "__wrapped__")]
    return value in CACHES or any(hasattr(each, "registered") for each in (value, *inside))


def test_no_other_state_is_in_api() -> None:
    texts, task = set(), set()
    for each in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        module = importlib.import_module(each.name)
        short = module.__name__.removeprefix("kubechronicle.")
        for name in _made(module):
            value = getattr(module, name, None)
            if _is_registered(value):
                texts.add(f"{short}.{name}")
            elif isinstance(value, ContextVar):
                task.add(f"{short}.{name}")
    assert texts == TEXTS.keys()
    assert task == TASK.keys()


def test_what_is_kept_by_name_is_bounded_by_the_tables() -> None:
    for memo in (table.message_named, equality._names, types.definition_type):
        size = memo.cache_info().currsize
        with pytest.raises((KeyError, TypeError)):
            memo("text of an object")
        assert memo.cache_info().currsize == size


def test_one_call_empties_all() -> None:
    value = {"k": "x" * 2000}
    stored_contents.note({"apiVersion": "v1", "kind": "A", "metadata": {}, "data": value})
    stored_contents.decode(b'{"metadata":{"managedFields":[{"fieldsV1":{"f:%b":{}},"manager":"a"}]}}' % (b"y" * 300))
    quantity.parse("17")
    mapping, ordered = kept("a"), kept_in_order("b")
    mapping["k"] = ordered["k"] = "marked"
    assert stored_contents.text_of("data", value) is not None
    assert CACHES.entries()["stored field sets"]
    CACHES.forget_all()
    assert stored_contents.text_of("data", value) is None
    assert not mapping
    assert not ordered
    assert {name for name, size in CACHES.entries().items() if size} <= {"last chunk"}


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
