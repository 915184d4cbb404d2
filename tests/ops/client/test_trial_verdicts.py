"""`try-policy` on random histories: the verdict on each write is the one of the server with the policies in force.

Each write is first sent as a dry run while the policies are bound, then done without them. Later the history is tried:
refusals, warnings, audit annotations and the object after mutations must be the same, each with its message.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from in_process import ADMIN

from kubechronicle.actors.admission.policies import validating as validating_plugin
from kubechronicle.actors.admission.policies.validating import FAILURES
from kubechronicle.api.admission import matching
from kubechronicle.api.admission.logged_writes import Write
from kubechronicle.api.admission.replays import AUDITED, MUTATED, REFUSED, WARNED, ReplayOutcome
from kubechronicle.http.messages import Request
from kubechronicle.ops.client.trial_report import Report

Chronicle = Callable[..., Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
API_VERSION = "admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
_numbers = itertools.count(1)

# Those that do not read the object as a whole let the command fetch some of its fields alone.
PARTS = (
    "request.operation == 'DELETE' || int(object.data.a) < 3",
    "has(object.metadata.labels) && object.metadata.labels.color != 'red'",
    "object.metadata.name != 'x' || request.name == 'y'",
    "!has(oldObject.data) || oldObject.data.a != object.data.a",
    "object.metadata.?labels.color.orValue('none') != 'blue' || request.userInfo.username == 'nobody'",
    "object.data.map(name, object.data[name]).all(value, value != '5')",
)
EXPRESSIONS = (
    "request.operation == 'DELETE' || !has(object.data) || !('a' in object.data) || int(object.data.a) < 3",
    "oldObject == null || object == null || !has(oldObject.data) || oldObject.data.a != object.data.a",
    "request.operation != 'DELETE' || oldObject.metadata.name != 'x'",
    "namespaceObject.metadata.labels.team == 'red' || request.operation == 'DELETE'",
    "request.operation == 'DELETE' || !has(object.metadata.labels) || variables.color == 'blue'",
    "object != null && has(object.metadata.labels) && object.metadata.labels.color == 'red'",
    "request.name == 'x' || request.userInfo.username == 'nobody'",
    "!has(request.options.fieldManager) || request.options.fieldManager != 'second'",
    "authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()",
)
CONDITIONS = ("request.name != 'y'", "object != null", "int(object.data.a) > 1", "oldObject == null")
MESSAGES = ("'value ' + string(object.data.a)", "variables.color + ' ' + request.operation", "string(oldObject.data.a)")
MUTATIONS: Sequence[dict[str, Any]] = (
    {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'seen': request.operation}}}"},
    },
    {
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/b', value: object.data.a + '!'}]"},
    },
    {
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'replace', path: '/metadata/labels/color', value: 'green'}]"},
    },
)
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
ALWAYS: dict[str, Any] = {}


def rules(*operations: str) -> dict[str, Any]:
    return {"resourceRules": [{**RULE, "operations": list(operations)}]}


OPERATIONS = st.sampled_from((("CREATE", "UPDATE", "DELETE"), ("CREATE",), ("UPDATE",), ("*",), ("CREATE", "UPDATE")))
SELECTORS = st.sampled_from((ALWAYS, ALWAYS, {"objectSelector": {"matchLabels": {"color": "red"}}}))
ACTIONS = st.sampled_from((["Deny"], ["Warn"], ["Audit"], ["Deny", "Audit"], ["Warn", "Audit"]))
LABELLED = "has(object.metadata.labels) && has(object.metadata.labels.color)"
COLORS = tuple(f"{each}{LABELLED} ? object.metadata.labels.color : 'none'" for each in ("", "object != null && "))


@st.composite
def validations(draw: st.DrawFn, expressions: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"expression": draw(st.sampled_from(expressions))}
    found |= draw(st.sampled_from((ALWAYS, {"message": "not like this"}, {"message": "no", "reason": "Forbidden"})))
    if draw(st.booleans()):
        found["messageExpression"] = draw(st.sampled_from(MESSAGES))
    return found


@st.composite
def validating(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the spec of a validating policy, and that of its binding."""
    expressions, color = draw(st.sampled_from(((PARTS, COLORS[0]), (PARTS + EXPRESSIONS, COLORS[1]))))
    spec: dict[str, Any] = {
        "failurePolicy": draw(st.sampled_from(("Fail", "Ignore"))),
        "matchConstraints": rules(*draw(OPERATIONS)) | draw(SELECTORS),
        "variables": [{"name": "color", "expression": color}],
        "validations": draw(st.lists(validations(expressions), min_size=1, max_size=2)),
    }
    if draw(st.booleans()):
        conditions = CONDITIONS[:1] if expressions is PARTS else CONDITIONS
        condition = {"name": "some", "expression": draw(st.sampled_from(conditions))}
        spec["matchConditions"] = [condition]
    if draw(st.booleans()):
        value = draw(st.sampled_from(("string(variables.color)", "'old ' + oldObject.data.a", "null")))
        spec["auditAnnotations"] = [{"key": "color", "valueExpression": value}]
    return spec, {"validationActions": draw(ACTIONS)}


@st.composite
def mutating(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    operations = draw(st.sampled_from((("CREATE", "UPDATE"), ("CREATE",))))
    return {
        "failurePolicy": draw(st.sampled_from(("Fail", "Ignore"))),
        "reinvocationPolicy": "Never",
        "matchConstraints": rules(*operations) | draw(SELECTORS),
        "mutations": draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=2)),
    }, {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "patch", "update", "apply", "delete", "collection", "relabel")),
        st.sampled_from("xyz"),
        st.sampled_from(("1", "2", "4", "5", "many")),
        st.sampled_from(("", "red", "blue")),
    ),
    min_size=4,
    max_size=12,
)
Step = tuple[str, str, str, str]


@dataclass
class Verdict:
    """The effects on one write. ``refused``: the message of the first refusal. ``object``: None if it is refused."""

    refused: str = ""
    warned: list[str] = field(default_factory=list)
    audited: dict[str, Any] = field(default_factory=dict)
    object: Any = None


class Server:
    """The server with and without policies in force. ``annotations``: those of the last write that was validated."""

    def __init__(self, running: Any, documents: Sequence[dict[str, Any]]) -> None:
        self._running = running
        self._bindings = [each for each in documents if each["kind"].endswith("Binding")]
        self._policies = [each for each in documents if not each["kind"].endswith("Binding")]
        self.annotations: dict[str, str] = {}

    def send(self, method: str, path: str, body: Any = None, kind: str = "json") -> tuple[int, list[str], Any]:
        """Return the status, the warnings and the body of an answer."""
        headers = {"content-type": f"application/{kind}", "authorization": f"Bearer {ADMIN}"}
        data = b"" if body is None else json.dumps(body).encode()
        request = Request.of(method, path, headers=headers, body=data)
        response = self._running.run(self._running.server.assembly.application.application, request)
        warnings = [value.partition('"')[2].rpartition('"')[0] for name, value in response.headers if name == "warning"]
        return response.status, [each.replace('\\"', '"') for each in warnings], json.loads(response.body)

    def newest(self) -> int:
        return int(self._running.ask("GET", "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])

    def last_change(self, space: str, name: str, *, since: int) -> int:
        """Return the newest revision of a ConfigMap, 0 before the first. ``since``: none is older."""
        terms = f"object.resource%3Dconfigmaps,object.name%3D{name},revision.from%3D{since}"
        path = f"/apis/history.kubechronicle.dev/v1/namespaces/{space}/revisions?limit=1&fieldSelector={terms}"
        items = self._running.ask("GET", path)["items"]
        return int(items[0]["metadata"]["name"]) if items else 0

    def install(self) -> None:
        self._all("POST", self._policies)

    def uninstall(self) -> None:
        self._all("DELETE", self._policies)

    def verdict(self, space: str, step: Step) -> Verdict | None:
        """Return the verdict on a write that is not done; None: it is refused for other reasons."""
        self._all("POST", self._bindings)
        self.annotations = {}
        status, warnings, body = self.write(space, step, "dryRun=All")
        self._all("DELETE", self._bindings)
        found = Verdict(warned=warnings, audited=_audited(self.annotations))
        if status < 300:
            found.object = body
            return found
        message = str(body["message"])
        if "AdmissionPolicy '" not in message and "policy '" not in message:
            return None
        found.refused = message
        return found

    def write(self, space: str, step: Step, query: str = "") -> tuple[int, list[str], Any]:
        verb, name, value, color = step
        maps, one = f"/api/v1/namespaces/{space}/configmaps?{query}", f"/api/v1/namespaces/{space}/configmaps/{name}"
        labels = {"labels": {"color": color}} if color else {}
        meta = {"metadata": {"name": name, **labels}, "data": {"a": value}}
        whole = {"apiVersion": "v1", "kind": "ConfigMap", **meta}
        if verb == "create":
            return self.send("POST", maps, meta)
        if verb == "update":
            return self.send("PUT", f"{one}?fieldManager=second&{query}", meta)
        if verb == "patch":
            body = {"data": {"a": value}, "metadata": labels}
            return self.send("PATCH", f"{one}?{query}", body, "merge-patch+json")
        if verb == "apply":
            return self.send("PATCH", f"{one}?fieldManager=second&force=true&{query}", whole, "apply-patch+yaml")
        if verb == "delete":
            return self.send("DELETE", f"{one}?{query}")
        if verb == "collection":
            return self.send("DELETE", f"{maps}&fieldSelector=metadata.name%3D{name}")
        team = {"metadata": {"labels": {"team": color or "blue"}}}
        return self.send("PATCH", f"/api/v1/namespaces/{space}", team, "merge-patch+json")

    def _all(self, method: str, objects: Sequence[dict[str, Any]]) -> None:
        for each in objects:
            path = f"{GROUP}/{PLURALS[each['kind']]}"
            one = f"{path}/{each['metadata']['name']}"
            status, _, body = self.send("POST", path, each) if method == "POST" else self.send("DELETE", one)
            assert status < 300, body["message"]


def _audited(annotations: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in annotations.items():
        if key == FAILURES:
            [failure] = json.loads(value)
            found[""] = (failure["policy"], failure["message"])
        else:
            found[key] = value
    return found


@pytest.fixture(scope="module")
def audits() -> Iterator[list[Server]]:
    """Servers that get the annotations of each dry run."""
    listening: list[Server] = []
    whole = validating_plugin._Dispatch.judge_all

    def judge_all(self: Any, policies: Any) -> Iterator[Any]:
        try:
            yield from whole(self, policies)
        finally:
            for server in listening if self._attributes.dry_run else ():
                server.annotations = dict(self._attributes.annotations)
            self._attributes.annotations.clear()  # the next write has the same ones

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validating_plugin._Dispatch, "judge_all", judge_all)
        patch.setattr(matching._Unwanted, "__setitem__", dict.__setitem__)  # the writes are not audited
        patch.setattr(matching._Unwanted, "setdefault", dict.setdefault)
        yield listening


def documents_of(drawn: Sequence[tuple[str, tuple[dict[str, Any], dict[str, Any]]]], space: str) -> list[Any]:
    """Return policies, each with its binding to one namespace."""
    found = []
    selector = {"matchLabels": {"kubernetes.io/metadata.name": space}}
    for kind, (spec, binding) in drawn:
        meta = {"name": f"verdict-{next(_numbers)}"}
        bound = {"policyName": meta["name"], "matchResources": {"namespaceSelector": selector}, **binding}
        found.append({"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec})
        found.append({"apiVersion": API_VERSION, "kind": f"{kind}Binding", "metadata": meta, "spec": bound})
    return found


POLICIES = st.lists(
    st.one_of(
        st.tuples(st.just("ValidatingAdmissionPolicy"), validating()),
        st.tuples(st.just("ValidatingAdmissionPolicy"), validating()),
        st.tuples(st.just("MutatingAdmissionPolicy"), mutating()),
    ),
    min_size=1,
    max_size=3,
)


# Without shrinking, which would take minutes: a failed example is short enough.
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)
@given(steps=STEPS, drawn=POLICIES)
def test_each_verdict_is_the_servers(
    chronicle: Chronicle, running: Any, tmp_path: Path, audits: list[Server], steps: list[Step], drawn: list[Any]
) -> None:
    space = f"verdicts-{next(_numbers)}"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space, "labels": {"team": "blue"}}})
    documents = documents_of(drawn, space)
    server = Server(running, documents)
    audits[:] = [server]
    server.install()
    since = server.newest()
    expected: dict[int, Verdict] = {}
    for step in steps:
        verdict = server.verdict(space, step) if step[0] != "relabel" else None
        before = server.last_change(space, step[1], since=since)
        status, _, _ = server.write(space, step)
        after = server.last_change(space, step[1], since=since)
        if verdict is not None and status < 300 and after > before:
            expected[after] = verdict
    server.uninstall()
    found = tried(chronicle, tmp_path, documents, space, since)
    for revision, verdict in expected.items():
        # Policies that do not match leave a write out.
        assert_same(verdict, *found.get(revision, (None, ())))


def tried(
    chronicle: Chronicle, path: Path, documents: list[Any], space: str, since: int
) -> dict[int, tuple[Write, Sequence[ReplayOutcome]]]:
    """Return the writes that try-policy has judged, with their outcomes, by revision."""
    judged: dict[int, tuple[Write, Sequence[ReplayOutcome]]] = {}
    whole = Report.add

    def add(self: Report, write: Write, outcomes: Sequence[ReplayOutcome]) -> None:
        judged[write.revision] = (write, list(outcomes))
        whole(self, write, outcomes)

    file = path / "policies.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Report, "add", add)
        done = chronicle("try-policy", "-f", str(file), "--since", str(since), "-n", space, "-o", "json")
    assert done.code in (0, 1), done.err
    return judged


def assert_same(verdict: Verdict, write: Write | None, outcomes: Sequence[ReplayOutcome]) -> None:
    refusals = [each for each in outcomes if each.effect == REFUSED]
    context = (verdict, outcomes)
    assert bool(refusals) is bool(verdict.refused), context
    if refusals:
        first = refusals[0]
        binding = f" with binding '{first.binding}'" if first.binding else ""
        assert verdict.refused.endswith(f"denied request: {first.message}"), context
        assert f"olicy '{first.source}'{binding} denied" in verdict.refused, context
    warned = [
        f"Validation failed for ValidatingAdmissionPolicy '{each.source}' with binding '{each.binding}': {each.message}"
        for each in outcomes
        if each.effect == WARNED
    ]
    mutation_failed = "ValidatingAdmissionPolicy" not in verdict.refused and verdict.refused
    if mutation_failed:  # the server asks no validating policies then
        return
    assert list(dict.fromkeys(warned)) == verdict.warned, context  # a server sends each warning once
    audited: dict[str, Any] = {}
    for each in outcomes:
        if each.effect == AUDITED and each.annotation:
            audited[f"{each.source}/{each.annotation}"] = each.message.removeprefix(f"{each.annotation}: ")
        elif each.effect == AUDITED:
            audited.setdefault("", (each.source, each.message))
    assert audited == verdict.audited, context
    is_whole = write is not None and write.object is not None and "uid" in write.object["metadata"]
    if verdict.object is not None and write is not None and is_whole:
        mine, theirs = (_compared(each) for each in (write.object, verdict.object))
        assert mine == theirs, context
        assert any(each.effect == MUTATED for each in outcomes) or "seen" not in str(theirs), context


def _compared(obj: Any) -> Any:
    """Return the part of an object that is not drawn at random or stamped."""
    return obj.get("data"), obj["metadata"].get("labels"), obj["metadata"]["name"]
