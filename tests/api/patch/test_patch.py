"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.patch import json_patch, merge_patch, strategic_merge
from kubechronicle.api.schema import types

MISSING = "missing value"
NO_KEY = "Unable to remove nonexistent key: x: missing value"
INDEX = "Unable to access invalid index: 5: invalid index referenced"
DEPLOYMENT = types.object_type("io.k8s.api.apps.v1.Deployment")
POD_SPEC = types.object_type("io.k8s.api.core.v1.PodSpec")
META = types.object_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        (
            {"a": {"b/c": 1, "~": 2}},
            [{"op": "remove", "path": "/a/b~1c"}, {"op": "remove", "path": "/a/~0"}],
            {"a": {}},
        ),
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "test", "path": "/b"}], {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, [{"op": "add", "path": "x/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": 1}, [{"op": "add", "path": "/b"}], {"a": 1, "b": None}),
        ({"a": 1}, [{"op": "copy", "from": "/x", "path": "/b"}], {"a": 1, "b": None}),
        ({"a": [1, 2]}, [{"op": "copy", "from": "/a/-1", "path": "/a/-"}], {"a": [1, 2, 2]}),
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/-1", "value": 3}], {"a": [1, 2, 3]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/-2"}], {"a": [2]}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/01", "value": 3}], {"a": [1, 3]}),
        ({"a": [1, 2]}, [{"op": "test", "path": "/a/+1", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_json_patch(document: Any, operations: list[dict[str, Any]] | None, result: Any) -> None:
    assert json_patch.apply(document, json_patch.decode(operations)) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": "/l/7"},
        {"op": "remove", "path": "/l/-2"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/l/1", "value": 1},
        {"op": "replace", "path": "/l/-", "value": 1},
        {"op": "replace", "path": "", "value": "text"},
        {"op": "add", "path": "", "value": {}},
        {"op": "copy", "from": "/l/-", "path": "/b"},
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/a", "value": 1.0},
        {"op": "test", "path": "/x/y/z", "value": None},
        {"op": "test", "path": "/l/7", "value": None},
        {"op": "move", "from": "/o", "path": "/o/p"},
        {"op": "frob", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "move", "from": "/x", "path": "/a"},
        {"op": "add", "path": 5},
        None,
        {"path": "/a", "value": 1},
    ],
)
def test_json_patch_that_fails(operation: dict[str, Any] | None) -> None:
    with pytest.raises(json_patch.PatchFailed):
        json_patch.apply({"a": 1, "l": [1], "o": {"p": 1}}, [operation])


@pytest.mark.parametrize(
    ("patch", "checked", "problem"),
    [
        ({}, True, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ([5], True, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            [{"op": 1}],
            True,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (5, False, "json: cannot unmarshal number into Go value of type jsonpatch.Patch"),
        (["x"], False, "json: cannot unmarshal string into Go value of type jsonpatch.Operation"),
    ],
)
def test_json_patch_of_another_form(patch: Any, checked: bool, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch.decode(patch, checked=checked)
    assert (caught.value.code, caught.value.message) == (400, problem)


def test_json_patch_leaves_wrong_members_to_the_operation_if_nothing_is_validated() -> None:
    operations = json_patch.decode([{"op": "add", "path": "/b", "from": 5, "value": 1}], checked=False)
    assert json_patch.apply({}, operations) == {"b": 1}


def test_json_patch_limits() -> None:
    with pytest.raises(StatusError) as caught:
        json_patch.decode([{}] * (json_patch.MAX_OPERATIONS + 1))
    assert caught.value.code == 413
    doubling = [{"op": "copy", "from": "/a", "path": f"/b{n}"} for n in range(100)]
    with pytest.raises(json_patch.PatchFailed, match="size"):
        json_patch.apply({"a": "x" * 100_000}, doubling)


def test_copies_share_nothing() -> None:
    done = json_patch.apply(
        {"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "replace", "path": "/b/x", "value": 2}]
    )
    assert done == {"a": {"x": 1}, "b": {"x": 2}}


# The examples of RFC 7386, appendix A, as far as Kubernetes takes them.
@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": [{"b": None, "c": [None]}]}, {"a": [{"c": [None]}]}),
        ({"a": {"b": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(original: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    assert merge_patch.apply(original, patch) == result


@pytest.mark.parametrize(("patch", "word"), [([1], "array"), (5, "number"), ("x", "string"), (True, "bool")])
def test_merge_patch_is_an_object(patch: Any, word: str) -> None:
    with pytest.raises(StatusError, match=f"cannot unmarshal {word}") as caught:
        merge_patch.decode(patch)
    assert caught.value.code == 400


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "image": "i"} for name in names]


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"containers": [{"name": "b", "image": "new"}]}, [("a", "i"), ("b", "new"), ("c", "i")]),
        ({"containers": [{"name": "d", "image": "x"}]}, [("d", "x"), ("a", "i"), ("b", "i"), ("c", "i")]),
        ({"containers": [{"name": "b", "$patch": "delete"}]}, [("a", "i"), ("c", "i")]),
        ({"containers": [{"name": "z", "image": "z"}, {"$patch": "replace"}]}, [("z", "z")]),
        ({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}, [("b", "i"), ("c", "i"), ("a", "i")]),
        (
            {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "x"}, {"name": "a"}, {"name": "b"}],
                "containers": [{"name": "x", "image": "x"}],
            },
            [("c", "i"), ("x", "x"), ("a", "i"), ("b", "i")],
        ),
    ],
)
def test_strategic_merge_of_a_keyed_list(patch: dict[str, Any], result: list[tuple[str, str]]) -> None:
    done = strategic_merge.apply({"containers": containers("a", "b", "c")}, patch, POD_SPEC)
    assert [(each["name"], each["image"]) for each in done["containers"]] == result


def test_strategic_merge_of_a_set() -> None:
    first = strategic_merge.apply({"finalizers": ["a", "b"]}, {"finalizers": ["c", "a"]}, META)
    assert first["finalizers"] == ["c", "a", "b"]
    second = strategic_merge.apply(first, {"$deleteFromPrimitiveList/finalizers": ["a"]}, META)
    assert second["finalizers"] == ["c", "b"]


def test_strategic_replacement_of_a_list_without_merge_strategy() -> None:
    done = strategic_merge.apply({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, POD_SPEC)
    assert done == {"tolerations": [{"key": "b"}]}


def test_retain_keys_clears_the_other_fields() -> None:
    old = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge.apply(old, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"metadata": {"$patch": "frob"}}, 500, "unknown patch type: frob in map: map[$patch:frob]"),
        ({"$patch": 5}, 500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
        (
            {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}},
            400,
            "invalid patch format of retainKeys",
        ),
    ],
)
def test_malformed_strategic_patches(patch: dict[str, Any], code: int, message: str) -> None:
    old = {"metadata": {}, "spec": {"strategy": {"type": "x"}, "template": {"spec": {"containers": containers("a")}}}}
    with pytest.raises(StatusError) as caught:
        strategic_merge.apply(old, patch, DEPLOYMENT)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_replacing_and_deleting_whole_maps() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    patch = {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
    assert strategic_merge.apply(old, patch, DEPLOYMENT) == {"metadata": {"labels": {"c": "3"}}}
    patch = {"metadata": {"labels": {"$patch": "delete"}}}
    assert strategic_merge.apply(old, patch, DEPLOYMENT) == {"metadata": {"labels": {}}}


def test_nulls_without_a_counterpart_vanish() -> None:
    patch = {"metadata": {"labels": {"a": None, "b": "1"}}}
    assert strategic_merge.apply({}, patch, DEPLOYMENT) == {"metadata": {"labels": {"b": "1"}}}


# -- strategic merge patches as Kubernetes' library takes them ---------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "patch", "result"),
    [
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["b", 1]}, None),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["b"]}, {"finalizers": ["a"]}),
        ({"finalizers": ["a"]}, {"$deleteFromPrimitiveList/finalizers": 5}, {"finalizers": ["a"]}),
        ({"finalizers": ["a"]}, {"$deleteFromPrimitiveList/finalizers": None}, {}),
        ({}, {"$deleteFromPrimitiveList/finalizers": ["b"]}, {}),
        ({"labels": {"a": "1"}}, {"$deleteFromPrimitiveList/labels": {"b": "2"}}, {"labels": {"a": "1", "b": "2"}}),
        ({"finalizers": ["a", "a", "b"]}, {"finalizers": ["c", "b"]}, {"finalizers": ["c", "a", "b"]}),
    ],
)
def test_lists_to_delete_from(held: dict[str, Any], patch: dict[str, Any], result: dict[str, Any] | None) -> None:
    if result is None:
        with pytest.raises(StatusError, match="list element types are not identical"):
            strategic_merge.apply(held, patch, META)
    else:
        assert strategic_merge.apply(held, patch, META) == result


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"$setElementOrder/nope": ["a"]}, 'unable to find api field in struct ObjectMeta for the json field "nope"'),
        ({"$setElementOrder/finalizers": 5}, "expected a []interface {}, but received a int64"),
        ({"$setElementOrder/labels": ["a"]}, "expected a []interface {}, but received a map[string]interface {}"),
        (
            {
                "$setElementOrder/ownerReferences": [{"uid": "u"}],
                "ownerReferences": [{"uid": "u"}, {"$patch": "replace"}],
            },
            "The order in patch list:\n[map[uid:u] map[$patch:replace]]\n doesn't match $setElementOrder list:\n"
            "[map[uid:u]]\n",
        ),
        ({"$setElementOrder/name": []}, "expected a []interface {}, but received a string"),
        ({"finalizers": [None]}, "list element types are not identical: [[f] [<nil>]]"),
        ({"finalizers": [["a"]]}, "list element types are not identical: [[f] [[a]]]"),
        ({"$deleteFromPrimitiveListX": []}, "invalid patch format of primitive list"),
    ],
)
def test_strategic_patches_that_cannot_be_applied(patch: dict[str, Any], message: str) -> None:
    held = {"finalizers": ["f"], "labels": {"a": "b"}, "name": "n"}
    with pytest.raises(StatusError) as caught:
        strategic_merge.apply(held, patch, META)
    assert caught.value.message == message


@pytest.mark.alone
def test_the_order_of_long_lists_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        containers = {"env": [{"name": f"e{n}", "value": "v"} for n in range(size)]}
        changed = {"env": [{"name": f"e{n}", "value": "w"} for n in reversed(range(size))]}
        order = {"$setElementOrder/env": [{"name": f"e{n}"} for n in reversed(range(size))]}
        kind = types.object_type("io.k8s.api.core.v1.Container")
        start = time.thread_time()
        done = strategic_merge.apply(containers, {**changed, **order}, kind)
        assert [item["name"] for item in done["env"]][:2] == [f"e{size - 1}", f"e{size - 2}"]
        return time.thread_time() - start

    seconds(100)
    # Pairs, as the pace of a machine changes.
    assert min(seconds(4000) / seconds(2000) for _ in range(5)) < 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(80.0, "80"), (-0.0, "-0"), (1e6, "1e+06"), (2**63, "9.223372036854776e+18"), (2**63 - 1, str(2**63 - 1))],
)
def test_numbers_of_a_patch_in_errors(value: int | float, text: str) -> None:
    assert strategic_merge.go_map({"a": [value]}) == f"map[a:[{text}]]"


def test_a_strategic_patch_in_an_error_lacks_its_nulls_for_new_maps() -> None:
    patch: dict[str, Any] = {"labels": {"a": None, "b": {"c": None}, "d": [{"e": None}]}, "annotations": {"a": None}}
    held = {"annotations": {"b": "c"}}
    strategic_merge.apply(held, patch, META)
    assert patch == {"labels": {"b": {}, "d": [{}]}, "annotations": {"a": None}}
    assert held == {"annotations": {"b": "c"}, "labels": {"b": {}, "d": [{}]}}


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/a/x"}, "error in remove for path: '/a/x': " + NO_KEY),
        ({"op": "remove", "path": "/x/y"}, 'remove operation does not apply: doc is missing path: "/x/y": ' + MISSING),
        ({"op": "add", "path": ""}, 'add operation does not apply: doc is missing path: "": ' + MISSING),
        ({"op": "add"}, "add operation failed to decode path: " + MISSING),
        ({"op": "add", "path": "/l/5"}, "error in add for path: '/l/5': " + INDEX),
        ({"op": "replace", "path": "/l/5"}, "replace operation does not apply: doc is missing key: /l/5: " + MISSING),
        ({"op": "replace", "path": "", "value": 7}, "replace operation value must be object or array: %!w(<nil>)"),
        ({"op": "move", "from": "/a/x", "path": "/b"}, "error in move for path: 'x': " + NO_KEY),
        (
            {"op": "copy", "from": "/x/y", "path": "/b"},
            "copy operation does not apply: doc is missing from path: /x/y: " + MISSING,
        ),
        ({"op": "test", "path": "/a", "value": 1}, "testing value /a failed: test failed"),
        ({"op": "test", "path": "/x/y"}, "test operation does not apply: is missing path: /x/y: " + MISSING),
        ({"path": "/a"}, "Unexpected kind: unknown"),
    ],
)
def test_failures_have_the_words_of_the_library(operation: dict[str, Any], why: str) -> None:
    with pytest.raises(json_patch.PatchFailed) as caught:
        json_patch.apply({"a": {}, "l": [1]}, [operation])
    assert str(caught.value) == why
