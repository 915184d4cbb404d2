"""Each command against a server: its output in each format, and its exit code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import JOE
from server_in_thread import Running

from kubechronicle.ops.client.commands import completion

Chronicle = Callable[..., Any]
HISTORY = "history.kubechronicle.dev/v1"


def headings(text: str) -> list[str]:
    return re.findall(r"^revision \d+  .*\)  (.*?) -n ", text, re.MULTILINE)


# -- log --------------------------------------------------------------------------------------------------------------


def test_log(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("log", "deployment/web", "-n", name)
    assert headings(output.out) == [f"{verb} deployments.apps/web" for verb in ("patch", "patch", "create")]
    assert "  by admin, hand/1.0, manager hand, from 127.0.0.1\n    spec.replicas: 3 → 5\n" in output.out
    assert "    spec.template.spec.containers[name=web].image: web:1 → web:2\n" in output.out
    assert chronicle("log", "deploy", "web", "-n", name).out.count("revision") == 3
    assert len(headings(chronicle("log", "-n", name).out)) == 8
    assert len(headings(chronicle("log", "-n", name, "--since", str(revision)).out)) == 5
    assert len(headings(chronicle("log", "-n", name, "--until", str(revision)).out)) == 3
    assert len(headings(chronicle("log", "configmaps", "-n", name).out)) == 3
    assert headings(chronicle("log", "deploy/web", "-n", name, "--field", "{.spec.replicas}").out) == [
        "patch deployments.apps/web",
        "create deployments.apps/web",
    ]
    limited = chronicle("log", "-n", name, "--limit", "2")
    assert len(headings(limited.out)) == 2
    assert "--limit 0 prints all" in limited.err
    assert chronicle("log", "-n", name, "--user", "nobody").err.startswith(
        "no changes: 9 changes were searched, from 2"
    )
    assert "\033[" not in output.out
    assert "\033[31m3\033[0m → \033[32m5\033[0m" in chronicle("log", "deploy/web", "-n", name, "--color", "always").out


def test_log_masks_secrets(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, _ = shop
    assert "data.a: *** (before) → *** (after)" in chronicle("log", "secret/key", "-n", name).out
    assert "data.a: aHVzaA== → cXVpZXQ=" in chronicle("log", "secret/key", "-n", name, "--show-secrets").out
    for form in ("json", "yaml"):
        assert "aHVzaA" not in chronicle("log", "secret/key", "-n", name, "-o", form).out


def test_log_as_json_and_yaml(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    document = chronicle("log", "deployment/web", "-n", shop[0], "-o", "json").json()
    assert document["kind"] == "RevisionList"
    assert [each["operation"] for each in document["items"]] == ["Update", "Update", "Create"]
    assert document["items"][1]["diff"][-1] == {"op": "replace", "path": "/spec/replicas", "value": 5, "old": 3}
    assert yaml.safe_load(chronicle("log", "deployment/web", "-n", shop[0], "-o", "yaml").out) == document


def test_the_annotation_of_kubectl_apply_is_masked(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, revision = shop
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"a":"aHVzaA=="}}'}
    path = f"/api/v1/namespaces/{name}/secrets"
    running.ask("PATCH", f"{path}/key", {"metadata": {"annotations": applied}})
    for command in (
        ("log", "secret/key"),
        ("log", "secret/key", "-o", "json"),
        ("blame", "secret/key"),
        ("blame", "secret/key", "-o", "json"),
        ("diff", "--from", str(revision)),
        ("who", "changed", "secret/key"),
        ("diff", "--from", str(revision), "-o", "json"),
        ("restore", "--to", str(revision), "--dry-run"),
        ("between", str(revision), "now", "-v"),
        ("between", str(revision), "now", "-v", "-o", "json"),
        ("restore", "secret/key", "--to", str(revision), "--dry-run", "-o", "json"),
    ):
        output = chronicle(*command, "-n", name)
        assert output.code < 2, output.err
        assert "aHVzaA" not in output.out, command


# -- blame ------------------------------------------------------------------------------------------------------------


def test_blame(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("blame", "deployment/web", "-n", name)
    lines = {line.split("admin", 1)[1].strip(): int(line.split()[0]) for line in output.out.splitlines()}
    assert lines["replicas: 5"] == revision + 1
    assert lines["- image: web:2"] == revision + 2
    assert lines["name: web"] < revision
    then = chronicle("blame", "deployment/web", "-n", name, "--at", str(revision)).out
    assert "replicas: 3" in then
    assert "web:2" not in then
    whole = yaml.safe_load("\n".join(line.partition("admin  ")[2] for line in output.out.splitlines()))
    assert whole["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    document = chronicle("blame", "deploy/web", "-n", name, "-o", "json").json()
    fields = {each["field"]: each for each in document["fields"]}
    assert (fields["spec.replicas"]["value"], fields["spec.replicas"]["revision"]) == (5, str(revision + 1))
    assert "***" in chronicle("blame", "secret/key", "-n", name).out
    assert "cXVpZXQ=" in chronicle("blame", "secret/key", "-n", name, "--show-secrets").out


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("diff", "deployment/web", "-n", name, "--from", str(revision), "--to", str(revision + 1))
    assert output.code == 1
    assert [line for line in output.out.splitlines() if line[0] in "+-"] == [
        f"--- Deployment.apps/{name}/web at {revision}",
        f"+++ Deployment.apps/{name}/web at {revision + 1}",
        "-  replicas: 3",
        "+  replicas: 5",
    ]
    whole = chronicle("diff", "-n", name, "--from", str(revision))
    assert f"--- ConfigMap/{name}/settings at {revision}\n+++ ConfigMap/{name}/settings (absent)\n" in whole.out
    assert f"--- ConfigMap/{name}/new (absent)\n" in whole.out
    assert "-  a: '*** (before)'\n+  a: '*** (after)'\n" in whole.out
    assert chronicle("diff", "-n", name, "--from", "now").code == 0
    document = chronicle("diff", "-n", name, "--from", str(revision), "-o", "json").json()["differences"]
    assert [(each["kind"], each["name"], each["change"]) for each in document] == [
        ("ConfigMap", "new", "Create"),
        ("ConfigMap", "settings", "Delete"),
        ("Secret", "key", "Update"),
        ("Deployment", "web", "Update"),
    ]


# -- who --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("deleted", "cm/settings"), r"admin deleted configmap/settings in namespace \S+ at \S+ \S+ \(\d+s ago\)\."),
        (("created", "configmap", "new"), r"admin created configmap/new in namespace \S+ at .*"),
        (("changed", "cm/settings"), r"admin deleted configmap/settings .*"),
        (("changed", "deployment/web"), r"admin changed deployment.apps/web .*"),
        (("set", "deploy/web", "spec.replicas"), r"admin set spec.replicas of deployment.apps/web .* from 3 to 5 .*"),
        (("set", "deploy", "web", "spec.template.spec.containers.image"), r"admin set .* from web:1 to web:2 at .*"),
        (("set", "deploy/web", "spec.selector"), r"admin set spec.selector of .* when creating it at .*"),
        (("set", "secret/key", "data.a"), r"admin set data.a of secret/key in namespace \S+ at .*"),
        (("deleted", "deployment/web"), None),
    ],
)
def test_who(chronicle: Chronicle, shop: tuple[str, int], arguments: tuple[str, ...], answer: str | None) -> None:
    output = chronicle("who", *arguments, "-n", shop[0])
    first, *rest = output.out.splitlines()
    if answer is None:
        assert output.code == 1
        assert first.startswith("Nobody ")
    else:
        assert output.code == 0
        assert re.fullmatch(answer, first), first
        assert {line.split()[0] for line in rest if line} >= {"revision", "time", "user", "request", "agent"}
    assert "hush" not in output.out
    assert "aHVzaA" not in output.out


def test_flags_may_stand_anywhere(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    for arguments in (
        ("deleted", "-n", shop[0], "cm/settings"),
        ("-n", shop[0], "deleted", "cm", "settings"),
        ("deleted", "cm", f"--namespace={shop[0]}", "settings", "--since", "-1h"),
        ("deleted", "cm/settings", f"-n{shop[0]}"),
    ):
        assert chronicle("who", *arguments).out.startswith("admin deleted configmap/settings"), arguments


def test_who_with_all_answers_and_as_json(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("who", "set", "deployment/web", "spec.replicas", "--all", "-n", name)
    assert [" from 3 to 5 " in line for line in output.out.splitlines()] == [True, False]
    early = chronicle("who", "set", "deploy/web", "spec.replicas", "-n", name, "--until", str(revision))
    assert " to 3 when creating it" in early.out
    document = chronicle("who", "set", "deploy/web", "spec.replicas", "-n", name, "-o", "json").json()
    assert [(each["user"], each["old"], each["new"]) for each in document["answers"]] == [("admin", [3], [5])]
    assert chronicle("who", "deleted", "deploy/web", "-n", name, "-o", "json").code == 1


# -- between ----------------------------------------------------------------------------------------------------------


def test_between(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    span = (str(revision), "now", "-n", name)
    assert chronicle("between", *span).out == "admin  5  1 created, 3 changed, 1 deleted\n5 changes\n"
    kinds = chronicle("between", *span, "--by", "kind").out.splitlines()
    assert [line.split()[:2] for line in kinds] == [
        ["configmaps", "2"],
        ["deployments.apps", "2"],
        ["secrets", "1"],
        ["5", "changes"],
    ]
    verbose = chronicle("between", *span, "--by", "object", "-v").out
    assert f"patch deployments.apps/web -n {name}  by admin  spec.replicas: 3 → 5" in verbose
    assert "aHVzaA" not in verbose
    document = chronicle("between", *span, "-o", "json").json()
    assert document["groups"] == [
        {"user": "admin", "changes": 5, "created": 1, "changed": 3, "deleted": 1, "marked-for-deletion": 0}
    ]
    assert chronicle("between", "now", "now", "-n", name).out.startswith("Nothing changed: none of the 9 changes")
    assert "5  1 created" in chronicle("between", str(revision), "now", "--user", "adm*", "-n", name).out
    # Without -n: the namespace of the context, here default, which has no changes. With -A: the cluster.
    unchanged = chronicle("between", str(revision), "now").out
    assert re.match(
        r"Nothing changed: none of the \d+ changes lies in", unchanged
    )  # how many, depends on the tests before
    everywhere = chronicle("between", str(revision - 4), "now", "-A", "--by", "object").out
    assert f"deployments.apps/web -n {name}  3  1 created, 2 changed\n" in everywhere
    assert f"\nnamespaces/{name} " in everywhere


def test_between_counts_the_marks_of_a_transaction(
    chronicle: Chronicle, shop: tuple[str, int], running: Running
) -> None:
    name, _ = shop
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": name}
    metadata = {"name": "kept", "namespace": name, "finalizers": ["example.com/keep"]}
    made = running.ask("POST", f"/api/v1/namespaces/{name}/configmaps", {"metadata": metadata})
    patch = {"verb": "patch", **reference, "name": "new", "patchType": "merge", "patch": {"data": {"a": "b"}}}
    changes = [{"verb": "delete", **reference, "name": "kept"}, patch]
    transaction = {"apiVersion": HISTORY, "kind": "Transaction", "spec": {"changes": changes}}
    running.ask("POST", f"/apis/{HISTORY}/transactions", transaction)
    span = (made["metadata"]["resourceVersion"], "now", "-n", name)
    for by in ("user", "kind"):
        assert "  2  1 changed, 1 marked for deletion\n" in chronicle("between", *span, "--by", by).out


# -- at ---------------------------------------------------------------------------------------------------------------


def test_at_without_kubectl(
    chronicle: Chronicle, shop: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, revision = shop
    monkeypatch.setenv("PATH", str(tmp_path))
    output = chronicle("at", str(revision), "get", "deployments", "-n", name)
    assert [line.split()[:2] for line in output.out.splitlines()] == [["NAME", "READY"], ["web", "0/3"]]
    assert chronicle("at", str(revision), "get", "cm", "-n", name, "-o", "name").out == "configmap/settings\n"
    now = chronicle("at", "now", "get", "deploy/web", "-n", name, "-o", "json")
    assert json.loads(now.out)["spec"]["replicas"] == 5
    assert "supports only `get`, not describe" in chronicle("at", "now", "describe", "pods").err


def test_at_runs_kubectl(
    chronicle: Chronicle, shop: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """kubectl gets a temporary kubeconfig for the moment. Flags before the moment and --server choose the server."""
    kubectl, record = tmp_path / "kubectl", tmp_path / "record"
    kubectl.write_text(
        f'#!{sys.executable}\nimport os, sys\nsys.stdout = open({str(record)!r}, "w")\n'
        'print(sys.argv[1:], open(os.environ["KUBECONFIG"]).read())\n'
        'print(os.environ["KUBECONFIG"])\nsys.exit(3)\n'
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    code = chronicle("at", "-n", "shop", "17", "get", "pods", "-o", "wide", "--server=https://other:1", "-w").code
    assert code == 3
    output = record.read_text()
    assert "['get', 'pods', '-o', 'wide', '-w']" in output
    assert '"server": "https://other:1/history/at/17"' in output
    assert '"namespace": "shop"' in output
    assert not Path(output.splitlines()[-1]).exists()


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("log", "deplyment/web"), "the server has no kind 'deplyment'; did you mean deployment?"),
        (("log", "a/b/c"), "'a/b/c' is not an object; name it as TYPE/NAME"),
        (("log", "--nope"), "unknown argument --nope; `kubechronicle log --help` has examples"),
        (("log", "--since", "tomorrow"), "'tomorrow' is no moment; name a revision (12345), a time"),
        (("log", "--since", ""), "--since is empty: name a moment"),
        (("log", "--until="), "--until is empty"),
        (("export", "-n", "default", "--at", ""), "--at is empty"),
        (("at", "", "get", "pods"), "a moment is empty"),
        (("log", "--limit", "-1"), "--limit must not be negative"),
        (("log", "--field", "a..b"), "'a..b' is no path of a field"),
        (("blame", "deployment"), "which deployment? name it as TYPE/NAME"),
        (("blame", "cm/nothing"), "there is no configmap/nothing in namespace default"),
        (
            ("diff", "cm/nothing", "--from", "1"),
            "there is no configmap/nothing in namespace default, nor was there one",
        ),
        (("diff", "--from", "100y"), "is no moment"),
        (("diff", "--from", "999999999"), "revision 999999999 lies in the future"),
        (("who", "ate", "pod/x"), "'ate' is none of created, deleted, changed, set, can, tried, entered; "),
        (("log", "-o", "xml"), "-o/--output: 'xml' is none of text, json, yaml; "),
        (("bisect", "deployment/web"), "deployment/web is no condition; it comes first, as in `bisect 'self."),
        (("who", "set", "pod/x"), "a field is missing"),
        (("between", "1h", "2h"), "1h is later than 2h: name the earlier moment first"),
        (("log", "--since", "9", "--until", "8"), "9 is later than 8"),
        (("log", "--since", "2999-01-01"), "2999-01-01 lies in the future"),
        (("who", "deleted", "cm/x", "--since", "2024-01-02", "--until", "2024-01-01"), "is later than 2024-01-01"),
        (("between",), "the following arguments are required: T1"),
        (("at", "1"), "a kubectl command is missing"),
        (("restore", "--to", "1"), "name the object to restore"),
        (("restore", "-n", "default", "--to", "now"), "--to must name a moment of the past"),
        (("restore", "-n", "nothing", "--to", "2"), "there was no namespace nothing at 2"),
        (("restore", "cm/nothing", "--to", "2"), "there was no configmap/nothing in namespace default at 2"),
        (("export", "-n", "nothing", "--at", "now"), "there was no namespace nothing at now"),
    ],
)
def test_mistakes_are_one_line(chronicle: Chronicle, arguments: tuple[str, ...], message: str) -> None:
    output = chronicle(*arguments)
    assert (output.code, output.out) == (2, "")
    assert message in output.err
    assert output.err.count("\n") == 1


def test_missing_permissions_are_named(chronicle: Chronicle, shop: tuple[str, int], running: Any) -> None:
    name, revision = shop
    output = chronicle("log", "deploy/web", "-n", name, token=JOE)
    assert output.code == 2
    assert output.err.startswith("kubechronicle: permission denied: revisions.history.kubechronicle.dev is forbidden: ")
    assert 'User "joe" cannot list resource "revisions"' in output.err
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
    history = {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["get", "list"]}
    running.ask("POST", f"{rbac}/roles", {"metadata": {"name": "auditor"}, "rules": [history]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "auditor"}
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    running.ask("POST", f"{rbac}/rolebindings", {"metadata": {"name": "joe"}, "roleRef": role, "subjects": subjects})
    log = chronicle("log", "secret/key", "-n", name, token=JOE)
    assert log.out.count("no permission to read the object") == 2
    hidden = chronicle("who", "set", "secret/key", "data.a", "-n", name, token=JOE)
    assert "require permission to get secrets" in hidden.err
    deleted = chronicle("who", "deleted", "cm/settings", "-n", name, token=JOE)
    assert deleted.out.startswith("admin deleted configmap/settings")
    exported = chronicle("export", "-n", name, "--at", str(revision), token=JOE)
    assert exported.code == 2


# -- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["l"], {"log"}),
        (["log", "dep"], {"deployment/"}),
        (["log", "-n", "SHOP", "deployment/"], {"deployment/web"}),
        (["blame", "-n", "SHOP", "deploy", "w"], {"web"}),
        (["who", "de"], {"deleted"}),
        (["who", "can", "up"], {"update"}),
        (["can-i", "delete", "configm"], {"configmap/"}),
        (["bisect", "true", "-n", "SHOP", "deployment/"], {"deployment/web"}),
        (["who", "created", "-n", "SHOP", "secret/"], {"secret/key"}),
        (["who", "deleted", "-n", "SHOP", "cm/"], {"cm/settings", "cm/new"}),
        (["log", "-n", "SHO"], {"SHOP"}),
        (["log", "--out"], {"--output"}),
        (["log", "-o", ""], {"text", "json", "yaml"}),
        (["restore", "--to", "2"], {"2h"}),
        (["at", "1"], {"10m", "1h", "1d"}),
        (["at", "1h", "de"], {"describe"}),
        (["completion", "b"], {"bash"}),
        (["nonesuch", ""], set()),
        (["log", "nonesuch/"], set()),
    ],
)
def test_completion(
    chronicle: Chronicle,
    shop: tuple[str, int],
    tmp_path: Path,
    typed: list[str],
    expected: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://in.process"}}],
        "users": [{"name": "a", "user": {"token": "token-of-admin"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    words = [word.replace("SHOP", shop[0]).replace("SHO", shop[0][:-1]) for word in typed]
    completions = completion.complete(words)
    if "SHO" in typed:
        assert shop[0] in completions
    else:
        assert set(completions) == {word.replace("SHOP", shop[0]) for word in expected}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(chronicle: Chronicle, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    from kubechronicle.ops import cli

    assert cli.main(["completion", shell]) == 0
    assert "kubechronicle completion words" in capsys.readouterr().out
