"""MutatingAdmissionPolicies: their mutations, as apply configurations or JSON patches.

Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/mutating`` and ``…/mutating/patch``, ``pkg/cel/mutation``.

Lives here: the value of an expression, and the object after it, in the version in which the policy matches. Not here:
the choice of policies, reinvocation, and the version of the request (actors/admission/policies/mutating.py).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sized
from typing import Any, Final

from kubechronicle.api.admission.patches import SCHEME, set_type
from kubechronicle.api.admission.policy_programs import (
    Compiler,
    EvaluationStage,
    Expression,
    ExpressionFailed,
    OutOfBudget,
)
from kubechronicle.api.admission.validating_policies import MatchConditions
from kubechronicle.api.cel import admission as expressions
from kubechronicle.api.cel.errors import CostExceeded
from kubechronicle.api.cel.operations.times import format_duration, format_timestamp
from kubechronicle.api.cel.values import Duration, ObjectValue, OptionalValue, Timestamp, TypeValue, UInt
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.managed_fields.field_sets import NoPathElement
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import json_patch, structured_merge, typed_values
from kubechronicle.api.pipeline import bodies, conversion
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import check, equality, unstructured
from kubechronicle.api.schema.types import ATOMIC, AnyType, ListType, MapType, ObjectType, Type
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- patch values ------------------------------------------------------------------------------------------------------
#
# The values of expressions of MutatingAdmissionPolicies, as the JSON of patches and as applied configurations.
#
# Sources: k8s.io/apiserver ``pkg/admission/plugin/policy/mutating/patch/json_patch.go``, ``pkg/cel/mutation/dynamic``.


MAX_JSON_INT: Final = 2**53 - 1
"""Greater integers are texts in the JSON of a patch."""


def visit(value: Sized) -> None:
    """Count the parts of a list, map or object before they are looked at: another one may hold it many times."""
    ALLOWANCE.get().walk(len(value) + 1)


def _copy(value: Sized) -> None:
    visit(value)
    ALLOWANCE.get().make(64 * len(value) + 64)


def json_of(value: Any) -> Any:
    """Return a CEL value as JSON. ExpressionFailed: it has no JSON."""
    if isinstance(value, dict | list | tuple):
        _copy(value)
    if isinstance(value, dict):
        return {_key(name): json_of(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(item) for item in value]
    if isinstance(value, OptionalValue):
        return json_of(value.value) if value.has_value else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_JSON_INT else str(int(value))
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_JSON_INT else value
    why = ": type conversion not supported for 'type'" if isinstance(value, TypeValue) else ""
    raise ExpressionFailed(f"JSONPath valueExpression evaluated to a type that could not marshal to JSON{why}")


def _key(name: Any) -> str:
    return name if isinstance(name, str) else str(name).lower() if isinstance(name, bool) else str(name)


def configuration_of(value: ObjectValue) -> Object:
    """Return an applied configuration. Values without a place stay values of Go. ExpressionFailed: it has none."""
    _copy(value)
    return {name: _field(item) for name, item in value.items()}


def _field(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        value = value.value if value.has_value else None
    if isinstance(value, ObjectValue):
        return configuration_of(value)
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ExpressionFailed("invalid return type: *dynamic.ObjectVal")
        _copy(value)
        return {name: _element(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        _copy(value)
        return [_element(item) for item in value]
    return _native(value)


def _element(value: Any) -> Any:
    """Return an item of a list or map. Lists and maps in it are as they are, also those of the admitted object."""
    if isinstance(value, OptionalValue):
        value = value.value if value.has_value else None
    if isinstance(value, ObjectValue):
        return configuration_of(value)
    return json_of(value) if isinstance(value, dict | list | tuple) else _native(value)


def _native(value: Any) -> Any:
    if value is None:
        return typed_values.NULL
    if isinstance(value, UInt):
        return typed_values.unsigned(value)
    if isinstance(value, bytes):
        return typed_values.octets(value)
    if isinstance(value, Duration):
        return typed_values.duration(value.nanoseconds)
    if isinstance(value, Timestamp):
        return typed_values.moment(value.nanoseconds)
    if isinstance(value, TypeValue):
        return value.name
    return json_of(value)


UNTYPED: Final = frozenset(
    (("autoscaling", "v1", "Scale"), ("policy", "v1", "Eviction"), ("authentication.k8s.io", "v1", "TokenRequest"))
)
"""Kinds of subresources that the OpenAPI document of their own group and version lacks: kube-apiserver looks there."""

Mutation = Callable[[Object, EvaluationStage, ResourceType], Object]
"""(object, values to read, type of the object) -> the object after one mutation; the argument stays as it is. Raises
ExpressionFailed and OutOfBudget, and StatusError for an object that cannot be decoded afterwards."""


class Mutator:
    """The compiled expressions of a MutatingAdmissionPolicy.

    ``mutations``: in their order.
    ``reads``: the names of the values that expressions read. ``paths``: the paths.
    """

    def __init__(self, policy: ReadOnlyObject) -> None:
        spec = policy["spec"]
        compiler = Compiler(spec)
        self.conditions = MatchConditions(spec, compiler)
        self.variables: Mapping[str, Expression] = compiler.variables
        self.ignores = spec.get("failurePolicy") == "Ignore"
        self.reinvocable = spec.get("reinvocationPolicy") == "IfNeeded"
        self.mutations = [_mutation(each, compiler) for each in spec.get("mutations") or ()]
        self.reads, self.paths = compiler.reads, frozenset(compiler.paths)


def _mutation(spec: Mapping[str, Any], compiler: Compiler) -> Mutation:
    if spec.get("patchType") == "JSONPatch":
        text = (spec.get("jsonPatch") or {}).get("expression", "")
        patch = compiler.compile(text, expressions.JSON_PATCHES, patches=True)
        return lambda obj, stage, rt: _patched(obj, _value(stage, patch), rt)
    text = (spec.get("applyConfiguration") or {}).get("expression", "")
    configuration = compiler.compile(text, expressions.APPLY_CONFIGURATION, patches=True)
    return lambda obj, stage, rt: _applied(obj, _value(stage, configuration), rt)


def _value(stage: EvaluationStage, expression: Expression) -> Any:
    if expression.program is None:
        raise ExpressionFailed(expression.problem)
    return stage.evaluate(expression)


def mutated(mutation: Mutation, obj: Object, stage: EvaluationStage, rt: ResourceType) -> Object:
    """Return the object after one mutation. Raises ExpressionFailed, also for an exhausted budget, and StatusError."""
    try:
        return mutation(obj, stage, rt)
    except (OutOfBudget, CostExceeded) as error:  # the second one: its value has too many parts
        raise ExpressionFailed(str(error)) from None


def require_convertible(requested: ResourceType, matched: ResourceType, subresource: str) -> None:
    """Reject a mutation whose result kube-apiserver cannot convert to the version of the request.

    Raises ExpressionFailed.

    It converts a built-in object between two versions directly, for which there are no functions: all of them convert
    from and to the internal version. A custom object is of one group, unlike its Scale.

    ``matched``: the type in whose version the policy matches.
    """
    if requested.custom is not None:
        if subresource == "scale":
            raise ExpressionFailed("request to convert CR to an invalid group/version: autoscaling/v1")
    elif matched.group != requested.group:
        shown = go_quote(requested.api_version)
        raise ExpressionFailed(f"v1.{matched.kind} is not suitable for converting to {shown} {SCHEME}")
    elif matched.version != requested.version and not subresource:
        pair = f"({matched.version}.{matched.kind}) to ({requested.version}.{requested.kind})"
        raise ExpressionFailed(f"converting {pair}: unknown conversion")


# -- apply configurations ---------------------------------------------------------------------------------------------


def _applied(obj: Object, configuration: Any, rt: ResourceType) -> Object:
    """Return the object merged with a configuration, as server-side apply merges."""
    if not isinstance(configuration, ObjectValue):
        raise ExpressionFailed("unsupported return type from ApplyConfiguration expression")
    _check_names(configuration)
    patch = configuration_of(configuration)
    patch["apiVersion"], patch["kind"] = obj["apiVersion"], obj["kind"]
    kind = bodies.kind_type(rt)
    if kind is None:
        text = f"{rt.group}/{rt.version}, Kind={rt.kind}"
        raise status.service_unavailable(
            f"Resource kind {text} not found. There can be a delay between when CustomResourceDefinitions are created "
            "and when they are available."
        )
    failed = "error applying patch: "
    if (rt.group, rt.version, rt.kind) in UNTYPED:
        shown = f"{rt.group}/{rt.version}, Kind={rt.kind}"
        raise ExpressionFailed(
            f"{failed}failed to convert patch object to typed object: no corresponding type for {shown}"
        )
    if problems := typed_values.validate(patch, kind):
        raise ExpressionFailed(
            f"{failed}failed to convert patch object to typed object: {typed_values.explain(problems)}"
        )
    if atomics := list(_atomics(patch, kind, "")):
        listed = ", ".join(atomics)
        raise ExpressionFailed(
            f"{failed}invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {listed}"
        )
    live = copy_object(obj)
    if rt.custom is not None and (problems := typed_values.misfits(live, kind)):
        raise ExpressionFailed(
            f"{failed}failed to convert original object to typed object: {typed_values.explain(problems)}"
        )
    try:
        merged: Object = structured_merge.merge(live, patch, kind)
    except NoPathElement as error:
        raise ExpressionFailed(f"{failed}failed to merge patch: {error}") from None
    if rt.custom is not None:
        rt.custom.schema.default(merged)
        return merged
    try:
        unstructured.check_converted(merged, kind, None)
    except (check.TypeMismatch, unstructured.ConversionError) as error:
        shown = f"{rt.group}/{rt.version}, Kind={rt.kind}"
        raise ExpressionFailed(f"unable to convert unstructured object to {shown}: {error}") from None
    conversion.apply(merged, kind)
    equality.encode_again(merged, rt.definition)
    return merged


def _atomics(value: Any, kind: Type, path: str) -> Any:
    """Yield the paths of the atomic lists and maps in a configuration. kube-apiserver does not look into maps."""
    if value.__class__ is dict:
        if isinstance(kind, MapType | ObjectType):
            if kind.atomic:
                yield path
        elif isinstance(kind, AnyType) and not kind.deduced:
            yield path
        if isinstance(kind, ObjectType):
            for name, below in value.items():
                field = kind.fields.get(name)
                if field is not None:
                    yield from _atomics(below, field.type, f"{path}.{name}")
    elif value.__class__ is list:
        if isinstance(kind, AnyType):
            yield path
        elif isinstance(kind, ListType):
            if kind.list_type == ATOMIC:
                yield path
            for index, item in enumerate(value):
                yield from _atomics(item, kind.item, f"{path}[{index}]")


def _check_names(value: ObjectValue) -> None:
    """Reject objects with another type than their place: ``Object.spec{}`` is only below ``spec``.

    Raises ExpressionFailed.
    """
    problems = list(_misnamed(value, value.cel_type.name))
    if problems:
        raise ExpressionFailed("type mismatch: " + "\n".join(problems))


def _misnamed(value: Any, place: str) -> Any:
    if isinstance(value, dict | list | tuple):
        visit(value)
    if isinstance(value, ObjectValue):
        name = value.cel_type.name
        if name != place:
            yield (
                f"unexpected type name {go_quote(name)}, expected {go_quote(place)}, which matches field name path "
                "from root Object type"
            )
        for field, below in value.items():
            yield from _misnamed(below, f"{place}.{field}")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _misnamed(item, place)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _misnamed(item, place)


# -- JSON patches -----------------------------------------------------------------------------------------------------


def _patched(obj: Object, operations: Any, rt: ResourceType) -> Object:
    """Return the object after a JSON patch, the object itself if a ``test`` in it fails."""
    patch = [_operation(each) for each in operations]
    try:
        result = json_patch.apply(copy_object(obj), patch)
    except json_patch.PatchFailed as error:
        if isinstance(error.__cause__, json_patch.Unequal):
            return obj
        raise ExpressionFailed(f"JSON Patch: {error}") from None
    if not isinstance(result, dict):
        raise status.internal_error("json: cannot unmarshal array into Go value of type map[string]interface {}")
    return _decoded(result, rt)


def _operation(value: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"op": value.get("op", ""), "path": value.get("path", "")}
    if value.get("from"):
        operation["from"] = value["from"]
    if "value" in value:
        given = value["value"]
        if isinstance(given, ObjectValue):
            _check_names(given)
        operation["value"] = json_of(given)
    return operation


def _decoded(obj: Object, rt: ResourceType) -> Object:
    """Check and default a patched object, which its schema must know as a whole. StatusError 500."""
    if rt.custom is not None:
        rt.custom.schema.default(obj)
        return obj
    set_type(rt, obj, strict=True)
    kind = bodies.kind_type(rt)
    if kind is None:
        return obj
    try:
        unknown = check.check(obj, kind)
    except check.TypeMismatch as error:
        raise status.internal_error(str(error)) from None
    if unknown:
        texts = bodies.strict_texts((), unknown)
        raise status.internal_error(f"strict decoding error: {', '.join(texts)}")
    conversion.apply(obj, kind)
    equality.encode_again(obj, rt.definition)
    return obj
