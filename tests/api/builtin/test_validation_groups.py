"""Validation of the kinds outside core, apps and batch: one object, something wrong with it, and what is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kind_rules import NOW, Object, causes, context, create, refusals_of, update

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import builtin_registry

# -- networking -------------------------------------------------------------------------------------------------------

POLICIES = "networking.k8s.io/v1/networkpolicies"


def blocked(cidr: str, *exceptions: str) -> Object:
    peer = {"ipBlock": {"cidr": cidr, "except": list(exceptions)}}
    return {"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}}


@pytest.mark.parametrize(
    ("cidr", "problem"),
    [
        ("10.1.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("010.1.0.0/16", "must not have leading 0s in IP or prefix length"),
        ("10.1.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("10.1.0.7/16", "must not have bits set beyond the prefix length"),
        ("::ffff:10.1.0.0/120", "must not have an IPv4-mapped IPv6 address"),
    ],
)
def test_ranges_have_a_strict_form(cidr: str, problem: str) -> None:
    field = "spec.ingress[0].from[0].ipBlock.cidr"
    assert refusals_of(POLICIES, blocked(cidr)) == [f'{field}: Invalid value: "{cidr}": {problem}']


def test_a_range_that_was_allowed_once_stays() -> None:
    stored = create(POLICIES, blocked("10.1.0.0/16"))
    stored["spec"]["ingress"][0]["from"][0]["ipBlock"]["cidr"] = "10.1.0.9/16"
    assert update(POLICIES, stored, {"metadata": {"labels": {"a": "b"}}}).outcome is Outcome.STORE
    with pytest.raises(StatusError):
        update(POLICIES, stored, blocked("10.1.0.8/16"))


def test_an_exception_lies_within_its_range() -> None:
    field = "spec.ingress[0].from[0].ipBlock.except[0]"
    for outside in ("10.2.0.0/24", "10.1.0.0/16", "fd00::/64"):
        found = refusals_of(POLICIES, blocked("10.1.0.0/16", outside))
        assert found == [f'{field}: Invalid value: "{outside}": must be a strict subset of `cidr`']


def test_an_ingress_keeps_a_secret_name_of_the_past() -> None:
    path = "networking.k8s.io/v1/ingresses"
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    stored = create(path, {"spec": {"defaultBackend": backend}})
    stored["spec"]["tls"] = [{"secretName": "Not_A_Name"}]
    assert update(path, stored, {"metadata": {"labels": {"a": "b"}}}).outcome is Outcome.STORE
    assert refusals_of(path, {"spec": {"tls": [{"secretName": "Not_A_Name"}], "defaultBackend": backend}})[
        0
    ].startswith("spec.tls[0].secretName: Invalid value")


def test_the_old_way_to_name_a_class_is_told_of() -> None:
    path = "networking.k8s.io/v1/ingresses"
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    body = {
        "metadata": {"name": "a", "annotations": {"kubernetes.io/ingress.class": "x"}},
        "spec": {"defaultBackend": {"resource": {"kind": "Bucket", "name": "b"}}},
    }
    obj, _ = pipeline.decode_object(rt, body, context(path), create=True)
    assert list(pipeline.prepare_create(rt, obj, context(path)).warnings) == [
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    ]


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        ("", "Required value"),
        ("acme.example.com", "must be a domain-prefixed path"),
        ("Acme/x", "a lowercase RFC 1123 subdomain"),
        ("acme.example.com/a b", "Invalid path (regex used for validation is"),
    ],
)
def test_a_controller_of_a_class(controller: str, problem: str) -> None:
    found = refusals_of("networking.k8s.io/v1/ingressclasses", {"spec": {"controller": controller}})
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("10.0.0.999", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("10.0.0.09", "must not have leading 0s"),
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
    ],
)
def test_an_address_is_its_own_name(name: str, problem: str) -> None:
    body = {"spec": {"parentRef": {"resource": "services", "name": "web", "namespace": "shop"}}}
    found = refusals_of("networking.k8s.io/v1/ipaddresses", body, name=name)
    assert found == [f'metadata.name: Invalid value: "{name}": {problem}']


def test_three_ranges_are_too_many() -> None:
    ranges = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]
    assert refusals_of("networking.k8s.io/v1/servicecidrs", {"spec": {"cidrs": ranges}}) == [
        'spec.cidrs: Invalid value: ["10.1.0.0/16","10.2.0.0/16","10.3.0.0/16"]: may only hold up to 2 values'
    ]


# -- endpoint slices --------------------------------------------------------------------------------------------------

SLICES = "discovery.k8s.io/v1/endpointslices"


def test_endpoints_of_another_kind() -> None:
    def slice_of(*addresses: str) -> Object:
        return {"addressType": "IPv4", "endpoints": [{"addresses": list(addresses)}], "ports": []}

    place = "endpoints[0].addresses"
    assert refusals_of(SLICES, slice_of("2001:db8::7")) == [
        f'{place}: Invalid value: "2001:db8::7": must be an IPv4 address'
    ]
    assert refusals_of(SLICES, slice_of("web")) == [
        f'{place}[0]: Invalid value: "web": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
    ]
    assert refusals_of(SLICES, slice_of("10.0.0.01")) == [
        f'{place}[0]: Invalid value: "10.0.0.01": must not have leading 0s'
    ]


def test_hints_are_few_and_different() -> None:
    hints = {"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": f"n{index}"} for index in range(9)]}
    body = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "hints": hints}], "ports": []}
    assert refusals_of(SLICES, body) == [
        'endpoints[0].hints.forZones[1].name: Duplicate value: "a"',
        "endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items",
    ]


def test_labels_of_a_slice_are_counted() -> None:
    stored = create(SLICES, {"addressType": "IPv4", "endpoints": [], "ports": []})
    assert stored["metadata"]["generation"] == 1
    changed = update(SLICES, stored, {"metadata": {"labels": {"a": "b"}}}).object
    assert changed["metadata"]["generation"] == 2
    noted = update(SLICES, stored, {"metadata": {"annotations": {"a": "b"}}}).object
    assert noted["metadata"]["generation"] == 1


def test_topology_of_the_past_is_dropped() -> None:
    endpoint = {"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": "n1"}}
    stored = create(SLICES, {"addressType": "IPv4", "endpoints": [endpoint], "ports": []})
    assert stored["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]


# -- events -----------------------------------------------------------------------------------------------------------

EVENTS = "events.k8s.io/v1/events"
EVENT = {
    "eventTime": "2026-03-04T05:06:07.000001Z",
    "reportingController": "example.com/watcher",
    "reportingInstance": "w-1",
    "action": "Looking",
    "reason": "Seen",
    "type": "Normal",
    "note": "all quiet",
    "regarding": {"kind": "ConfigMap", "namespace": "shop", "name": "c", "apiVersion": "v1"},
}


def test_events_written_anew_change_by_their_series() -> None:
    stored = create(EVENTS, EVENT)
    series = {"count": 2, "lastObservedTime": "2026-03-04T05:07:00.000000Z"}
    rt = builtin_registry().lookup(*EVENTS.split("/"))
    assert rt is not None
    held = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}
    shown = pipeline.to_request_version(rt, copy.deepcopy(held))
    ctx = context(EVENTS, name="one")

    def changed(**members: Any) -> Prepared:
        new, _ = pipeline.decode_object(rt, {**copy.deepcopy(shown), **members}, ctx, create=False)
        return pipeline.prepare_update(rt, held, new, ctx)

    assert changed(series=series).object["series"]["count"] == 2
    with pytest.raises(StatusError) as refused:
        changed(series={**series, "count": 1}, note="louder")
    assert causes(refused.value) == [
        'series.count: Invalid value: "": should be at least 2',
        'message: Invalid value: "louder": field is immutable',
    ]
    assert "group" not in (refused.value.details or {})


# -- storage ----------------------------------------------------------------------------------------------------------


def test_a_node_of_drivers() -> None:
    path = "storage.k8s.io/v1/csinodes"
    driver = {"name": "d.example.com", "nodeID": "n", "topologyKeys": ["zone", "zone"]}
    assert refusals_of(path, {"spec": {"drivers": [driver]}}) == ['spec.drivers[0]: Duplicate value: "zone"']
    driver = {"name": "d.example.com", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 5}}
    stored = create(path, {"spec": {"drivers": [driver]}})
    grown = update(path, stored, {"spec": {"drivers": [{**driver, "allocatable": {"count": 9}}]}})
    assert grown.object["spec"]["drivers"][0]["allocatable"] == {"count": 9}


def test_drivers() -> None:
    path = "storage.k8s.io/v1/csidrivers"
    token = {"audience": "a", "expirationSeconds": 599}
    spec = {"tokenRequests": [token, token], "volumeLifecycleModes": ["Sometimes"]}
    assert refusals_of(path, {"spec": spec}) == [
        "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        'spec.tokenRequests[1].audience: Duplicate value: "a"',
        'spec.volumeLifecycleModes: Unsupported value: "Sometimes": supported values: "Persistent", "Ephemeral"',
    ]
    (found,) = refusals_of(path, {"spec": {"serviceAccountTokenInSecrets": True}})
    assert found.startswith("spec.serviceAccountTokenInSecrets: Invalid value: true")
    assert (
        "preventPodSchedulingIfMissing" not in create(path, {"spec": {"preventPodSchedulingIfMissing": True}})["spec"]
    )


def test_attachments() -> None:
    path = "storage.k8s.io/v1/volumeattachments"
    body = {"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}
    assert refusals_of(path, body, {"spec": {"nodeName": "m"}}) == [
        'spec: Invalid value: {"Attacher":"d.example.com","Source":{"PersistentVolumeName":"v",'
        '"InlineVolumeSpec":null},"NodeName":"m"}: field is immutable'
    ]
    long = {"attached": False, "attachError": {"message": "x" * 1025}}
    assert refusals_of(path, body, {"status": long}, below="status") == [
        "status.attachError.message: Too long: may not be more than 262144 bytes"
    ]
    stored = create(path, body)
    attached = {"status": {"attached": True}, "metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "m"}}
    after = update(path, stored, attached, "status").object
    assert after["status"] == {"attached": True}
    assert after["spec"] == stored["spec"]
    assert "labels" not in after["metadata"]


def test_leases_drop_what_is_of_a_feature_that_is_off() -> None:
    spec = {"holderIdentity": "h", "strategy": "OldestEmulationVersion", "preferredHolder": "p"}
    assert create("coordination.k8s.io/v1/leases", {"spec": spec})["spec"] == {"holderIdentity": "h"}


# -- governing --------------------------------------------------------------------------------------------------------


def test_a_local_api_is_always_there() -> None:
    path = "apiregistration.k8s.io/v1/apiservices"
    spec = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    local = create(path, {"spec": spec}, "v1.x.example.com")
    assert local["status"]["conditions"] == [
        {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
    ]
    away = create(path, {"spec": {**spec, "service": {"name": "s", "namespace": "n"}}}, "v1.x.example.com")
    assert away["status"] == {}
    wrong = {"conditions": [{"type": "Available", "status": "Perhaps"}]}
    assert refusals_of(path, {"spec": spec}, {"status": wrong}, name="v1.x.example.com", below="status") == [
        'status.conditions[0].status: Unsupported value: "Perhaps": supported values: "True", "False", "Unknown"'
    ]


def test_what_every_clusters_flow_control_must_say() -> None:
    path = "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 7, "limitResponse": {"type": "Reject"}}}
    (found,) = refusals_of(path, {"spec": spec}, name="catch-all")
    assert found.endswith("spec of 'catch-all' must equal the fixed value")
    exempt = create(path, {"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 3}}}, "exempt")
    assert exempt["spec"]["exempt"]["nominalConcurrencyShares"] == 3
    twice = {"conditions": [{"type": "A", "status": "True"}, {"type": "A", "status": "True"}]}
    body = {"spec": spec}
    assert refusals_of(path, body, {"status": twice}, below="status") == [
        'status.conditions[1].type: Duplicate value: "A"'
    ]


def test_tolerations_of_a_class_are_told_apart_by_what_they_tolerate() -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    both = [{**toleration, "tolerationSeconds": 5}, {**toleration, "tolerationSeconds": 6}]
    found = refusals_of("node.k8s.io/v1/runtimeclasses", {"handler": "h", "scheduling": {"tolerations": both}})
    assert found == [
        'scheduling.tolerations[1]: Duplicate value: {"Key":"k","Operator":"Exists","Value":"","Effect":"NoExecute",'
        '"TolerationSeconds":6}'
    ]


# -- admission --------------------------------------------------------------------------------------------------------

MATCH = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "DELETE"]}
    ]
}


def test_nothing_is_left_to_change_of_what_is_deleted() -> None:
    spec = {
        "matchConstraints": MATCH,
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}}],
    }
    assert refusals_of("admissionregistration.k8s.io/v1/mutatingadmissionpolicies", {"spec": spec}) == [
        'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
        '"CONNECT", "CREATE", "UPDATE"',
        "spec.mutations[0].jsonPatch.expression: Required value",
    ]


def test_variables_have_names_an_expression_can_say() -> None:
    spec = {
        "matchConstraints": MATCH,
        "variables": [{"name": "loop", "expression": "1"}, {"name": "a-b", "expression": "1"}],
        "validations": [{"expression": "true"}],
    }
    found = refusals_of("admissionregistration.k8s.io/v1/validatingadmissionpolicies", {"spec": spec})
    assert found == [
        'spec.variables[0].name: Invalid value: "loop": name is not a valid CEL identifier',
        'spec.variables[1].name: Invalid value: "a-b": name is not a valid CEL identifier',
    ]


def test_parameters_are_chosen_one_way() -> None:
    reference = {"name": "p", "selector": {}, "parameterNotFoundAction": "Shrug"}
    spec = {"policyName": "x", "paramRef": reference, "validationActions": ["Deny"]}
    assert refusals_of("admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", {"spec": spec}) == [
        "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
        "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        'spec.paramRef.parameterNotFoundAction: Unsupported value: "Shrug": supported values: "Deny", "Allow"',
    ]


def test_labels_that_have_got_other_names_are_told_of() -> None:
    zone = "failure-domain.beta.kubernetes.io/zone"
    told_of = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    topology = {"matchLabelExpressions": [{"key": zone, "values": ["a"]}]}
    for path, body, field in (
        (
            "storage.k8s.io/v1/storageclasses",
            {"provisioner": "p.example.com", "allowedTopologies": [topology]},
            "allowedTopologies[0].matchLabelExpressions[0].key",
        ),
        (
            "storage.k8s.io/v1/csistoragecapacities",
            {"storageClassName": "s", "nodeTopology": {"matchExpressions": [{"key": zone, "operator": "Exists"}]}},
            "nodeTopology.matchExpressions[0].key",
        ),
        (
            "node.k8s.io/v1/runtimeclasses",
            {"handler": "h", "scheduling": {"nodeSelector": {zone: "a"}}},
            "scheduling.nodeSelector",
        ),
    ):
        rt = builtin_registry().lookup(*path.split("/"))
        assert rt is not None
        obj, _ = pipeline.decode_object(rt, {**body, "metadata": {"name": "a"}}, context(path), create=True)
        assert list(pipeline.prepare_create(rt, obj, context(path)).warnings) == [f"{field}: {told_of}"]
