"""Quotas that an object counts against, charges, and rejections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quota_objects import Object, container, evaluator, facts, pod

from kubechronicle.api.quota import amounts, evaluators, pods, scopes
from kubechronicle.api.quota.check import Exceeded, LimitedResource, QuotaWrite, ScopesNotCovered, charges, times, total
from kubechronicle.api.quota.evaluators import Measure
from kubechronicle.api.quota.scopes import Selector
from kubechronicle.api.values.steps import finish

# -- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "operator", "values", "matches"),
    [
        ((), "Exists", (), False),
        (("a",), "Exists", (), True),
        ((), "DoesNotExist", (), True),
        (("a",), "DoesNotExist", (), False),
        (("a",), "In", ("a", "b"), True),
        (("c",), "In", ("a", "b"), False),
        ((), "In", ("a",), False),
        ((), "NotIn", ("a",), True),
        (("a",), "NotIn", ("a",), False),
        (("a", "b"), "NotIn", ("a",), True),
        (("a",), "Like", ("a",), False),
    ],
)
def test_operators(held: tuple[str, ...], operator: str, values: tuple[str, ...], matches: bool) -> None:
    assert Selector("PriorityClass", operator, values).matches({"PriorityClass": frozenset(held)}) is matches


TERM = {"topologyKey": "zone", "namespaces": ["other"]}
ELSEWHERE = {"topologyKey": "zone", "namespaceSelector": {}}


@pytest.mark.parametrize(
    ("spec", "scopes_in"),
    [
        ({}, {"NotTerminating", "BestEffort"}),
        ({"activeDeadlineSeconds": 5}, {"Terminating", "BestEffort"}),
        ({"priorityClassName": "high"}, {"NotTerminating", "BestEffort", "PriorityClass"}),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            {"NotTerminating", "BestEffort", "CrossNamespacePodAffinity"},
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": ELSEWHERE}]
                    }
                }
            },
            {"NotTerminating", "BestEffort", "CrossNamespacePodAffinity"},
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}},
            {"NotTerminating", "BestEffort"},
        ),
    ],
)
def test_scopes_of_pods(spec: Object, scopes_in: set[str]) -> None:
    traits = pods.traits(pod({"name": "c"}, **spec))
    assert {scope for scope in traits if Selector(scope, "Exists").matches(traits)} == scopes_in


def test_a_pod_with_requests_is_not_best_effort() -> None:
    traits = pods.traits(pod(container(cpu="1")))
    assert (traits["BestEffort"], traits["NotBestEffort"]) == (False, True)


def test_attributes_classes_of_claims() -> None:
    claim = {
        "spec": {"volumeAttributesClassName": "a"},
        "status": {
            "currentVolumeAttributesClassName": "b",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "c"},
        },
    }
    assert evaluators.volume_traits(claim) == {"VolumeAttributesClass": frozenset("abc")}


def test_a_kind_without_scopes_is_in_none() -> None:
    quota = {"spec": {"scopes": ["Terminating"]}}
    assert not scopes.match(scopes.selectors_of(quota), {})
    assert scopes.match(scopes.selectors_of({"spec": {}}), {})


# -- the check --------------------------------------------------------------------------------------------------------


def quota(name: str, hard: Object, used_: Object | None = None, **spec: Any) -> Object:
    status: Object = {"hard": hard}
    if used_ is not None:
        status["used"] = used_
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}, "status": status}


def check(
    quotas: list[Object], new: Object, old: Object | None = None, *, resource: str = "pods", subresource: str = ""
) -> list[tuple[int, dict[str, str]]]:
    operation = "CREATE" if old is None else "UPDATE"
    write = QuotaWrite(operation=operation, subresource=subresource, new=new, old=old)
    return finish(charges(quotas, evaluator(resource), write, facts()))


def test_a_write_is_charged_to_every_quota_it_matches() -> None:
    found = check(
        [
            quota("a", {"pods": "2", "requests.memory": "3Gi"}, {"pods": "1", "requests.memory": "0"}),
            quota("b", {"services": "1"}, {"services": "0"}),
            quota("c", {"pods": "1"}, {"pods": "0"}, scopes=["Terminating"]),
            quota("d", {"cpu": "1", "secrets": "3"}, {"cpu": "250m", "secrets": "2"}, scopes=["NotTerminating"]),
            {"metadata": {"name": "new"}, "spec": {"hard": {"pods": "0"}}},
        ],
        pod(container(cpu="500m", memory="1Gi")),
    )
    assert found == [(0, {"pods": "2", "requests.memory": "1Gi"}), (3, {"cpu": "750m", "secrets": "2"})]


def test_a_rejection_lists_all_amounts() -> None:
    hard = {"pods": "5", "requests.memory": "2Gi", "requests.cpu": "1"}
    with pytest.raises(Exceeded) as refusal:
        check(
            [quota("q", hard, {"pods": "1", "requests.memory": "1536Mi", "requests.cpu": "600m"})],
            pod(container(cpu="600m", memory="1Gi")),
        )
    assert str(refusal.value) == (
        "exceeded quota: q, requested: requests.cpu=600m,requests.memory=1Gi, "
        "used: requests.cpu=600m,requests.memory=1536Mi, limited: requests.cpu=1,requests.memory=2Gi"
    )


def test_a_rejection_names_the_first_exceeded_quota() -> None:
    with pytest.raises(Exceeded, match="exceeded quota: b,"):
        check(
            [quota(name, {"pods": most}, {"pods": "1"}) for name, most in (("a", "2"), ("b", "1"), ("c", "1"))], pod()
        )


def test_containers_must_specify_limited_resources() -> None:
    hard = {"requests.cpu": "1", "limits.memory": "1Gi", "requests.ephemeral-storage": "1Gi"}
    spec = pod(container("b"), container("a", cpu="1"), init=(container("i", limits={"memory": "1"}),))
    with pytest.raises(Exceeded) as refusal:
        check([quota("q", hard, dict.fromkeys(hard, "0"))], spec)
    assert str(refusal.value) == "failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b,i"
    spec["spec"]["resources"] = {"limits": {"memory": "1Mi"}}
    assert check([quota("q", hard, dict.fromkeys(hard, "0"))], spec)  # the pod specifies it


def test_a_quota_without_usage_rejects() -> None:
    with pytest.raises(Exceeded) as refusal:
        check([quota("q", {"pods": "1", "count/pods": "2", "services": "1"}, {"pods": "0"})], pod())
    assert str(refusal.value) == "status unknown for quota: q, resources: count/pods,pods"


def test_updates_are_charged_by_what_they_add() -> None:
    hard = {"services.nodeports": "2", "services": "1"}
    one: Object = {"metadata": {}, "spec": {"type": "ClusterIP", "ports": [{}]}}
    two: Object = {"metadata": {}, "spec": {"type": "NodePort", "ports": [{}, {}]}}
    quotas = [quota("q", hard, {"services.nodeports": "0", "services": "1"})]
    assert check(quotas, two, one, resource="services") == [(0, {"services": "1", "services.nodeports": "2"})]
    assert check(quotas, one, two, resource="services") == []
    assert check(quotas, one, one, resource="services") == []


def test_a_pod_that_enters_a_scope_is_charged_in_full() -> None:
    quotas = [quota("q", {"pods": "1"}, {"pods": "0"}, scopes=["Terminating"])]
    assert check(quotas, pod(activeDeadlineSeconds=1), pod()) == [(0, {"pods": "1"})]
    assert check(quotas, pod(), pod(activeDeadlineSeconds=1)) == []


def test_a_resize_is_charged_by_what_it_adds() -> None:
    quotas = [quota("q", {"requests.cpu": "2"}, {"requests.cpu": "1"})]
    bigger = pod(container(cpu="1500m"))
    assert check(quotas, bigger, pod(container(cpu="1")), subresource="resize") == [(0, {"requests.cpu": "1500m"})]
    with pytest.raises(Exceeded, match=r"requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"):
        check(quotas, pod(container(cpu="3")), pod(container(cpu="1")), subresource="resize")


def test_the_status_of_a_claim_is_charged_without_limit() -> None:
    def claim(given: str) -> Object:
        spec = {"resources": {"requests": {"storage": "1Gi"}}}
        return {"metadata": {}, "spec": spec, "status": {"allocatedResources": {"storage": given}}}

    quotas = [quota("q", {"requests.storage": "2Gi"}, {"requests.storage": "1Gi"})]
    found = check(quotas, claim("5Gi"), claim("1Gi"), resource=evaluators.VOLUME_CLAIMS, subresource="status")
    assert found == [(0, {"requests.storage": "5Gi"})]


# -- totals -----------------------------------------------------------------------------------------------------------


def test_totals_have_every_name_and_count_matching_objects() -> None:
    one, none = amounts.parsed({"cpu": "1500m", "pods": "1", "memory": "1"}), frozenset[str]()
    high = frozenset(("high",))
    measures = [Measure(one, {"PriorityClass": high}), Measure(one, {"PriorityClass": high}), Measure(one, {"x": none})]
    selectors = [Selector("PriorityClass", "In", ("high",))]
    found = total(["cpu", "pods", "limits.cpu"], selectors, measures)
    assert amounts.texts(found) == {"cpu": "3", "limits.cpu": "0", "pods": "2"}
    assert amounts.texts(times(["pods"], [], Measure(one, {}), 3)) == {"pods": "3"}
    assert amounts.texts(times(["pods"], selectors, Measure(one, {}), 3)) == {"pods": "0"}


MAPS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9).map(amounts.number))


@given(MAPS, MAPS)
def test_increases_cover_the_difference(new: amounts.Usage, old: amounts.Usage) -> None:
    """Charging the increases of an update covers the whole new state."""
    charged = dict(old)
    amounts.add(charged, amounts.risen(new, old))
    assert all(charged.get(name, amounts.ZERO)[0] >= amount[0] for name, amount in new.items())
    assert all(amount[0] > 0 for amount in amounts.risen(new, old).values())


# -- resources that need a quota --------------------------------------------------------------------------------------

HIGH = Selector("PriorityClass", "In", ("high",))


def limited(
    limit: LimitedResource, quotas: list[Object], new: Object, old: Object | None = None, *, resource: str = "pods"
) -> list[tuple[int, dict[str, str]]]:
    write = QuotaWrite(operation="CREATE" if old is None else "UPDATE", subresource="", new=new, old=old)
    return finish(charges(quotas, evaluator(resource), write, facts(), [limit]))


def test_a_limited_resource_needs_a_quota_that_names_it() -> None:
    limit = LimitedResource(resource="pods", contains=("cpu",))
    with pytest.raises(Exceeded) as refusal:
        limited(limit, [quota("q", {"requests.cpu": "4"}, {"requests.cpu": "0"})], pod(container(cpu="1")))
    assert str(refusal.value) == "insufficient quota to consume: cpu"
    hard, used = {"cpu": "4", "requests.cpu": "4"}, {"cpu": "0", "requests.cpu": "0"}
    assert limited(limit, [quota("q", hard, used)], pod(container(cpu="1"))) == [(0, {"cpu": "1", "requests.cpu": "1"})]
    assert limited(limit, [], pod({"name": "c"})) == []
    assert limited(LimitedResource(resource="services", contains=("",)), [], pod(container(cpu="1"))) == []


def test_unchanged_usage_needs_no_quota() -> None:
    limit = LimitedResource(resource="services", contains=("services",))
    service = {"spec": {"type": "ClusterIP"}}
    with pytest.raises(Exceeded, match="insufficient quota to consume: count/services,services"):
        limited(limit, [], service, resource="services")
    assert limited(limit, [], service, service, resource="services") == []


def test_a_limited_scope_needs_a_quota_with_that_scope() -> None:
    limit = LimitedResource(resource="pods", scopes=(HIGH,))
    high = pod(container(cpu="1"), priorityClassName="high")
    with pytest.raises(ScopesNotCovered) as refusal:
        limited(limit, [quota("q", {"pods": "4"}, {"pods": "0"})], high)
    assert str(refusal.value) == "insufficient quota to match these scopes: [{PriorityClass In [high]}]"
    assert limited(limit, [], pod(container(cpu="1"), priorityClassName="low")) == []
    covering = quota("q", {"pods": "4"}, {"pods": "0"}, scopes=["PriorityClass"])
    assert limited(limit, [covering], high) == [(0, {"pods": "1"})]
