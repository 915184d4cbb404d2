"""Reviews: questions about rights and identities."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import ADMIN, ISSUER_NAME, JOE, InProcess, open_server
from trio.testing import MockClock

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GET_PODS = {"namespace": "default", "verb": "get", "resource": "pods"}


async def ask(server: InProcess, plural: str, spec: dict[str, Any], *, namespace: str = "", **options: Any) -> Any:
    where = f"{AUTHORIZATION}/namespaces/{namespace}" if namespace else AUTHORIZATION
    return await server.ask("POST", f"{where}/{plural}", {"spec": spec}, **options)


async def grant(server: InProcess, **rule: Any) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], **rule}]
    await server.post(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    await server.post(f"{RBAC}/namespaces/default/rolebindings", binding)


async def test_a_subject_has_the_rights_of_its_binding(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await grant(server)
        reason = 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "joe"'
        for verb, namespace, wanted in (
            ("get", "default", {"allowed": True, "reason": reason}),
            ("list", "default", {"allowed": False}),
            ("get", "other", {"allowed": False}),
        ):
            attributes = {**GET_PODS, "verb": verb, "namespace": namespace}
            spec = {"user": "joe", "resourceAttributes": attributes}
            found = (await ask(server, "subjectaccessreviews", spec)).ok()
            assert found["status"] == wanted
            assert found["spec"] == spec
        spec = {"user": "joe", "resourceAttributes": GET_PODS}
        found = (await ask(server, "localsubjectaccessreviews", spec, namespace="default")).ok()
        assert found["status"]["allowed"] is True


async def test_reviews_of_groups_and_paths(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        path = {"path": "/version", "verb": "get"}
        spec = {"groups": ["system:unauthenticated"], "nonResourceAttributes": path}
        found = (await ask(server, "subjectaccessreviews", spec)).ok()["status"]
        assert found["allowed"] is True
        assert '"system:public-info-viewer"' in found["reason"]
        spec = {"user": "root", "groups": ["system:masters"], "resourceAttributes": GET_PODS}
        assert (await ask(server, "subjectaccessreviews", spec)).ok()["status"] == {"allowed": True}


async def test_everybody_may_ask_about_themselves(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        for token, allowed in ((ADMIN, True), (JOE, False)):
            answer = await ask(server, "selfsubjectaccessreviews", {"resourceAttributes": GET_PODS}, token=token)
            assert answer.ok()["status"]["allowed"] is allowed
        found = (await server.ask("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, token=JOE)).ok()
        info = {"username": "joe", "uid": "2", "groups": ["developers", "system:authenticated"]}
        assert found["status"] == {"userInfo": info}
        (await ask(server, "selfsubjectaccessreviews", {"resourceAttributes": GET_PODS}, token="")).refused(403)


async def test_all_that_one_may_do(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await grant(server, resourceNames=["a"])
        rules = (await ask(server, "selfsubjectrulesreviews", {"namespace": "default"}, token=JOE)).ok()["status"]
        assert {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": ["a"],
        } in rules["resourceRules"]
        assert any("/openapi/*" in rule["nonResourceURLs"] for rule in rules["nonResourceRules"])
        assert rules["incomplete"] is False
        rules = (await ask(server, "selfsubjectrulesreviews", {"namespace": "default"})).ok()["status"]
        assert rules["resourceRules"][0] == {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        (await ask(server, "selfsubjectrulesreviews", {})).refused(400)


async def test_the_user_of_a_token(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = f"{AUTHENTICATION}/tokenreviews"
        found = (await server.ask("POST", target, {"spec": {"token": JOE}})).ok()["status"]
        assert found["authenticated"] is True
        assert found["user"]["username"] == "joe"
        assert "system:authenticated" in found["user"]["groups"]
        found = (await server.ask("POST", target, {"spec": {"token": "wrong"}})).ok()["status"]
        assert found == {"user": {}, "error": "invalid bearer token"}
        (await server.ask("POST", target, {"spec": {"token": ""}})).refused(400)
        for spec in ({"token": " "}, {"token": " b"}, {"token": " ", "audiences": ["a"]}):
            answer = await server.ask("POST", target, {"spec": spec})
            found = answer.ok()["status"]
            assert found["user"]["username"] == "system:anonymous"
            assert found["audiences"] == spec.get("audiences", [ISSUER_NAME])
            assert "warning" not in answer.headers


@pytest.mark.parametrize(
    ("plural", "spec", "causes"),
    [
        ("subjectaccessreviews", {"resourceAttributes": GET_PODS}, [("spec.user", "FieldValueInvalid")]),
        ("subjectaccessreviews", {"user": "u"}, [("spec", "FieldValueInvalid")]),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": GET_PODS, "nonResourceAttributes": {"path": "/x", "verb": "get"}},
            [("spec", "FieldValueInvalid")],
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {**GET_PODS, "fieldSelector": {}}},
            [("spec.resourceAttributes.fieldSelector.requirements", "FieldValueRequired")],
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {**GET_PODS, "labelSelector": {"requirements": [{"key": "a", "operator": "In"}]}}},
            [("spec.resourceAttributes.labelSelector.requirements[0].values", "FieldValueRequired")],
        ),
    ],
)
async def test_invalid_reviews(autojump_clock: MockClock, plural: str, spec: Any, causes: Any) -> None:
    async with open_server() as server:
        found = (await ask(server, plural, spec)).refused(422)
        assert [(each["field"], each["reason"]) for each in found["details"]["causes"]] == causes
        assert found["details"]["group"] == "authorization.k8s.io"


async def test_a_local_review_stays_in_its_namespace(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        spec = {"user": "joe", "resourceAttributes": {**GET_PODS, "namespace": "other"}}
        found = (await ask(server, "localsubjectaccessreviews", spec, namespace="default")).refused(422)
        assert found["details"]["causes"][0]["field"] == "spec.resourceAttributes.namespace"
        spec = {"user": "joe", "nonResourceAttributes": {"path": "/x", "verb": "get"}}
        found = (await ask(server, "localsubjectaccessreviews", spec, namespace="default")).refused(422)
        assert found["details"]["causes"][-1]["reason"] == "FieldValueInvalid"


async def test_nothing_is_stored(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        before = server.log.store.head().revision
        (await ask(server, "selfsubjectaccessreviews", {"resourceAttributes": GET_PODS})).ok()
        assert server.log.store.head().revision == before


META = "g=meta.k8s.io;v=v1"
FORMS = [
    (f"{AUTHORIZATION}/selfsubjectaccessreviews", "authorization.SelfSubjectAccessReview"),
    (f"{AUTHENTICATION}/selfsubjectreviews", "authentication.SelfSubjectReview"),
    ("/api/v1/namespaces/default/serviceaccounts/a/token", "authentication.TokenRequest"),
]


@pytest.mark.parametrize(("path", "go_type"), FORMS)
async def test_a_review_has_metadata_and_no_rows(autojump_clock: MockClock, path: str, go_type: str) -> None:
    async with open_server() as server:
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
        body: Any = {"spec": {"resourceAttributes": GET_PODS} if "access" in path else {}}

        async def answer(accept: str) -> Any:
            return await server.ask("POST", path, body, headers={"accept": accept})

        (await answer(f"application/json;as=Table;{META}")).refused(406)
        assert (await answer(f"application/json;as=Table;{META},application/json")).ok()["kind"] in go_type
        partial = (await answer(f"application/json;as=PartialObjectMetadata;{META}")).ok()
        assert partial.keys() == {"kind", "apiVersion", "metadata"}
        assert partial["kind"] == "PartialObjectMetadata"
        refusal = (await answer(f"application/json;as=PartialObjectMetadataList;{META}")).refused(406)
        assert refusal["message"].endswith(f"but the requested object is not a list (*{go_type})")
