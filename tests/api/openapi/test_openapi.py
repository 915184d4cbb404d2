"""The OpenAPI documents: complete, without unserved paths, and with the names that client generators use."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import kubernetes.client
import pytest
from openapi_decoder import decode_document
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator

from kubechronicle.api.codecs.errors import EncodeError
from kubechronicle.api.custom.served import resource_types
from kubechronicle.api.openapi import messages, v2, v3
from kubechronicle.api.openapi.names import group_words, tag
from kubechronicle.api.openapi.v2 import content_hash
from kubechronicle.api.registry.registry import Registry, builtin_registry, known_registry
from kubechronicle.api.registry.runtime_config import registry_for

PAGES = ("/version", "/openid/v1/jwks", "/.well-known/openid-configuration", "/metrics")
BUILTIN, KNOWN = builtin_registry(), known_registry()
POD, DEPLOYMENT = "io.k8s.api.core.v1.Pod", "io.k8s.api.apps.v1.Deployment"


@functools.cache
def whole(registry: Registry = KNOWN) -> Any:
    """Return the v2 document."""
    return v2.document(registry, PAGES, server_version="v1.36.2")


@functools.cache
def document(path: str, registry: Registry = KNOWN) -> Any:
    return v3.document(registry, path, server_version="v1.36.2")


ALL_PATHS = v3.served(KNOWN, PAGES)


def schema(name: str, path: str = "api/v1") -> Any:
    return document(path)["components"]["schemas"][name]


def strings(value: Any, key: str) -> Iterator[str]:
    """Yield all texts under the key, at any depth."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name == key and isinstance(member, str):
                yield member
            else:
                yield from strings(member, key)
    elif isinstance(value, list):
        for member in value:
            yield from strings(member, key)


def keys(value: Any, *, names: bool = False) -> Iterator[str]:
    """Yield all keys except the names of properties, at any depth."""
    if isinstance(value, dict):
        for key, member in value.items():
            if not names:
                yield key
            yield from keys(member, names=key == "properties" and not names)
    elif isinstance(value, list):
        for member in value:
            yield from keys(member)


def operations(paths: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in paths.items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


# -- contents ---------------------------------------------------------------------------------------------------------


def expected_paths(registry: Registry) -> set[tuple[str, str]]:
    """Return (path, method) of everything the registry serves, from its verbs."""
    found = {("/api/", "get"), ("/apis/", "get"), ("/version/", "get"), ("/openid/v1/jwks/", "get")}
    found |= {("/.well-known/openid-configuration/", "get")}
    methods = {"create": "post", "get": "get", "update": "put", "patch": "patch", "delete": "delete"}
    for rt in registry:
        root = f"/apis/{rt.group}/{rt.version}" if rt.group else f"/api/{rt.version}"
        if rt.group:
            found.add((f"/apis/{rt.group}/", "get"))
        found.add((f"{root}/", "get"))
        within = "/namespaces/{namespace}" if rt.namespaced else ""
        many, one = f"{within}/{rt.plural}", f"{within}/{rt.plural}/{{name}}"
        for verb in rt.verbs:
            if verb in ("list", "watch"):
                prefix = "/watch" if verb == "watch" else ""
                found |= {(f"{root}{prefix}{many}", "get"), (f"{root}{prefix}/{rt.plural}", "get")}
                if verb == "watch":
                    found.add((f"{root}/watch{one}", "get"))
            elif verb == "deletecollection":
                found.add((root + many, "delete"))
            else:
                found.add((root + (many if verb == "create" else one), methods[verb]))
        for name, subresource in rt.subresources.items():
            found |= {(f"{root}{one}/{name}", methods[verb]) for verb in subresource.verbs}
            if name == "proxy":
                every = ("get", "put", "post", "delete", "options", "head", "patch")
                found |= {(f"{root}{one}/proxy{rest}", method) for method in every for rest in ("", "/{path}")}
    return found


@pytest.mark.parametrize("registry", [BUILTIN, KNOWN, registry_for({"api/ga": "false", "batch/v1": "true"})])
def test_the_document_has_exactly_the_served_paths(registry: Registry) -> None:
    expected = expected_paths(registry)
    documented = {(path, method) for path, method, _ in operations(whole(registry)["paths"])}
    if not registry.versions("apps"):
        assert not any("/apis/apps/" in path for path, _ in documented)
    assert documented == expected
    in_parts = Counter(
        (path, method)
        for part in v3.served(registry, PAGES)
        for path, method, _ in operations(document(part, registry)["paths"])
    )
    assert set(in_parts) == expected
    assert set(in_parts.values()) == {1}


def test_pages_are_documented_if_they_are_served() -> None:
    assert set(ALL_PATHS) >= {"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version", "openid/v1/jwks"}
    assert not {"version", "openid/v1/jwks", ".well-known/openid-configuration"} & set(v3.served(KNOWN, ()))
    assert "/version/" not in v2.document(BUILTIN, (), server_version="")["paths"]
    with pytest.raises(KeyError):
        document("apis/nonsense")
    with pytest.raises(KeyError):
        document("apis/apps/v9")
    with pytest.raises(KeyError):
        document("nonsense")


def test_every_reference_resolves() -> None:
    found = whole()
    for reference in set(strings(found, "$ref")):
        _, section, name = reference.split("/")
        assert name in found[section], reference
    for path in ALL_PATHS:
        part = document(path)
        for reference in set(strings(part, "$ref")):
            assert reference.startswith("#/components/schemas/")
            assert reference.rpartition("/")[2] in part["components"]["schemas"], (path, reference)


def test_every_definition_is_referred_to() -> None:
    found = whole()
    referred = set(strings(found, "$ref"))
    for section in ("definitions", "parameters"):
        assert {f"#/{section}/{name}" for name in found[section]} == {
            each for each in referred if each.startswith(f"#/{section}/")
        }


def test_operation_ids_are_unique_and_the_same_in_both() -> None:
    ids = [operation["operationId"] for _, _, operation in operations(whole()["paths"])]
    assert [name for name, times in Counter(ids).items() if times > 1] == []
    parts = [one["operationId"] for path in ALL_PATHS for _, _, one in operations(document(path)["paths"])]
    assert sorted(parts) == sorted(ids)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "name", "action", "description"),
    [
        (
            "/api/v1/namespaces/{namespace}/pods",
            "get",
            "listCoreV1NamespacedPod",
            "list",
            "list or watch objects of kind Pod",
        ),
        (
            "/api/v1/namespaces/{namespace}/pods",
            "delete",
            "deleteCoreV1CollectionNamespacedPod",
            "deletecollection",
            "delete collection of Pod",
        ),
        ("/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list", "list or watch objects of kind Pod"),
        (
            "/api/v1/watch/pods",
            "get",
            "watchCoreV1PodListForAllNamespaces",
            "watchlist",
            "watch individual changes to a list of Pod. deprecated: use the 'watch' parameter with a list operation "
            "instead.",
        ),
        (
            "/api/v1/watch/namespaces/{namespace}/pods/{name}",
            "get",
            "watchCoreV1NamespacedPod",
            "watch",
            "watch changes to an object of kind Pod. deprecated: use the 'watch' parameter with a list operation "
            "instead, filtered to a single item with the 'fieldSelector' parameter.",
        ),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/exec",
            "get",
            "connectCoreV1GetNamespacedPodExec",
            "connect",
            "connect GET requests to exec of Pod",
        ),
        (
            "/api/v1/nodes/{name}/proxy/{path}",
            "options",
            "connectCoreV1OptionsNodeProxyWithPath",
            "connect",
            "connect OPTIONS requests to proxy of Node",
        ),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/log",
            "get",
            "readCoreV1NamespacedPodLog",
            "get",
            "read log of the specified Pod",
        ),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            "post",
            "createCoreV1NamespacedPodEviction",
            "post",
            "create eviction of a Pod",
        ),
        ("/api/v1/namespaces/{namespace}/events", "post", "createCoreV1NamespacedEvent", "post", "create an Event"),
        (
            "/api/v1/namespaces/{namespace}/endpoints",
            "post",
            "createCoreV1NamespacedEndpoints",
            "post",
            "create Endpoints",
        ),
        (
            "/api/v1/componentstatuses",
            "get",
            "listCoreV1ComponentStatus",
            "list",
            "list objects of kind ComponentStatus",
        ),
        (
            "/api/v1/namespaces/{name}/finalize",
            "put",
            "replaceCoreV1NamespaceFinalize",
            "put",
            "replace finalize of the specified Namespace",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
            "delete",
            "deleteRbacAuthorizationV1ClusterRole",
            "delete",
            "delete a ClusterRole",
        ),
        (
            "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}/status",
            "patch",
            "patchAutoscalingV2NamespacedHorizontalPodAutoscalerStatus",
            "patch",
            "partially update status of the specified HorizontalPodAutoscaler",
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{name}",
            "get",
            "readFlowcontrolApiserverV1FlowSchema",
            "get",
            "read the specified FlowSchema",
        ),
        ("/apis/apps/", "get", "getAppsAPIGroup", None, "get information of a group"),
        ("/apis/apps/v1/", "get", "getAppsV1APIResources", None, "get available resources"),
    ],
)
def test_names(path: str, method: str, name: str, action: str | None, description: str) -> None:
    found = whole()["paths"][path][method]
    assert (found["operationId"], found["description"]) == (name, description)
    assert found.get("x-kubernetes-action") == action
    assert found["schemes"] == ["https"]


@pytest.mark.parametrize(
    ("group", "version", "words", "tagged"),
    [
        ("", "v1", "CoreV1", "core_v1"),
        ("storage.k8s.io", "v1", "StorageV1", "storage_v1"),
        ("my-shop.example.com", "v1alpha1", "MyShopExampleComV1alpha1", "myShopExampleCom_v1alpha1"),
        ("3d.io", "v2", "DIoV2", "DIo_v2"),
        ("a3.b_c", "", "A3B_c", "a3B_c"),
    ],
)
def test_words_of_groups(group: str, version: str, words: str, tagged: str) -> None:
    assert (group_words(group, version), tag(group, version)) == (words, tagged)


def test_generated_clients_have_these_names() -> None:
    """The published Python client, generated from the same ids, has a method for each operation."""
    missing = []
    for path, method, operation in operations(whole(BUILTIN)["paths"]):
        tag, name = operation["tags"][0], operation["operationId"]
        if operation.get("x-kubernetes-action", "watch").startswith("watch") or method in ("head", "options"):
            continue  # clients leave them out
        group = "".join(word[:1].upper() + word[1:] for word in tag.split("_"))
        if group.startswith("HistoryKubechronicleDev"):
            continue  # the client has only Kubernetes' groups
        api = getattr(kubernetes.client, f"{group}Api")
        methods = {each.replace("_", "") for each in dir(api)}
        if name.replace(group, "", 1).lower() not in methods:
            missing.append((path, name))
    assert missing == []


def test_tags_and_kinds() -> None:
    paths = whole()["paths"]
    scale = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]
    assert scale["get"]["tags"] == ["apps_v1"]
    assert scale["get"]["x-kubernetes-group-version-kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert scale["put"]["parameters"][0]["schema"] == {"$ref": "#/definitions/io.k8s.api.autoscaling.v1.Scale"}
    assert scale["parameters"][0]["description"] == "name of the Scale"
    token = paths["/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"]["post"]
    assert token["x-kubernetes-group-version-kind"]["kind"] == "TokenRequest"
    role = paths["/apis/rbac.authorization.k8s.io/v1/clusterroles"]["get"]
    assert role["tags"] == ["rbacAuthorization_v1"]
    assert paths["/openid/v1/jwks/"]["get"]["produces"] == ["application/jwk-set+json"]


# -- parameters and answers -------------------------------------------------------------------------------------------


def names_of(parameters: Any) -> list[str]:
    shared = whole()["parameters"]
    return [(shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each)["name"] for each in parameters]


def test_common_parameters_belong_to_the_path() -> None:
    item = whole()["paths"]["/api/v1/namespaces/{namespace}/pods"]
    assert names_of(item["parameters"]) == ["namespace", "pretty"]
    assert names_of(item["post"]["parameters"]) == ["body", "dryRun", "fieldManager", "fieldValidation"]
    assert names_of(item["delete"]["parameters"]) == [
        "body",
        "continue",
        "dryRun",
        "fieldSelector",
        "gracePeriodSeconds",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "labelSelector",
        "limit",
        "orphanDependents",
        "propagationPolicy",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "shardSelector",
        "timeoutSeconds",
    ]
    everywhere = whole()["paths"]["/api/v1/pods"]
    assert "parameters" not in everywhere["get"]
    assert {"watch", "allowWatchBookmarks", "pretty"} < set(names_of(everywhere["parameters"]))
    execute = whole()["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["parameters"]
    assert names_of(execute) == [
        "command",
        "container",
        "name",
        "namespace",
        "stderr",
        "stdin",
        "stdout",
        "tty",
    ]
    proxied = whole()["paths"]["/api/v1/namespaces/{namespace}/services/{name}/proxy/{path}"]["parameters"]
    assert names_of(proxied) == ["name", "namespace", "path", "path"]


def test_shared_parameters_are_named_after_their_content() -> None:
    shared = whole()["parameters"]
    # The names of kube-apiserver v1.36 for parameters with the same content.
    assert {
        "namespace-vgWSWtn3",
        "path-z6Ciiujn",
        "body-2Y1dVQaQ",
        "body-78PwaGsr",
        "gracePeriodSeconds--K5HaBOS",
        "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
        "orphanDependents-uRB25kX5",
        "propagationPolicy-6jk3prlO",
    } <= set(shared)
    assert not {"name", "dryRun", "fieldValidation"} & {each["name"] for each in shared.values()}
    pod = whole()["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]["parameters"]
    assert {"dryRun", "fieldValidation"} <= {each.get("name") for each in pod}  # kubectl before 1.27 expects them here
    assert content_hash(b"") == "y_Kc5IQi"


def test_bodies_and_answers() -> None:
    paths = document("api/v1")["paths"]
    pod = paths["/api/v1/namespaces/{namespace}/pods/{name}"]
    patch = pod["patch"]["requestBody"]
    assert set(patch["content"]) == {
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    }
    assert patch["required"] is True
    assert "required" not in pod["delete"]["requestBody"]
    codes = {method: sorted(each["responses"]) for _, method, each in operations({"": pod})}
    assert codes == {
        "get": ["200", "401"],
        "put": ["200", "201", "401"],
        "patch": ["200", "201", "401"],
        "delete": ["200", "202", "401"],
    }
    gone = pod["delete"]["responses"]["200"]["content"]["application/yaml"]["schema"]
    assert gone == {"$ref": f"#/components/schemas/{POD}"}
    namespace = paths["/api/v1/namespaces/{name}"]["delete"]["responses"]["200"]["content"]["application/json"]
    assert namespace["schema"]["$ref"].endswith(".Status")
    log = paths["/api/v1/namespaces/{namespace}/pods/{name}/log"]["get"]["responses"]["200"]["content"]
    assert log["text/plain"] == {"schema": {"type": "string"}}
    watched = paths["/api/v1/watch/pods"]["get"]["responses"]["200"]["content"]
    assert watched["application/json;stream=watch"]["schema"]["$ref"].endswith("meta.v1.WatchEvent")


def test_some_kinds_answer_with_the_deleted_object() -> None:
    """A deletion answers Status, except for these kinds."""
    answers = {}
    for path, method, operation in operations(whole(BUILTIN)["paths"]):
        if method == "delete" and operation["x-kubernetes-action"] == "delete":
            answers[path.split("/")[-2]] = operation["responses"]["200"]["schema"]["$ref"].rpartition(".")[2]
    assert {name for name, answer in answers.items() if answer != "Status"} == {
        "csidrivers",
        "csinodes",
        "deviceclasses",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourcequotas",
        "resourceslices",
        "serviceaccounts",
        "services",
        "storageclasses",
        "volumeattachments",
        "volumeattributesclasses",
    }


# -- schemas ----------------------------------------------------------------------------------------------------------

CORE = "io.k8s.api.core.v1."


@pytest.mark.parametrize(
    ("definition", "field", "expected"),
    [
        (CORE + "Container", "imagePullPolicy", {"enum": ["Always", "IfNotPresent", "Never"]}),
        (CORE + "Container", "name", {"default": ""}),
        (CORE + "Container", "resources", {"default": {}}),
        (CORE + "Container", "image", {}),
        (CORE + "Container", "command", {"items": {"type": "string"}}),
        (CORE + "ContainerPort", "protocol", {"default": "TCP", "enum": ["SCTP", "TCP", "UDP"]}),
        (CORE + "ContainerPort", "containerPort", {"default": 0}),
        (CORE + "LocalObjectReference", "name", {"default": ""}),
        (CORE + "PodSpec", "restartPolicy", {"enum": ["Always", "Never", "OnFailure"]}),
        (CORE + "PodSpec", "priority", {}),
        (CORE + "PodSpec", "nodeSelector", {"additionalProperties": {"type": "string"}}),
        (CORE + "ServiceSpec", "type", {"enum": ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]}),
        (
            CORE + "ServiceSpec",
            "ipFamilies",
            {"items": {"type": "string", "enum": ["", "IPv4", "IPv6"]}},
        ),
        (CORE + "ReplicationControllerSpec", "replicas", {"default": 1}),
        (CORE + "ReplicationControllerSpec", "minReadySeconds", {"default": 0}),
        (CORE + "AzureDiskVolumeSource", "readOnly", {"default": False}),
        (CORE + "AzureDiskVolumeSource", "kind", {"default": "Shared", "enum": ["Dedicated", "Managed", "Shared"]}),
        (CORE + "RBDVolumeSource", "keyring", {"default": "/etc/ceph/keyring"}),
        (CORE + "Pod", "metadata", {"default": {}}),
        (CORE + "Pod", "kind", {}),
        (CORE + "Event", "eventTime", {}),
        (CORE + "Secret", "data", {"additionalProperties": {"type": "string", "format": "byte"}}),
    ],
)
def test_defaults_and_enums(definition: str, field: str, expected: dict[str, Any]) -> None:
    found = schema(definition)["properties"][field]
    assert {key: found[key] for key in ("default", "enum") if key in found} == {
        key: expected[key] for key in ("default", "enum") if key in expected
    }
    for below in ("items", "additionalProperties"):
        if below in expected:
            assert found[below] == expected[below]
    plain = whole()["definitions"][definition]["properties"][field]
    assert "default" not in plain
    assert plain.get("enum") == expected.get("enum")


def test_descriptions_list_the_enum_values() -> None:
    for found in (schema(CORE + "Container"), whole()["definitions"][CORE + "Container"]):
        described = found["properties"]["imagePullPolicy"]["description"]
        lines = described.partition("\n\nPossible enum values:\n")[2].splitlines()
        assert [line.partition("` ")[0] for line in lines] == [' - `"Always"', ' - `"IfNotPresent"', ' - `"Never"']
        assert lines[0].endswith(
            "means that kubelet always attempts to pull the latest image. Container will fail If the pull fails."
        )


def test_selector_of_a_workload_has_no_default() -> None:
    spec = schema("io.k8s.api.apps.v1.DeploymentSpec", "apis/apps/v1")["properties"]
    assert "default" not in spec["selector"]  # a pointer in Go
    assert spec["template"]["default"] == {}
    assert spec["strategy"]["x-kubernetes-patch-strategy"] == "retainKeys"


def test_the_two_dialects() -> None:
    for name, v3_form in (
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
        ),
    ):
        written = dict(schema(name))
        assert written.pop("description")
        assert written == v3_form
        assert whole()["definitions"][name]["type"] == "string"
    spec = schema(POD)["properties"]["spec"]
    assert spec["allOf"] == [{"$ref": f"#/components/schemas/{CORE}PodSpec"}]
    spec = whole()["definitions"][POD]["properties"]["spec"]
    assert spec["$ref"] == f"#/definitions/{CORE}PodSpec"
    assert spec["description"]
    assert not {"allOf", "oneOf", "anyOf", "default", "nullable"} & set(keys(whole()["definitions"], names=True))


EXTENSIONS = {
    "x-kubernetes-action",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
}


def test_extensions() -> None:
    assert {key for key in keys(whole()) if key.startswith("x-")} == EXTENSIONS
    found = {key for path in ALL_PATHS for key in keys(document(path)) if key.startswith("x-")}
    assert found == EXTENSIONS
    containers = schema(CORE + "PodSpec")["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert schema(POD)["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]


def test_kinds_of_every_group_version() -> None:
    options = schema("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "apis/apps/v1")
    kinds = [
        {"group": "", "kind": "DeleteOptions", "version": "v1"},
        {"group": "apps", "kind": "DeleteOptions", "version": "v1"},
    ]
    assert options["x-kubernetes-group-version-kind"] == kinds


def test_a_former_version() -> None:
    spec = schema("io.k8s.api.batch.v1beta1.CronJobSpec", "apis/batch/v1beta1")["properties"]
    assert spec["concurrencyPolicy"]["type"] == "string"
    assert spec["jobTemplate"]["allOf"][0]["$ref"].endswith("batch.v1beta1.JobTemplateSpec")
    assert "apis/batch/v1beta1" not in v3.served(BUILTIN, ())


WIDGETS = {
    "metadata": {"name": "widgets.shop.example.com", "uid": "1", "generation": 1},
    "spec": {
        "group": "shop.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".n"}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A Widget.",
                        "properties": {
                            "metadata": {"type": "object"},
                            "spec": {
                                "type": "object",
                                "required": ["size", "label"],
                                "properties": {
                                    "size": {"type": "integer", "default": 1},
                                    "label": {"type": "string", "nullable": True},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                        "properties": {"a": {"type": "string"}},
                                    },
                                    "pod": {"type": "object", "x-kubernetes-embedded-resource": True},
                                    "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
    "status": {
        "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    },
}


def test_the_schema_of_a_custom_resource() -> None:
    registry = BUILTIN.with_types(resource_types(WIDGETS))
    widget = document("apis/shop.example.com/v1", registry)["components"]["schemas"]["com.example.shop.v1.Widget"]
    assert widget["description"] == "A Widget."
    assert widget["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.size"}]
    meta = widget["properties"]["metadata"]
    assert meta["allOf"] == [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]
    spec = widget["properties"]["spec"]
    assert spec["required"] == ["size", "label"]
    assert spec["properties"]["size"] == {"type": "integer", "default": 1}
    assert spec["properties"]["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert sorted(spec["properties"]["pod"]["properties"]) == ["apiVersion", "kind", "metadata"]
    assert "oneOf" in spec["properties"]["one"]


def test_the_schema_of_a_custom_resource_in_v2_lacks_what_kubectl_misreads() -> None:
    registry = BUILTIN.with_types(resource_types(WIDGETS))
    spec = whole(registry)["definitions"]["com.example.shop.v1.Widget"]["properties"]["spec"]
    assert spec["required"] == ["size"]
    assert spec["properties"] == {
        "size": {"type": "integer"},
        "label": {},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "pod": spec["properties"]["pod"],
        "one": {"type": "object"},
    }


def test_a_custom_resource_does_not_take_the_name_of_a_published_type() -> None:
    spec = {**WIDGETS["spec"], "group": "autoscaling.api.k8s.io", "versions": WIDGETS["spec"]["versions"]}
    taken = {"plural": "scales", "singular": "scale", "kind": "Scale", "listKind": "ScaleList"}
    registry = BUILTIN.with_types(resource_types({**WIDGETS, "spec": spec, "status": {"acceptedNames": taken}}))
    definitions = whole(registry)["definitions"]
    assert "spec" in definitions["io.k8s.api.autoscaling.v1.Scale"]["properties"]
    assert "size" in definitions["io.k8s.api.autoscaling.v1.Scale_v2"]["properties"]["spec"]["properties"]
    assert "io.k8s.api.autoscaling.v1.ScaleList" in definitions


def test_a_custom_resource_in_a_built_in_version_is_not_served() -> None:
    spec = {**WIDGETS["spec"], "group": "networking.k8s.io"}
    types = resource_types({**WIDGETS, "spec": spec})
    registry = BUILTIN.with_types(types)
    assert registry.lookup("networking.k8s.io", "v1", "widgets") is None
    assert registry.known("networking.k8s.io", "v1", "widgets") is types[0]
    assert registry.resources("networking.k8s.io", "v1") == BUILTIN.resources("networking.k8s.io", "v1")
    assert registry.with_types((), without=types).known("networking.k8s.io", "v1", "widgets") is None
    other = resource_types({**WIDGETS, "spec": {**spec, "versions": [{**spec["versions"][0], "name": "v9"}]}})
    assert BUILTIN.with_types(other).lookup("networking.k8s.io", "v9", "widgets") is other[0]


def test_the_operations_of_a_custom_resource() -> None:
    registry = BUILTIN.with_types(resource_types(WIDGETS))
    found = document("apis/shop.example.com/v1", registry)["paths"]
    base = "/apis/shop.example.com/v1/namespaces/{namespace}/widgets"
    assert "requestBody" not in found[base]["delete"]
    assert list(found[f"{base}/{{name}}"]["patch"]["responses"]) == ["200", "401"]
    scale = found[f"{base}/{{name}}/scale"]["get"]
    assert scale["x-kubernetes-group-version-kind"]["kind"] == "Widget"
    assert list(scale["responses"]["200"]["content"]) == ["application/json", "application/yaml"]


def test_a_custom_resource() -> None:
    registry = BUILTIN.with_types(resource_types(WIDGETS))
    assert "apis/shop.example.com/v1" in v3.served(registry, ())
    assert "apis/shop.example.com" not in v3.served(registry, ())
    found = document("apis/shop.example.com/v1", registry)
    assert "com.example.shop.v1.Widget" in found["components"]["schemas"]
    item = found["paths"]["/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}"]
    assert item["get"]["operationId"] == "readShopExampleComV1NamespacedWidget"
    assert "application/strategic-merge-patch+json" not in item["patch"]["requestBody"]["content"]
    assert not any("/watch/" in path for path in found["paths"])
    listed = found["components"]["schemas"]["com.example.shop.v1.WidgetList"]["properties"]["items"]["items"]
    assert listed == {"$ref": "#/components/schemas/com.example.shop.v1.Widget"}
    assert "com.example.shop.v1.Widget" in whole(registry)["definitions"]
    hashes = [v3.document_hash(each, "apis/apps/v1", server_version="1") for each in (BUILTIN, registry, KNOWN)]
    assert len(set(hashes)) == 1  # another group's resources change nothing


def test_a_hash_names_the_content() -> None:
    def named(path: str, registry: Registry = BUILTIN, version: str = "v1.36.2") -> str:
        return v3.document_hash(registry, path, server_version=version)

    assert re.fullmatch("[0-9A-F]{128}", named("api/v1"))
    assert len({named(path) for path in v3.served(BUILTIN, PAGES)}) == len(v3.served(BUILTIN, PAGES))
    assert named("api/v1") != named("api/v1", version="v1.36.3")
    fewer = registry_for({"batch/v1": "false", "batch/v1/jobs": "true"})
    assert named("apis/batch/v1") != named("apis/batch/v1", fewer)
    assert named("api/v1") == named("api/v1", fewer)


# -- other readers ----------------------------------------------------------------------------------------------------


def without_defaults(value: Any, *, names: bool = False) -> Any:
    """Return a schema without defaults: Go's zero values, which may be invalid ({} with required fields).

    ``names``: the keys are properties' names."""
    if isinstance(value, dict):
        return {
            key: without_defaults(member, names=key == "properties" and not names)
            for key, member in value.items()
            if names or key != "default"
        }
    return [without_defaults(member) for member in value] if isinstance(value, list) else value


def test_a_validator_accepts_v2() -> None:
    OpenAPIV2SpecValidator(whole(BUILTIN)).validate()


@pytest.mark.parametrize("path", ["apis/apps/v1", "apis/autoscaling/v2", "apis", "version"])
def test_a_validator_accepts_v3(path: str) -> None:
    OpenAPIV30SpecValidator(without_defaults(document(path))).validate()


def test_protobuf_of_v2() -> None:
    assert decode_document(messages.V2.encode(whole()), v3=False) == whole()


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "apis/apps", "version"])
def test_protobuf_of_v3(path: str) -> None:
    assert decode_document(messages.V3.encode(document(path)), v3=True) == document(path)


def test_protobuf_of_scalars_and_choices() -> None:
    properties = {
        "a": {"type": "number", "minimum": 0.5, "maxLength": 300, "default": 1.5, "x-kubernetes-int-or-string": True},
        "b": {"type": "boolean", "default": False, "enum": ["", "true", None, 1]},
        "c": {"type": "string", "default": "", "not": {"type": "integer"}},
        "d": {"type": "object", "additionalProperties": False, "default": {}},
        "e": {"type": "object", "additionalProperties": True, "anyOf": [{"type": "string"}]},
        "f": {"nullable": True, "x-kubernetes-validations": [{"rule": "self > 1\n", "message": "café: - 1"}]},
    }
    found = {"openapi": "3.0.0", "components": {"schemas": {"x": {"properties": properties}}}, "paths": {}}
    assert decode_document(messages.V3.encode(found), v3=True) == found
    negative = {"swagger": "2.0", "definitions": {"x": {"minItems": -1, "additionalProperties": False}}}
    assert decode_document(messages.V2.encode(negative), v3=False) == negative


@pytest.mark.parametrize(
    "wrong",
    [
        {"swagger": "2.0", "unknown": 1},
        {"definitions": {"x": {"oneOf": []}}},
        {"paths": {"/": {"parameters": [{"name": "a", "in": "header"}]}}},
        {"swagger": 2},
        {"definitions": []},
    ],
)
def test_documents_without_a_protobuf_form(wrong: Any) -> None:
    with pytest.raises(EncodeError):
        messages.V2.encode(wrong)
