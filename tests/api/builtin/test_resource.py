"""Rules of resource.k8s.io: claims, their allocation, classes and slices."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pipeline_writes import NOW, Object, create, rejections_of, update

from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.resource import slice_validation
from kubechronicle.api.builtin.resource.devices import skipped_operations
from kubechronicle.api.builtin.resource.resourceslice import slice_warnings
from kubechronicle.api.pipeline.pipeline import Outcome

CLAIMS = "resource.k8s.io/v1/resourceclaims"
CLASSES = "resource.k8s.io/v1/deviceclasses"
SLICES = "resource.k8s.io/v1/resourceslices"
TEMPLATES = "resource.k8s.io/v1/resourceclaimtemplates"
EXACTLY = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
UID = "0b9c6a4e-7b1e-4c39-9a53-1d2f3a4b5c6d"


def claim(*requests: Object, **devices: Any) -> Object:
    return {"spec": {"devices": {"requests": list(requests) or [EXACTLY], **devices}}}


def resource_slice(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": "d.example.com", "pool": pool, "nodeName": "n", "devices": list(devices), **spec}}


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ({"name": "gpu"}, ["spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable`"]),
        (
            {**EXACTLY, "firstAvailable": [{"name": "a", "deviceClassName": "b"}]},
            ["spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is "],
        ),
        (
            {"name": "GPU", "exactly": {"deviceClassName": ""}},
            [
                'spec.devices.requests[0].name: Invalid value: "GPU": a lowercase RFC 1123 label',
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
            ],
        ),
        (
            {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All", "count": 2}},
            ["spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is"],
        ),
        (
            {
                "name": "gpu",
                "exactly": {"deviceClassName": "gpu", "tolerations": [{"operator": "Exists", "value": "v"}]},
            },
            ['spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "v": must be empty for operator'],
        ),
        (
            {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "x" * 10241}}]}},
            ["spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may "],
        ),
    ],
)
def test_requests(request_: Object, found: list[str]) -> None:
    rejected = rejections_of(CLAIMS, claim(request_))
    assert len(rejected) == len(found)
    assert all(one.startswith(wanted) for one, wanted in zip(rejected, found, strict=True)), rejected


def test_a_request_of_v1beta1_without_a_class_has_no_default_mode() -> None:
    refused = rejections_of(
        "resource.k8s.io/v1beta1/resourceclaims", claim({"name": "a", "tolerations": [{"key": "k"}]})
    )
    assert refused[:2] == [
        "spec.devices.requests[0].exactly.deviceClassName: Required value",
        'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "": supported values: "All", "ExactCount"',
    ]


def test_request_names_must_differ() -> None:
    (found,) = rejections_of(CLAIMS, claim(EXACTLY, EXACTLY))
    assert found.startswith('spec.devices.requests[1]: Duplicate value: {"name":"gpu","exactly":')
    many = [{**EXACTLY, "name": f"g{index}"} for index in range(33)]
    assert rejections_of(CLAIMS, claim(*many)) == ["spec.devices.requests: Too many: 33: must have at most 32 items"]


def test_constraints_need_requests_and_one_attribute() -> None:
    choice = {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]}
    fine = claim(choice, constraints=[{"requests": ["any/big"], "matchAttribute": "d.example.com/model"}])
    assert create(CLAIMS, fine)["spec"]["devices"]["constraints"]
    wrong = claim(choice, constraints=[{"requests": ["any/small"]}, {"matchAttribute": "model"}])
    assert rejections_of(CLAIMS, wrong) == [
        'spec.devices.constraints[0].requests[0]: Invalid value: "any/small": must be the name of a request in the '
        "claim or the name of a request and a subrequest separated by '/'",
        'spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is '
        "required, but multiple fields are set",
        'spec.devices.constraints[1].matchAttribute: Invalid value: "model": a fully qualified name must be a domain '
        "and a name separated by a slash",
    ]


def test_driver_parameters_must_be_objects() -> None:
    def config(parameters: Any) -> Object:
        return claim(config=[{"opaque": {"driver": "d.example.com", "parameters": parameters}}])

    field = "spec.devices.config[0].opaque.parameters"
    assert rejections_of(CLAIMS, config([1])) == [
        f'{field}: Invalid value: "<value omitted>": must be a valid JSON object'
    ]
    assert rejections_of(CLAIMS, config({"a": "x" * 10240})) == [f"{field}: Too long: may not be more than 10240 bytes"]
    assert rejections_of(CLAIMS, claim(config=[{}])) == ["spec.devices.config[0].opaque: Required value"]


def test_templates_have_labels() -> None:
    body = {"spec": {"metadata": {"labels": {"a b": "c"}}, "spec": claim()["spec"]}}
    assert rejections_of(TEMPLATES, body)[0].startswith('spec.metadata.labels: Invalid value: "a b"')


def test_templates_have_no_other_metadata() -> None:
    meta = {
        "finalizers": ["a/b"],
        "deletionGracePeriodSeconds": 0,
        "uid": "u",
        "name": "",
        "selfLink": "l",
        "generation": 0,
    }
    assert rejections_of(TEMPLATES, {"spec": {"metadata": meta}}) == [
        f"spec.metadata.{name}: Forbidden: cannot be set"
        for name in ("selfLink", "uID", "deletionGracePeriodSeconds", "finalizers")
    ]
    assert rejections_of(TEMPLATES, {"spec": {}}, {"spec": {"metadata": {"name": "a"}}}) == [
        "spec.metadata.name: Forbidden: cannot be set",
        'spec: Invalid value: {"name":"a","Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}: '
        "field is immutable",
    ]


def test_classes_name_extended_resources() -> None:
    found = rejections_of(CLASSES, {"spec": {"extendedResourceName": "cpu"}})
    detail = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
    assert found == [f'spec.extendedResourceName: Invalid value: "cpu": {detail}']


# -- allocation -------------------------------------------------------------------------------------------------------

RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "n", "device": "gpu-0"}
ALLOCATED = {"allocation": {"devices": {"results": [RESULT]}}}
USER = {"resource": "pods", "name": "p", "uid": UID}


def test_consumers_need_an_allocation() -> None:
    assert rejections_of(CLAIMS, claim(), {"status": {"reservedFor": [USER]}}, below="status") == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]
    stored = create(CLAIMS, claim())
    after = update(CLAIMS, stored, {"status": {**ALLOCATED, "reservedFor": [USER]}}, "status")
    assert after.outcome is Outcome.STORE
    after.object["metadata"]["deletionTimestamp"] = "2026-03-04T05:06:07Z"
    after.object["metadata"]["finalizers"] = ["example.com/x"]
    one_more = {"status": {**ALLOCATED, "reservedFor": [USER, {**USER, "uid": "other"}]}}
    with pytest.raises(Exception, match="new entries may not be added"):
        update(CLAIMS, after.object, one_more, "status")


def test_a_status_update_keeps_the_time_of_deletion() -> None:
    stored = create(CLAIMS, claim())
    status = {"metadata": {"deletionTimestamp": "2026-03-04T05:06:07Z"}, "status": {**ALLOCATED, "reservedFor": [USER]}}
    after = update(CLAIMS, stored, status, "status")
    assert after.outcome is Outcome.STORE
    assert "deletionTimestamp" not in after.object["metadata"]


def test_allocation_is_immutable_until_removed() -> None:
    driver = {**RESULT, "conditions": [], "data": {"ip": "x"}}
    del driver["request"]
    status = {**ALLOCATED, "devices": [driver]}
    stored = update(CLAIMS, create(CLAIMS, claim()), {"status": status}, "status").object
    changed = {"status": {"allocation": {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}}}
    with pytest.raises(Exception, match="field cannot be modified once set"):
        update(CLAIMS, stored, changed, "status")
    gone = update(CLAIMS, stored, {"status": {"allocation": None}}, "status").object
    assert gone["status"] == {}


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"request": "x"}, 'request: Invalid value: "x": must be the name of a request'),
        ({"pool": ""}, "pool: Required value"),
        ({"shareID": "nope"}, 'shareID: Invalid value: "nope": must be a lowercase UUID'),
        ({"shareID": UID.upper()}, f'shareID: Invalid value: "{UID.upper()}": must be a lowercase UUID'),
        ({"bindingConditions": ["a"]}, "bindingFailureConditions: Invalid value: null: bindingFailureConditions are"),
        ({"tolerations": [{"key": "k", "value": "a b"}]}, 'tolerations[0].value: Invalid value: "a b"'),
        ({"tolerations": [{"key": "a b"}]}, 'tolerations[0].key: Invalid value: "a b"'),
    ],
)
def test_results(result: Object, found: str) -> None:
    status = {"allocation": {"devices": {"results": [{**RESULT, **result}]}}}
    (rejected,) = rejections_of(CLAIMS, claim(), {"status": status}, below="status")
    assert rejected.startswith(f"status.allocation.devices.results[0].{found}")


def test_drivers_report_only_allocated_devices() -> None:
    device = {"driver": "d.example.com", "pool": "n", "device": "other", "conditions": [{"type": "Ready"}]}
    network = {"ips": ["10.0.0.1"], "interfaceName": "e" * 257}
    status = {**ALLOCATED, "devices": [{**device, "networkData": network}]}
    assert rejections_of(CLAIMS, claim(), {"status": status}, below="status") == [
        'status.devices[0]: Invalid value: {"Driver":"d.example.com","Pool":"n","Device":"other","ShareID":""}: must '
        "be an allocated device in the claim",
        "status.devices[0].conditions[0].status: Required value",
        "status.devices[0].conditions[0].lastTransitionTime: Required value",
        "status.devices[0].conditions[0].reason: Required value",
        'status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid address in CIDR form, '
        "(e.g. 10.9.8.7/24 or 2001:db8::1/64)",
        "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
    ]


def test_what_is_not_prepared_is_not_cleaned_up() -> None:
    detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
    assert [str(cause) for cause in skipped_operations({"skipNodeOperations": ["NodePrepareResources"]}, "spec")] == [
        f'spec.skipNodeOperations: Invalid value: ["NodePrepareResources"]: {detail}'
    ]
    for operations in (["*", "NodePrepareResources"], ["NodeUnprepareResources", "NodePrepareResources"], []):
        assert skipped_operations({"skipNodeOperations": operations}, "spec") == []


# -- slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"nodeName": None}, ["spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, "]),
        ({"allNodes": True}, ['spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`']),
        ({"allNodes": False}, ["spec.allNodes: Invalid value: false: must be either unset or set to true"]),
        ({"driver": ""}, ["spec.driver: Required value"]),
        (
            {"pool": {"name": "A", "generation": -1, "resourceSliceCount": 0}},
            ["spec.pool.name: Invalid value", "spec.pool.resourceSliceCount: Invalid", "spec.pool.generation: Invalid"],
        ),
        (
            {"sharedCounters": [{"name": "c"}], "devices": [{"name": "d"}]},
            ['spec: Invalid value: "": only one of', "spec.sharedCounters[0].counters: Required value"],
        ),
    ],
)
def test_slices(spec: Object, found: list[str]) -> None:
    rejected = rejections_of(SLICES, resource_slice(**spec))
    assert len(rejected) == len(found)
    assert all(one.startswith(wanted) for one, wanted in zip(rejected, found, strict=True)), rejected


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ({"attributes": {"model": {}}}, 'attributes[model]: Invalid value: "": must specify one of: `int`'),
        (
            {"attributes": {"model": {"int": 1, "string": "x"}}},
            'attributes[model]: Invalid value: "{int, string}": must specify exactly one of: `int`',
        ),
        ({"attributes": {"a": {"version": "1.2"}}}, 'attributes[a].version: Invalid value: "1.2": must be a string'),
        ({"attributes": {"/a": {"int": 1}}}, 'attributes: Invalid value: "": the domain must not be empty'),
        ({"attributes": {"9": {"int": 1}}}, 'attributes: Invalid value: "9": a valid C identifier must start'),
        ({"taints": [{"key": "k", "effect": "Maybe"}]}, 'taints[0].effect: Unsupported value: "Maybe": supported'),
        ({"allNodes": True}, ": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set"),
        (
            {"capacity": {"m": {"value": "1Gi", "requestPolicy": {"default": "1"}}}},
            "capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
        ),
        ({"consumesCounters": [{"counterSet": "c"}]}, "consumesCounters[0].counters: Required value"),
    ],
)
def test_devices(device: Object, found: str) -> None:
    (rejected,) = rejections_of(SLICES, resource_slice({"name": "gpu-0", **device}))
    assert rejected.startswith(f"spec.devices[0]{'' if found[0] == ':' else '.'}{found}")


def test_an_empty_selector_has_an_error_without_a_place() -> None:
    (found,) = rejections_of(CLASSES, {"spec": {"selectors": [{"cel": {"expression": ""}}]}})
    assert "ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting" in found
    assert found.endswith("IDENTIFIER}")


def test_devices_have_few_values() -> None:
    attributes = {"a": {"ints": [*range(40)]}, **{f"b{index}": {"int": 1} for index in range(9)}}
    found = slice_validation.resource_slice(resource_slice({"name": "d", "attributes": attributes}))
    assert [(cause.field, cause.message) for cause in found] == [
        ("spec.devices[0]", "Invalid value: 49: the total number of attribute values must not exceed 48")
    ]


def test_request_policy_of_capacity() -> None:
    policy = {"default": "3", "validRange": {"min": "2", "max": "9", "step": "2"}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {"m": {"value": "8", "requestPolicy": policy}}}
    field = "spec.devices[0].capacity[m].requestPolicy.validRange"
    assert rejections_of(SLICES, resource_slice(device)) == [
        f'{field}.max: Invalid value: "9": max is larger than capacity value: 8',
        f'{field}.step: Invalid value: "3": value is not a multiple of a given step (2) from (2)',
        f'{field}.step: Invalid value: "9": value is not a multiple of a given step (2) from (2)',
    ]
    chosen = copy.deepcopy(device)
    chosen["capacity"]["m"]["requestPolicy"] = {"default": "5", "validValues": ["4", "2", "9"]}
    field = "spec.devices[0].capacity[m].requestPolicy.validValues"
    assert rejections_of(SLICES, resource_slice(chosen)) == [
        f'{field}[1]: Invalid value: "2": values must be sorted in ascending order',
        f'{field}[2]: Invalid value: "9": option is larger than capacity value: 8',
        f'{field}: Invalid value: "5": default value is not valid according to the requestPolicy',
    ]


def test_driver_pool_and_node_are_immutable() -> None:
    stored = create(SLICES, resource_slice({"name": "gpu-0"}))
    assert stored["metadata"]["generation"] == 1
    more = update(SLICES, stored, {"spec": {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}})
    assert more.object["metadata"]["generation"] == 2
    assert rejections_of(SLICES, resource_slice(), {"spec": {"driver": "e.example.com", "nodeName": "m"}}) == [
        'spec.driver: Invalid value: "e.example.com": field is immutable',
        'spec.nodeName: Invalid value: "m": field is immutable',
    ]


def test_fields_of_disabled_features_are_dropped() -> None:
    device = {"name": "d", "attributes": {"a": {"int": 1, "ints": [1]}}, "nodeAllocatableResourceMappings": {"cpu": {}}}
    assert create(SLICES, resource_slice(device))["spec"]["devices"] == [{"name": "d", "attributes": {"a": {"int": 1}}}]


def test_fields_of_disabled_features_count_in_the_generation_before_they_are_dropped() -> None:
    stored = create(SLICES, resource_slice({"name": "d", "attributes": {"model": {"string": "x"}}}))
    with_list = resource_slice({"name": "d", "attributes": {"model": {"string": "x", "bools": [False]}}})
    new = copy.deepcopy(stored) | with_list
    done = update(SLICES, stored, new)
    assert (done.outcome, done.object["metadata"]["generation"]) == (Outcome.STORE, 2)
    assert done.object["spec"] == stored["spec"]


def test_taints_are_stamped() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    stored = create(
        SLICES, resource_slice({"name": "d", "taints": [taint, {**taint, "timeAdded": "2020-01-01T00:00:00Z"}]})
    )
    times = [each["timeAdded"] for each in stored["spec"]["devices"][0]["taints"]]
    assert times == [NOW, "2020-01-01T00:00:00Z"]
    changed = update(SLICES, stored, {"spec": {"devices": [{"name": "d", "taints": [taint]}]}}).object
    assert changed["spec"]["devices"][0]["taints"][0]["timeAdded"] == NOW


def test_a_changed_template_is_validated_and_printed_as_a_whole() -> None:
    path = "resource.k8s.io/v1/resourceclaimtemplates"
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    request = {"name": "r", "exactly": {"deviceClassName": "c", "tolerations": [toleration]}}
    before = {"spec": {"spec": {"devices": {"requests": [request]}}}}
    renamed = {**request, "name": "R"}
    after = {"spec": {"metadata": {"labels": {"b": "", "a": ""}}, "spec": {"devices": {"requests": [renamed]}}}}
    name, spec = rejections_of(path, before, after)
    assert name.startswith('spec.spec.devices.requests[0].name: Invalid value: "R"')
    assert spec.startswith('spec: Invalid value: {"labels":{"a":"","b":""},"Spec":{"Devices":')
    assert (
        '"Tolerations":[{"Key":"k","Operator":"Exists","Value":"","Effect":"NoExecute","TolerationSeconds":null}]'
        in spec
    )


def test_a_policy_without_a_default() -> None:
    policy = {"validRange": {"min": "1Mi"}}
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"m": {"value": "1Gi", "requestPolicy": policy}},
    }
    (found,) = rejections_of(SLICES, resource_slice(devices=[device]))
    assert found.endswith("requestPolicy.default: Required value: required when validRange is defined")


def test_a_driver_with_uppercase_letters_is_warned_about() -> None:
    assert slice_warnings({"spec": {"driver": "a.example.com"}}, None) == []
    assert slice_warnings({"spec": {"driver": "Always"}}, None) == [
        'spec.driver: driver names should be lowercase; "Always" contains uppercase characters'
    ]


def test_requested_capacities_are_printed_by_name() -> None:
    printed = record({"requests": {"b": "1", "a": "2"}}, "CapacityRequirements")
    assert list((printed or {})["Requests"]) == ["a", "b"]
    assert record({}, "CapacityRequirements") == {"Requests": None}
