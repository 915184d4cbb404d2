"""Admission of pods: service accounts and their tokens, tolerations, runtime classes, limits, topology."""

from __future__ import annotations

import random
from typing import Any

import pytest
from in_process import PODS, open_server, pod
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.limit_ranger import pod_total
from kubechronicle.actors.admission.runtime_class import merge_tolerations
from kubechronicle.api.builtin.core.pod.defaults import container_requests
from kubechronicle.api.values.steps import finish
from kubechronicle.eventlog.memory.store import MemoryStore

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
LIMITS = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ALL = {"admission": plugins.DEFAULT}


def account(name: str, **fields: Any) -> Any:
    return {"metadata": {"name": name, "annotations": fields.pop("annotations", {})}, **fields}


# -- ServiceAccount ---------------------------------------------------------------------------------------------------


async def test_a_pod_runs_as_the_default_account_with_its_token(autojump_clock: MockClock) -> None:
    async with open_server(**ALL) as server:
        await server.post(ACCOUNTS, account("default", imagePullSecrets=[{"name": "reg"}]))
        body = pod("a")
        body["spec"]["initContainers"] = [
            {"name": "own", "image": "i", "volumeMounts": [{"name": "v", "mountPath": MOUNT}]},
            {"name": "usual", "image": "i"},
        ]
        body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
        spec = (await server.post(PODS, body))["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        assert spec["imagePullSecrets"] == [{"name": "reg"}]
        own, token = spec["volumes"]
        assert own["name"] == "v"
        assert token["name"].startswith("kube-api-access-")
        assert token["projected"]["sources"][0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
        mounts = [one.get("volumeMounts", []) for one in [*spec["initContainers"], *spec["containers"]]]
        assert [[mount["name"] for mount in some] for some in mounts] == [["v"], [token["name"]], [token["name"]]]


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"), [(False, None, False), (False, True, True), (None, False, False)]
)
async def test_a_token_can_be_declined(autojump_clock: MockClock, of_account: Any, of_pod: Any, mounted: bool) -> None:
    async with open_server(**ALL) as server:
        fields = {} if of_account is None else {"automountServiceAccountToken": of_account}
        await server.post(ACCOUNTS, account("default", **fields))
        body = pod("a")
        if of_pod is not None:
            body["spec"]["automountServiceAccountToken"] = of_pod
        assert ("volumes" in (await server.post(PODS, body))["spec"]) is mounted


async def test_a_missing_account_is_rejected(autojump_clock: MockClock) -> None:
    async with open_server(**ALL) as server:
        for name in ("ghost", "default"):
            body = pod("a")
            body["spec"]["serviceAccountName"] = name
            why = (await server.ask("POST", PODS, body)).refused(403)["message"]
            looked_up = f'error looking up service account default/{name}: serviceaccount "{name}" not found'
            assert why == f'pods "a" is forbidden: {looked_up}'
        body["spec"]["serviceAccountName"] = "a%"
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert why.endswith(
            "error looking up service account default/a%: invalid resource name \"a%\": [may not contain '%']"
        )


async def test_an_account_may_restrict_pods_to_its_secrets(autojump_clock: MockClock) -> None:
    async with open_server(**ALL) as server:
        mine = {"kubernetes.io/enforce-mountable-secrets": "true"}
        await server.post(ACCOUNTS, account("default", annotations=mine, secrets=[{"name": "mine"}]))
        body = pod("a")
        body["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "theirs"}}]
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert 'volume with secret.secretName="theirs" is not allowed because service account default' in why
        body["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "mine"}}]
        await server.post(PODS, body)


def refers(place: str, secret: str) -> Any:
    """Return fields of a container that reads the secret into its environment."""
    if place == "envFrom":
        return {"envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": secret}}]}
    return {"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}


ENFORCING = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}, "secrets": [{"name": "mine"}]}
SECRET_ENVIRONMENTS = {"env": "envVar V", "envFrom": "envFrom"}


@pytest.mark.parametrize("place", SECRET_ENVIRONMENTS)
@pytest.mark.parametrize(("field", "kind"), [("containers", "container"), ("initContainers", "init container")])
async def test_a_restricting_account_covers_environments(
    autojump_clock: MockClock, place: str, field: str, kind: str
) -> None:
    async with open_server(**ALL) as server:
        await server.post(ACCOUNTS, account("default", **ENFORCING))
        body = pod("a")
        body["spec"][field] = [{"name": "own", "image": "i", **refers(place, "theirs")}]
        body["spec"].setdefault("containers", pod("a")["spec"]["containers"])
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert why == (
            f'pods "a" is forbidden: {kind} own with {SECRET_ENVIRONMENTS[place]} referencing '
            'secret.secretName="theirs" is not allowed because service account default does not reference that secret'
        )
        body["spec"][field] = [{"name": "own", "image": "i", **refers(place, "mine")}]
        await server.post(PODS, body)


@pytest.mark.parametrize("place", SECRET_ENVIRONMENTS)
async def test_a_restricting_account_covers_ephemeral_containers(autojump_clock: MockClock, place: str) -> None:
    async with open_server(**ALL) as server:
        await server.post(ACCOUNTS, account("default", **ENFORCING))
        await server.post(PODS, pod("a"))
        for secret, code in (("theirs", 403), ("mine", 200)):
            added = [{"name": "debug", "image": "i", **refers(place, secret)}]
            headers = {"content-type": "application/strategic-merge-patch+json"}
            patch = {"spec": {"ephemeralContainers": added}}
            answer = await server.ask("PATCH", f"{PODS}/a/ephemeralcontainers", patch, headers=headers)
            assert answer.status == code
            if code == 403:
                assert f"ephemeral container debug with {SECRET_ENVIRONMENTS[place]} ref" in answer.json()["message"]


async def test_a_restricting_account_covers_pull_secrets(autojump_clock: MockClock) -> None:
    async with open_server(**ALL) as server:
        await server.post(ACCOUNTS, account("default", imagePullSecrets=[{"name": "reg"}], **ENFORCING))
        body = pod("a")
        body["spec"]["imagePullSecrets"] = [{"name": "reg"}, {"name": "mine"}]
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert 'imagePullSecrets[1].name="mine" is not allowed because service account default' in why


async def test_mirror_pods_must_not_refer_to_api_objects(autojump_clock: MockClock) -> None:
    async with open_server(**ALL) as server:
        body = pod("a", node="n", annotations={"kubernetes.io/config.mirror": "x"})
        body["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "x"}}]
        why = (await server.ask("POST", PODS, body)).refused(403)["message"]
        assert why.endswith("a mirror pod may not reference secrets")
        del body["spec"]["volumes"]
        assert "serviceAccountName" not in (await server.post(PODS, body))["spec"]


async def test_a_control_loop_creates_the_default_account(autojump_clock: MockClock) -> None:
    async with open_server(MemoryStore(), loops=True, controllers=frozenset({"serviceaccount"}), **ALL) as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
        # At once: admission waits for the account rather than refuse.
        made = await server.post("/api/v1/namespaces/new/pods", pod("a"))
        assert made["spec"]["serviceAccountName"] == "default"
        gone = await server.get(f"{ACCOUNTS}/default")
        await server.delete(f"{ACCOUNTS}/default")
        await server.post(PODS, pod("b"))
        assert (await server.get(f"{ACCOUNTS}/default"))["metadata"]["uid"] != gone["metadata"]["uid"]


# -- tolerations, runtime classes, topology ---------------------------------------------------------------------------


async def test_default_tolerations(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        keys = [one["key"] for one in (await server.post(PODS, pod("a")))["spec"]["tolerations"]]
        assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        body = pod("b")
        body["spec"]["tolerations"] = [{"operator": "Exists"}]
        assert (await server.post(PODS, body))["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_a_new_node_is_tainted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        assert (await server.post("/api/v1/nodes", {"metadata": {"name": "n"}}))["spec"]["taints"] == [taint]
        node = {"metadata": {"name": "m"}, "spec": {"taints": [taint]}}
        assert (await server.post("/api/v1/nodes", node))["spec"]["taints"] == [taint]


async def test_a_runtime_class_adds_overhead_selector_and_tolerations(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        scheduling = {"nodeSelector": {"rt": "yes"}, "tolerations": [{"key": "rt", "operator": "Exists"}]}
        overhead = {"podFixed": {"cpu": "250m"}}
        body = {"metadata": {"name": "kata"}, "handler": "h", "overhead": overhead, "scheduling": scheduling}
        await server.post(RUNTIMES, body)
        wanted = pod("a")
        wanted["spec"] |= {"runtimeClassName": "kata", "nodeSelector": {"a": "b"}}
        spec = (await server.post(PODS, wanted))["spec"]
        assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"a": "b", "rt": "yes"})
        assert spec["tolerations"][-1] == {"key": "rt", "operator": "Exists"}
        for change, why in (
            ({"nodeSelector": {"rt": "no"}}, "conflict: runtimeClass.scheduling.nodeSelector[rt] = yes; "),
            ({"overhead": {"cpu": "1"}}, "Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
            ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        ):
            other = pod("b")
            other["spec"] |= {"runtimeClassName": "kata", **change}
            assert why in (await server.ask("POST", PODS, other)).refused(403)["message"]
        for name, why in (
            ("", "resource name may not be empty"),
            ("..", "invalid resource name \"..\": [may not be '..']"),
            ("a/%", "invalid resource name \"a/%\": [may not contain '/' may not contain '%']"),
        ):
            other["spec"]["runtimeClassName"] = name
            assert (await server.ask("POST", PODS, other)).refused(500)["message"] == why
        plain = pod("c")
        plain["spec"]["overhead"] = {"cpu": "1"}
        assert "without corresponding" in (await server.ask("POST", PODS, plain)).refused(403)["message"]


def test_covered_tolerations_are_dropped() -> None:
    narrow = {"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"}
    wide = {"key": "a", "operator": "Exists"}
    assert merge_tolerations([narrow], [wide]) == [wide]
    assert merge_tolerations([wide], [narrow, wide]) == [wide]
    short = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    long = {**short, "tolerationSeconds": 9}
    assert merge_tolerations([short], [long]) == [long]
    assert merge_tolerations([narrow], [{**narrow, "value": "2"}]) == [narrow, {**narrow, "value": "2"}]


async def test_a_pod_gets_the_zone_label_of_its_node(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        zone = {"topology.kubernetes.io/zone": "z1"}
        await server.post("/api/v1/nodes", {"metadata": {"name": "n", "labels": {**zone, "other": "x"}}})
        await server.post(PODS, pod("a"))
        target = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
        (await server.ask("POST", f"{PODS}/a/binding", target)).ok()
        assert (await server.get(f"{PODS}/a"))["metadata"]["labels"] == zone


# -- LimitRanger ------------------------------------------------------------------------------------------------------


def limits(**limit: Any) -> Any:
    return {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}


async def test_default_limits_and_their_annotation(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(
            LIMITS, limits(type="Container", default={"cpu": "500m"}, defaultRequest={"cpu": "100m", "memory": "1Mi"})
        )
        made = await server.post(PODS, pod("a"))
        resources = made["spec"]["containers"][0]["resources"]
        assert resources == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m", "memory": "1Mi"}}
        annotation = made["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
        parts = "cpu, memory request for container main; cpu limit for container main"
        assert annotation == f"LimitRanger plugin set: {parts}"
        assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limit", "resources", "why"),
    [
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "1m"}}, "minimum cpu usage per Pod is 1, but request is 1m"),
        ({"max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Pod is 1, but limit is 2"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"memory": "1"}},
            "cpu max limit to request ratio per Pod is 2, but no request is specified or request is 0",
        ),
    ],
)
async def test_pods_out_of_bounds_are_rejected(autojump_clock: MockClock, limit: Any, resources: Any, why: str) -> None:
    async with open_server() as server:
        await server.post(LIMITS, limits(type="Pod", **limit))
        body = pod("a")
        body["spec"]["containers"][0]["resources"] = resources
        error = (await server.ask("POST", PODS, body)).refused(403)
        assert error["message"] == f'pods "a" is forbidden: {why}'


async def test_claims_out_of_bounds_are_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(LIMITS, limits(type="PersistentVolumeClaim", max={"storage": "2Gi"}, min={"storage": "1Gi"}))
        for size, why in (("3Gi", "maximum"), ("512Mi", "minimum")):
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
            error = (await server.ask("POST", CLAIMS, {"metadata": {"name": "v"}, "spec": spec})).refused(403)
            assert f"{why} storage usage per PersistentVolumeClaim is" in error["message"]


def test_pod_total() -> None:
    def container(cpu: str, **fields: Any) -> Any:
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    spec: Any = {"containers": [container("100m"), container("200m")]}
    assert finish(pod_total(spec, "requests")) == {"cpu": "300m"}
    spec["initContainers"] = [container("50m", restartPolicy="Always"), container("1")]
    assert finish(pod_total(spec, "requests")) == {"cpu": "1050m"}
    spec["resources"] = {"requests": {"cpu": "2"}}
    assert finish(pod_total(spec, "requests")) == {"cpu": "2"}


def covers(wide: dict[str, Any], narrow: dict[str, Any]) -> bool:
    """Return whether a toleration covers another one, by comparing the two."""
    if wide == narrow:
        return True
    operator, effect = wide.get("operator", ""), wide.get("effect", "")
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key", "") or operator != "Exists"):
        return False
    if effect and narrow.get("effect", "") != effect:
        return False
    if effect == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if operator in ("", "Equal"):
        return narrow.get("operator", "") == "Equal" and narrow.get("value", "") == wide.get("value", "")
    return operator == "Exists"


@pytest.mark.parametrize("seed", range(200))
def test_merged_tolerations_are_those_of_a_comparison_of_all_pairs(seed: int) -> None:
    chance = random.Random(seed)
    choices = {
        "key": ("", "a", "b"),
        "operator": ("", "Equal", "Exists", "Exists", "odd"),
        "value": ("", "x"),
        "effect": ("", "NoExecute", "NoSchedule"),
        "tolerationSeconds": (None, 1, 2),
    }
    every = []
    for _ in range(chance.randint(1, 8)):
        drawn = {name: chance.choice(values) for name, values in choices.items()}
        every.append({name: value for name, value in drawn.items() if value not in ("", None)})
    expected: list[dict[str, Any]] = []
    for place, one in enumerate(every):
        by_later = any(later != one and covers(later, one) for later in every[place + 1 :])
        if not by_later and not any(covers(kept, one) for kept in expected):
            expected.append(one)
    half = len(every) // 2
    assert merge_tolerations(every[:half], every[half:]) == expected


@pytest.mark.parametrize("seed", range(50))
def test_pod_totals_are_the_most_that_is_needed_at_one_time(seed: int) -> None:
    chance = random.Random(seed)

    def container(sidecar: bool) -> dict[str, Any]:
        amounts = {name: str(chance.randint(0, 9)) for name in ("cpu", "memory", "x/y") if chance.random() < 0.6}
        return {"resources": {"requests": amounts}, **({"restartPolicy": "Always"} if sidecar else {})}

    def number(each: dict[str, Any], name: str) -> int:
        return int(each["resources"]["requests"].get(name, 0))

    usual = [container(False) for _ in range(chance.randint(0, 3))]
    first = [container(chance.random() < 0.5) for _ in range(chance.randint(0, 5))]
    expected = {}
    for name in ("cpu", "memory", "x/y"):
        if any(name in each["resources"]["requests"] for each in (*usual, *first)):
            sidecars, peak = 0, 0
            for each in first:
                peak = max(peak, sidecars + number(each, name))
                sidecars += number(each, name) if "restartPolicy" in each else 0
            expected[name] = str(max(sidecars + sum(number(each, name) for each in usual), peak))
    assert finish(pod_total({"containers": usual, "initContainers": first}, "requests")) == expected
    assert container_requests({"containers": usual, "initContainers": first}) == expected
