"""Admission policies as clients meet them: bindings, parameters, actions, versions, and their immediate effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from in_process import InProcess, open_server

GROUP = "admissionregistration.k8s.io"
ROOT = f"/apis/{GROUP}/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}


async def create(server: InProcess, kind: str, spec: dict[str, Any], bound: Mapping[str, Any]) -> None:
    """Create a policy ``p`` with a binding ``p``."""
    version = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": "p"}}
    path = f"{ROOT}/{kind.lower()}admissionpolic"
    await server.post(f"{path}ies", {**version, "kind": f"{kind}AdmissionPolicy", "spec": spec})
    binding = {**version, "kind": f"{kind}AdmissionPolicyBinding", "spec": {"policyName": "p", **bound}}
    await server.post(f"{path}ybindings", binding)


async def validate(
    server: InProcess,
    *expressions: str,
    rule: Mapping[str, Any] = CONFIG_MAPS,
    match: Mapping[str, Any] | None = None,
    bound: Mapping[str, Any] | None = None,
    **spec: Any,
) -> None:
    constraints = {"resourceRules": [dict(rule)], **(match or {})}
    validations = [{"expression": text} for text in expressions]
    made = {"matchConstraints": constraints, "validations": validations, **spec}
    await create(server, "Validating", made, {"validationActions": ["Deny"], **(bound or {})})


async def mutate(server: InProcess, *patches: str) -> None:
    rule = {**CONFIG_MAPS, "operations": ["CREATE", "UPDATE"]}
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}} for text in patches]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "mutations": mutations, "reinvocationPolicy": "Never"}
    await create(server, "Mutating", spec, {})


def config_map(name: str = "a", labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels or {}}, "data": data}


async def refusal(server: InProcess, method: str, path: str, body: Any = None, code: int = 422) -> str:
    return str((await server.ask(method, path, body)).refused(code)["message"])


async def test_a_policy_counts_from_the_next_request_and_no_longer_than_its_binding() -> None:
    async with open_server() as server:
        await validate(server, "object.data.x == '1'")
        message = await refusal(server, "POST", MAPS, config_map(x="2"))
        assert message == (
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
            "failed expression: object.data.x == '1'"
        )
        changed = {"spec": {"validations": [{"expression": "object.data.x == '2'"}]}}
        await server.patch(f"{ROOT}/validatingadmissionpolicies/p", changed)
        await server.post(MAPS, config_map(x="2"))
        await server.delete(f"{ROOT}/validatingadmissionpolicybindings/p")
        await server.post(MAPS, config_map("b", x="3"))


async def test_deletions_have_an_old_object_only() -> None:
    async with open_server() as server:
        await server.post(MAPS, config_map(keep="yes"))
        await server.post(MAPS, config_map("b"))
        rule = {**CONFIG_MAPS, "operations": ["DELETE"]}
        await validate(server, "object == null && !has(oldObject.data)", rule=rule)
        await refusal(server, "DELETE", f"{MAPS}/a")
        await server.delete(f"{MAPS}/b")
        assert (await refusal(server, "DELETE", MAPS)).startswith('configmaps "Unknown" is forbidden: ')


async def test_policies_apply_to_webhook_configurations_but_not_to_policies() -> None:
    async with open_server() as server:
        rule = {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
        await validate(server, "false", rule=rule)
        made = {"apiVersion": f"{GROUP}/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}}
        await refusal(server, "POST", f"{ROOT}/mutatingwebhookconfigurations", made)
        await server.delete(f"{ROOT}/validatingadmissionpolicies/p")


async def test_a_binding_selects_for_itself_and_may_only_warn() -> None:
    async with open_server() as server:
        selected = {"objectSelector": {"matchLabels": {"strict": "yes"}}, "namespaceSelector": {}}
        await validate(server, "false", bound={"matchResources": selected, "validationActions": ["Warn", "Audit"]})
        await server.post(MAPS, config_map())
        answer = await server.ask("POST", MAPS, config_map("b", {"strict": "yes"}))
        text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': failed expression: false"
        assert (answer.status, answer.header("warning")) == (201, f'299 - "{text}"')


async def test_parameters_are_read_at_each_request() -> None:
    async with open_server() as server:
        reference = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"}
        match = {"objectSelector": {"matchExpressions": [{"key": "limit", "operator": "DoesNotExist"}]}}
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        expression = "size(object.data) <= int(params.data.most)"
        await validate(server, expression, paramKind=kind, match=match, bound={"paramRef": reference})
        message = await refusal(server, "POST", MAPS, config_map(x="1"))
        assert message.endswith("no params found for policy binding with `Deny` parameterNotFoundAction")
        await server.post(MAPS, config_map("limit", {"limit": "yes"}, most="1"))
        await server.post(MAPS, config_map(x="1"))
        await refusal(server, "POST", MAPS, config_map("b", x="1", y="2"))
        await server.patch(f"{MAPS}/limit", {"data": {"most": "2"}})
        await server.post(MAPS, config_map("b", x="1", y="2"))


async def test_another_version_is_converted_for_the_policy() -> None:
    async with open_server() as server:
        rule = {"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"], "resources": ["*"]}
        await validate(server, "object.spec.metrics[0].resource.target.averageUtilization <= 50", rule=rule)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 80}
        body = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
        path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
        await refusal(server, "POST", path, {**body, "spec": spec})
        await server.post(path, {**body, "spec": {**spec, "targetCPUUtilizationPercentage": 40}})


async def test_a_refused_creation_is_prepared_again_without_mutating_twice() -> None:
    async with open_server() as server:
        await mutate(server, "[JSONPatch{op: 'add', path: '/data/x', value: object.data.x + '!'}]")
        await validate(server, "object.data.x == 'b!'")
        await refusal(server, "POST", MAPS, config_map(x="a"))
        assert (await server.post(MAPS, config_map(x="b")))["data"] == {"x": "b!"}


async def test_a_mutation_that_fails_refuses_or_is_left_out() -> None:
    async with open_server() as server:
        good = "[JSONPatch{op: 'add', path: '/data/y', value: '1'}]"
        await mutate(server, "[JSONPatch{op: 'remove', path: '/data/none'}]", good)
        message = await refusal(server, "POST", MAPS, config_map(x="1"), code=403)
        assert message.startswith("policy 'p' with binding 'p' denied request: JSON Patch: error in remove for path")
        await server.patch(f"{ROOT}/mutatingadmissionpolicies/p", {"spec": {"failurePolicy": "Ignore"}})
        assert (await server.post(MAPS, config_map(x="1")))["data"] == {"x": "1", "y": "1"}


async def test_policies_do_not_apply_to_questions_about_rights() -> None:
    async with open_server() as server:
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
        await validate(server, "false", rule=rule)
        review = {"metadata": {"namespace": "default"}, "spec": {"user": "x", "resourceAttributes": {"verb": "get"}}}
        review["spec"]["resourceAttributes"]["namespace"] = "default"
        path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
        await server.post(path, review)
        await refusal(server, "POST", MAPS, config_map())


async def test_a_mutation_cannot_be_converted_to_another_version() -> None:
    async with open_server() as server:
        rule = {"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["*"]}
        patch = {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": "object.spec.maxReplicas == 1 ? [JSONPatch{}] : []"},
        }
        spec = {"matchConstraints": {"resourceRules": [rule]}, "mutations": [patch], "reinvocationPolicy": "Never"}
        await create(server, "Mutating", spec, {})
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        body = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
        body["spec"] = {"maxReplicas": 3, "scaleTargetRef": target}
        path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
        message = await refusal(server, "POST", path.format("v1"), body, code=403)
        assert message.endswith(
            "converting (v2.HorizontalPodAutoscaler) to (v1.HorizontalPodAutoscaler): unknown conversion"
        )
        await server.post(path.format("v2"), body)


async def test_the_authorizer_asks_about_a_service_account_without_the_groups_of_its_authentication() -> None:
    async with open_server() as server:
        role = {"metadata": {"name": "r"}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await server.post(f"{rbac}/clusterroles", role)
        subject = {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
        await server.post(
            f"{rbac}/clusterrolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]}
        )
        await validate(server, "!authorizer.serviceAccount('default', 'a').path('/x').check('get').allowed()")
        await server.post(MAPS, config_map())
