"""Structural types, and the check of objects against them."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.kinds import reading
from kubechronicle.api.schema import check, empties, types, values
from kubechronicle.api.values import quantity

CORE = "io.k8s.api.core.v1."
APPS = "io.k8s.api.apps.v1."


def checked(definition: str, obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    unknown = check.check(obj, types.object_type(definition))
    return obj, unknown


def test_nulls_empty_values_and_unknown_fields_go() -> None:
    obj = {
        "metadata": {"name": "a", "label": {"x": "y"}, "labels": {}, "creationTimestamp": None},
        "dta": {},
        "data": {},
    }
    assert checked(CORE + "ConfigMap", obj) == ({"metadata": {"name": "a"}}, ["metadata.label", "dta"])


def test_structs_stay_even_when_empty() -> None:
    obj, _ = checked(APPS + "Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
    assert obj["status"] == {}
    assert obj["spec"]["strategy"] == {}
    assert obj["spec"]["selector"] is None
    assert obj["spec"]["template"]["metadata"] == {}
    assert obj["spec"]["template"]["spec"]["containers"] == [{"name": "c", "resources": {}}]


def test_zero_of_a_pointer_stays_and_of_a_value_goes() -> None:
    obj, _ = checked(APPS + "Deployment", {"spec": {"replicas": 0, "minReadySeconds": 0, "paused": False}})
    assert obj["spec"]["replicas"] == 0
    assert "minReadySeconds" not in obj["spec"]
    assert "paused" not in obj["spec"]
    pod, _ = checked(CORE + "Pod", {"spec": {"hostNetwork": False, "automountServiceAccountToken": False}})
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "hostNetwork" not in pod["spec"]


def test_times_that_are_not_set_are_null() -> None:
    obj, _ = checked(APPS + "ReplicaSet", {"status": {"conditions": [{"type": "T", "status": "True"}]}})
    assert obj["status"]["conditions"][0]["lastTransitionTime"] is None
    assert obj["status"]["replicas"] == 0


def test_checking_twice_changes_nothing() -> None:
    obj, _ = checked(CORE + "Event", {"metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.600000+01:00"})
    again = check.check(obj, types.object_type(CORE + "Event"))
    assert again == []
    assert obj["eventTime"] == "2026-01-02T02:04:05.600000Z"
    assert obj["firstTimestamp"] is None


def test_unknown_fields_are_reported_with_their_path_in_document_order() -> None:
    containers = [{"name": "a"}, {"name": "b", "imagePolicy": "x", "env": [{"nme": "y"}]}]
    _, unknown = checked(CORE + "Pod", {"spec": {"containers": containers, "repl": 1}, "zzz": 1})
    assert unknown == ["spec.containers[1].imagePolicy", "spec.containers[1].env[0].nme", "spec.repl", "zzz"]


@pytest.mark.parametrize(
    ("definition", "obj", "message"),
    [
        (
            CORE + "ConfigMap",
            {"data": {"k": 5}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            CORE + "ConfigMap",
            {"data": "x"},
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            APPS + "Deployment",
            {"spec": {"replicas": 1.5}},
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            CORE + "Pod",
            {"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}},
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort "
            "of type int32",
        ),
        (
            CORE + "Pod",
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            CORE + "Pod",
            {"spec": {"restartPolicy": 1}},
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (CORE + "Secret", {"data": {"k": "abc"}}, "illegal base64 data at input byte 0"),
        (CORE + "Secret", {"data": {"k": "*"}}, "illegal base64 data at input byte 0"),
        (CORE + "Secret", {"data": {"k": "YWé="}}, "illegal base64 data at input byte 2"),
        (
            CORE + "Secret",
            {"data": {"k": 1}},
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
    ],
)
def test_wrong_types_have_gos_messages(definition: str, obj: dict[str, Any], message: str) -> None:
    with pytest.raises(check.TypeMismatch) as caught:
        checked(definition, obj)
    assert str(caught.value) == message


def test_null_inside_a_map_is_the_zero_value() -> None:
    assert checked(CORE + "ConfigMap", {"data": {"k": None}})[0]["data"] == {"k": ""}


def test_a_null_amount_of_a_resource_is_zero() -> None:
    obj, _ = checked(CORE + "ResourceRequirements", {"limits": {"cpu": None}, "requests": {"cpu": "1"}})
    assert obj == {"limits": {"cpu": "0"}, "requests": {"cpu": "1"}}


def test_every_definition_compiles() -> None:
    for declared in reading.release().types():
        found = types.definition_type(declared.definition) if declared.is_struct else None
        if isinstance(found, types.ObjectType):
            assert found.fields.keys() == declared.members.keys(), declared.definition


def test_a_struct_without_fields_takes_none() -> None:
    given = {"spec": {"versions": [{"subresources": {"status": {"x": 1}}}]}}
    checked_, unknown = checked(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition", given
    )
    assert checked_["spec"]["versions"][0]["subresources"] == {"status": {}}
    assert unknown == ["spec.versions[0].subresources.status.x"]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("0", "0"),
        ("0.5Gi", "512Mi"),
        ("128974848", "128974848"),
        ("100000000m", "100k"),
        ("-1.5", "-1500m"),
        ("1.0000000001", "1000000001n"),
    ],
)
def test_quantities_have_one_spelling(given: str, canonical: str) -> None:
    assert quantity.canonical(given) == canonical
    assert quantity.value_of(canonical) == pytest.approx(quantity.value_of(given))


@pytest.mark.parametrize(
    ("number", "text"), [(1e20, "100E"), (123.0, "123"), (1.5, "1500m"), (1e21, "1e+21"), (-1e17, "-100P")]
)
def test_floats_are_quantities_as_go_writes_them(number: float, text: str) -> None:
    assert values.quantity_text(number) == text


@pytest.mark.parametrize("text", ["", "abc", "1Q", "1 Gi", "--1", "1.2.3"])
def test_malformed_quantities(text: str) -> None:
    with pytest.raises(quantity.QuantityError):
        quantity.canonical(text)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times_are_whole_seconds_in_utc(given: str, canonical: str | None) -> None:
    assert values.time(given) == canonical


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yesterday", 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'),
        ("2026-13-01T00:00:00Z", 'parsing time "2026-13-01T00:00:00Z": month out of range'),
    ],
)
def test_malformed_times(given: str, message: str) -> None:
    with pytest.raises(values.ValueDecodeError) as caught:
        values.time(given)
    assert caught.value.text == message


def test_microtimes_need_six_digits() -> None:
    with pytest.raises(values.ValueDecodeError, match=r'cannot parse "\.1Z" as "\.000000"'):
        values.microtime("2026-01-02T03:04:05.1Z")


@pytest.mark.parametrize(
    ("definition", "value", "where"),
    [
        ("core.v1.Pod", {"spec": {"volumes": [{"emptyDir": "x"}]}}, "Volume.spec.volumes.VolumeSource.emptyDir"),
        (
            "networking.v1.Ingress",
            {"spec": {"rules": [{"http": {"paths": {}}}]}},
            "HTTPIngressRuleValue.spec.rules.IngressRuleValue.http.paths",
        ),
        ("core.v1.Service", {"spec": {"ipFamilies": [5]}}, "ServiceSpec.spec.ipFamilies of type v1.IPFamily"),
        ("core.v1.Service", {"spec": {"ipFamilies": {}}}, "ServiceSpec.spec.ipFamilies of type []v1.IPFamily"),
        ("core.v1.ResourceQuota", {"spec": {"hard": []}}, "ResourceQuotaSpec.spec.hard of type v1.ResourceList"),
        (
            "certificates.v1.CertificateSigningRequest",
            {"spec": {"extra": {"a": "b"}}},
            "CertificateSigningRequestSpec.spec.extra of type v1.ExtraValue",
        ),
    ],
)
def test_errors_name_embedded_structs_and_named_types(definition: str, value: dict[str, Any], where: str) -> None:
    with pytest.raises(check.TypeMismatch) as wrong:
        check.check(value, types.object_type(f"io.k8s.api.{definition}"))
    assert f"into Go struct field {where}" in str(wrong.value)


def test_an_empty_list_stays_until_it_is_stored_as_null() -> None:
    kind = types.object_type("io.k8s.api.rbac.v1.Role")
    role: dict[str, Any] = {"metadata": {"finalizers": []}, "rules": []}
    check.check(role, kind)
    assert role == {"metadata": {}, "rules": []}
    empties.make_null(role, kind)
    assert role == {"metadata": {}, "rules": None}
    below: dict[str, Any] = {"metadata": {}, "rules": [{"verbs": [], "resources": ["a"]}, {"verbs": ["get"]}]}
    empties.make_null(below, kind)
    assert below["rules"] == [{"verbs": None, "resources": ["a"]}, {"verbs": ["get"]}]
