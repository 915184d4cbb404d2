"""Names, metadata rules and request options."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta import list_options, metadata, options
from kubechronicle.api.values import names


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("subdomain", ["a", "a.b-c", "9", "a" * 253], ["", "A", "-a", "a-", "a..b", "a_b", "a" * 254]),
        ("label", ["a", "9a-b", "a" * 63], ["a.b", "A", "a" * 64, "-"]),
        ("label1035", ["a", "a9"], ["9a", "a.b"]),
        ("segment", ["a", "A:b", "system:x"], [".", "..", "a/b", "a%b"]),
    ],
)
def test_names(check: str, good: list[str], bad: list[str]) -> None:
    rule = names.NAME_CHECKS[check]
    assert [name for name in good if rule(name, False)] == []
    assert [name for name in bad if not rule(name, False)] == []
    assert rule("web-", True) == []


@pytest.mark.parametrize("key", ["a", "A.b_c-9", "example.com/a", "x" * 63])
def test_qualified_names(key: str) -> None:
    assert names.qualified_name(key) == []


@pytest.mark.parametrize("key", ["", "-a", "a/", "/a", "a/b/c", "Ex.com/a", "x" * 64, "a b"])
def test_what_is_no_qualified_name(key: str) -> None:
    assert names.qualified_name(key)


def problems(meta: dict[str, Any]) -> list[str]:
    causes = metadata.validate(
        {"name": "a", "namespace": "n", **meta}, namespaced=True, name_check=names.subdomain_name
    )
    return [str(cause) for cause in causes]


def test_metadata_that_is_well_formed() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
    meta = {
        "labels": {"a": "b", "example.com/c": ""},
        "annotations": {"Example.com/A": "any thing"},
        "finalizers": ["example.com/f", "orphan"],
        "ownerReferences": [owner],
    }
    assert problems(meta) == []


@pytest.mark.parametrize(
    ("meta", "beginning"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"labels": {"a": "no good"}}, 'metadata.labels: Invalid value: "no good": a valid label must be'),
        ({"annotations": {"a b": "x"}}, 'metadata.annotations: Invalid value: "a b": name part must consist of'),
        ({"annotations": {"a": "x" * 262144}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"finalizers": ["x"]}, 'metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer'),
        ({"generation": -1}, "metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
        ({"namespace": "A"}, 'metadata.namespace: Invalid value: "A": a lowercase RFC 1123 label'),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u"}]},
            'metadata.ownerReferences[0]: Invalid value: {"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}: /v1',
        ),
        (
            {"ownerReferences": [{"apiVersion": "/v1", "kind": "Event", "name": "x", "uid": "u"}]},
            'metadata.ownerReferences[0]: Invalid value: {"apiVersion":"/v1","kind":"Event","name":"x","uid":"u"}: /v1',
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/", "kind": "K", "name": "x", "uid": "u"}]},
            'metadata.ownerReferences[0].apiVersion: Invalid value: "a/": must be <group>/<version> or <version>',
        ),
        (
            {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "x", "uid": "u"}]},
            'metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>',
        ),
        ({"managedFields": [{"operation": "X"}]}, 'metadata.managedFields[0].operation: Unsupported value: "X"'),
    ],
)
def test_metadata_that_is_not(meta: dict[str, Any], beginning: str) -> None:
    found = problems(meta)
    assert len(found) == 1
    assert found[0].startswith(beginning)


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    causes = metadata.validate({"name": "a", "namespace": "n"}, namespaced=False, name_check=names.subdomain_name)
    assert [str(cause) for cause in causes] == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_system_fields_of_a_new_object_are_the_servers() -> None:
    meta = {"generateName": "x" * 70, "uid": "mine", "deletionTimestamp": "t", "selfLink": "/x", "generation": 9}
    metadata.drop_system_fields(meta)
    metadata.fill_on_create(meta, now="2026-01-01T00:00:00Z", uid="u", name_suffix="bcdfg")
    assert meta == {
        "generateName": "x" * 70,
        "name": "x" * 58 + "bcdfg",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 9,
    }


def test_a_creation_by_put_keeps_the_marks_of_a_deletion() -> None:
    meta = {"name": "a", "uid": "mine", "deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}
    metadata.drop_system_fields(meta, deletion=False)
    assert meta == {"name": "a", "deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}


def test_what_an_update_cannot_change() -> None:
    old = {"name": "a", "uid": "u", "creationTimestamp": "c", "finalizers": ["x/y"], "deletionTimestamp": "d"}
    new = {"name": "b", "uid": "v", "finalizers": ["x/y", "x/z"]}
    metadata.keep_on_update(new, old)
    found = {str(cause).partition(": Invalid")[0] for cause in metadata.validate_update(new, old)}
    assert found == {
        "metadata.name",
        "metadata.uid",
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"x/z"}',
    }


@pytest.mark.parametrize(
    ("text", "code"), [("", None), ("0", None), ("17", None), ("abc", 500), ("-1", 500), (str(2**64), 500)]
)
def test_revisions(text: str, code: int | None) -> None:
    if code is None:
        assert metadata.parse_revision({"resourceVersion": text}) == int(text or 0)
        return
    with pytest.raises(StatusError) as caught:
        metadata.parse_revision({"resourceVersion": text})
    assert caught.value.code == code


def test_managers_from_user_agents() -> None:
    assert options.manager_of("", "kubectl/v1.36 (linux)") == "kubectl"
    assert options.manager_of("me", "kubectl/v1.36") == "me"
    assert options.manager_of("", "a\tb/1") == "ab"
    assert options.manager_of("", "") == "unknown"
    assert len(options.manager_of("", "x" * 300)) == 128


def test_write_options() -> None:
    query = {"dryRun": ["All"], "fieldManager": ["m"], "fieldValidation": ["Strict"], "colour": ["blue"]}
    assert options.parse_create_options(query) == options.CreateOptions(
        dry_run=True, field_manager="m", field_validation="Strict"
    )
    assert options.parse_update_options({}).field_validation == "Warn"
    assert options.parse_patch_options({"force": ["true"], "fieldManager": ["m"]}, "application/apply-patch+yaml").force


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (
            lambda: options.parse_create_options({"dryRun": ["Some"]}),
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        (
            lambda: options.parse_create_options({"fieldManager": ["a\nb"]}),
            'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "a\\nb": '
            "invalid character U+000A (at position 1)",
        ),
        (
            lambda: options.parse_patch_options({"force": ["1"]}, "application/merge-patch+json"),
            'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
        ),
        (
            lambda: options.parse_patch_options({}, "application/apply-patch+yaml"),
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
        ),
        (
            lambda: options.parse_delete_options({}, {"propagationPolicy": "Orphan", "orphanDependents": True}),
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": '
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        (
            lambda: list_options.parse_list_options({"resourceVersionMatch": ["Exact"], "resourceVersion": ["0"]}),
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is '
            'forbidden for resourceVersion "0"',
        ),
        (
            lambda: list_options.parse_list_options({"watch": ["1"], "sendInitialEvents": ["true"]}),
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires '
            "setting resourceVersionMatch to NotOlderThan",
        ),
        (lambda: list_options.parse_list_options({"limit": ["x"]}), 'strconv.ParseInt: parsing "x": invalid syntax'),
    ],
)
def test_options_that_are_refused(parse: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse()
    assert caught.value.message == message


@pytest.mark.parametrize("limit", ["0", "-1", "-5", str(-(2**63)), "-" + "0" * 5000 + "7"])
def test_a_limit_that_is_not_positive_is_none(limit: str) -> None:
    assert list_options.parse_list_options({"limit": [limit]}).limit == 0


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid syntax"),
        ("-", "invalid syntax"),
        ("²", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("9" * 5000, "value out of range"),
        (str(2**63), "value out of range"),
        ("-" + "9" * 5000, "value out of range"),
    ],
)
def test_numbers_that_are_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        list_options.parse_list_options({name: [text]})
    assert caught.value.message == f'strconv.ParseInt: parsing "{text}": {problem}'


@pytest.mark.parametrize("text", ["7", "+7", "0" * 5000 + "7"])
def test_numbers_that_are_taken(text: str) -> None:
    assert list_options.parse_list_options({"timeoutSeconds": [text]}).timeout_seconds == 7
    assert options.parse_resource_version("0" * 5000 + "7") == 7


@pytest.mark.parametrize("revision", ["", "0"])
def test_a_watch_from_no_revision_begins_with_the_state(revision: str) -> None:
    found = list_options.parse_list_options({"watch": ["1"], "resourceVersion": [revision]})
    assert found.send_initial_events
    assert found.resource_version_match == "NotOlderThan"
    assert list_options.parse_list_options(
        {"watch": ["1"], "sendInitialEvents": ["0"], "resourceVersionMatch": ["NotOlderThan"]}
    )
    with pytest.raises(StatusError, match="resourceVersionMatch is forbidden when continue is provided"):
        list_options.parse_list_options({"watch": ["1"], "resourceVersion": [revision], "continue": ["abc"]})
    assert list_options.parse_list_options({"resourceVersion": [revision]}).send_initial_events is None


def test_a_watch_from_a_revision_takes_a_continue_token() -> None:
    found = list_options.parse_list_options({"watch": ["1"], "resourceVersion": ["5"], "continue": ["abc"]})
    assert found.send_initial_events is None


def test_a_watch_of_longer_than_go_can_count_ends_at_once() -> None:
    assert options.go_seconds(3) == 3
    assert options.go_seconds(-1) == -1
    assert options.go_seconds(2**63 - 1) < 0


def test_list_options() -> None:
    query = {"limit": ["5"], "continue": ["c"], "labelSelector": ["a=b"], "timeoutSeconds": ["3"], "watch": ["false"]}
    found = list_options.parse_list_options(query)
    assert (found.limit, found.continue_, found.label_selector, found.timeout_seconds) == (5, "c", "a=b", 3)
    assert not found.watch
    assert list_options.parse_list_options({"watch": ["true"], "allowWatchBookmarks": ["1"]}).allow_watch_bookmarks


def test_preconditions_of_a_delete_in_the_query() -> None:
    found = options.parse_delete_options({"uid": ["u"], "resourceVersion": ["5"]})
    assert (found.precondition_uid, found.precondition_resource_version) == ("u", "5")
    found = options.parse_delete_options({"uid": [""]})
    assert (found.precondition_uid, found.precondition_resource_version) == (None, None)


def test_the_body_of_a_delete_counts_alone() -> None:
    found = options.parse_delete_options({"propagationPolicy": ["Foreground"]}, {"gracePeriodSeconds": 3})
    assert (found.propagation_policy, found.grace_period_seconds) == (None, 3)


@pytest.mark.parametrize("text", ["abc", "-1", "1.0", "²", "+1"])
def test_revisions_of_reads(text: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        options.parse_resource_version(text)


@pytest.mark.parametrize(
    ("given", "namespaced", "namespace", "left"),
    [("x", False, "", None), ("x", False, "y", None), ("", True, "y", "y"), ("y", True, "y", "y")],
)
def test_a_namespace_counts_only_with_one_in_the_url(
    given: str, namespaced: bool, namespace: str, left: str | None
) -> None:
    meta = {"name": "a", "namespace": given}
    metadata.match_namespace(meta, namespaced=namespaced, namespace=namespace)
    assert meta.get("namespace") == left


def test_an_owner_may_have_a_version_without_group() -> None:
    assert problems({"ownerReferences": [{"apiVersion": "/tmp", "kind": "K", "name": "x", "uid": "u"}]}) == []


def test_equal_owner_references_are_kept_once() -> None:
    def owner(name: str, **more: bool) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "A", "name": name, "uid": f"u{name}", **more}

    meta = {"ownerReferences": [owner("a"), owner("b"), owner("a"), owner("a", controller=False), owner("b")]}
    assert metadata.drop_repeated_owners(meta) == ["ua", "ub"]
    assert meta == {"ownerReferences": [owner("a"), owner("b"), owner("a", controller=False)]}
    assert metadata.drop_repeated_owners(meta) == []
    warning = metadata.repeated_owners_warning(["ua", "ub"], after_admission=True)
    assert "after mutating admission happens" in warning
    assert warning.endswith("duplicate UID(s) observed: ua, ub")


def test_many_controllers_take_linear_time() -> None:
    def seconds(size: int) -> float:
        owners = [
            {"apiVersion": "v1", "kind": "A", "name": f"n{n}", "uid": f"u{n}", "controller": True} for n in range(size)
        ]
        meta = {"name": "a", "ownerReferences": owners}
        start = time.thread_time()
        metadata.drop_repeated_owners(meta)
        causes = metadata.validate(meta, namespaced=False, name_check=names.segment_name)
        assert len(causes) == size - 1
        return time.thread_time() - start

    seconds(100)
    assert min(seconds(8000) for _ in range(3)) < 3 * min(seconds(4000) for _ in range(3)) + 0.002
