"""An incident at night: each question is answered by one command. docs/forensics.md has the same story.

Jane scales a Deployment to zero. A CI service account sets an image that does not exist. Bob deletes the namespace by
mistake. Then each change is traced to its author, and everything is restored.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from harness import BINARIES, ROOT, Server, prepare, unique
from programs import Kubectl

from kubechronicle.ops import cli

COMMANDS = Path(sys.executable).parent
STORY = ROOT / "docs" / "forensics.md"
SHOP = (Path(__file__).parent / "incident.yaml").read_text()


@dataclass
class Incident:
    """``yesterday``: the moment before the incident. ``export``: the folder exported at that moment."""

    now: Kubectl
    config: Path
    yesterday: str
    export: Path
    namespace: str

    def ask(self, *arguments: str, code: int = 0) -> str:
        """Run `kubechronicle …` and assert its exit code. Return its output, or its errors if ``code`` is 2."""
        output, errors = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            patch.setenv("KUBECONFIG", str(self.config))
            exit_code = cli.main(arguments)
        assert exit_code == code, f"{arguments}: {exit_code}: {output.getvalue()}{errors.getvalue()}"
        return output.getvalue() if code < 2 else errors.getvalue()

    def plugin(self, *arguments: str) -> str:
        """Run `kubectl chronicle …` and return its output."""
        path = f"{COMMANDS}:{BINARIES}:{os.environ['PATH']}"
        return self.now("chronicle", *arguments, environment={"KUBECONFIG": str(self.config), "PATH": path})


@pytest.fixture(scope="module")
def incident(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    prepare("kubectl")
    home, api = tmp_path_factory.mktemp("incident"), server.api()
    name, ci = unique("shop"), unique("ci")
    now = Kubectl(str(BINARIES / "kubectl"), server, home)
    config = home / "config"
    config.write_text(server.kubeconfig.read_text())
    for each in (name, ci):
        api.namespace(each)
    now("create", "serviceaccount", "deployer", "-n", ci)
    now("create", "rolebinding", "jane", "-n", name, "--clusterrole=edit", "--user=jane")
    now("create", "rolebinding", "ci", "-n", name, "--clusterrole=edit", f"--serviceaccount={ci}:deployer")
    now("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", "--user=bob")
    now("apply", "-n", name, "-f", "-", stdin=SHOP)
    incident = Incident(now, config, datetime.now(UTC).isoformat(), home / "yesterday.yaml", name)
    incident.export.write_text(incident.ask("export", "-n", name, "--at", incident.yesterday, "--show-secrets"))

    def as_user(user: str, *arguments: str) -> None:
        credentials = home / f"{user}.config"
        command = [*server.command(), "kubeconfig", *server.where(), "--user", user]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        credentials.write_text(made.stdout)
        now("--kubeconfig", str(credentials), *arguments)

    as_user("jane", "scale", "-n", name, "deployment/web", "--replicas=0")
    token = now("create", "token", "deployer", "-n", ci).strip()
    bot = home / "bot.config"
    bot.write_text(config.read_text())
    now("--kubeconfig", str(bot), "config", "set-credentials", "bot", "--token", token)
    now("--kubeconfig", str(bot), "config", "set-context", "--current", "--user", "bot")
    now("--kubeconfig", str(bot), "set", "image", "-n", name, "deployment/web", "web=example.invalid/shop:2")
    as_user("bob", "delete", "namespace", name)
    yield incident
    for each in (name, ci):
        api.request("DELETE", f"/api/v1/namespaces/{each}")
    now("delete", "clusterrolebinding", name)
    api.close()


def test_the_incident(incident: Incident) -> None:
    """The whole story in order. It is one test, as its end changes the answers of its start."""
    ask, name, yesterday, before = incident.ask, incident.namespace, incident.yesterday, ("-n", incident.namespace)
    # The changes.
    assert re.search(r"^bob +\d+ ", ask("between", yesterday, "now", *before), re.MULTILINE)
    # Author of the deletion, and the contents.
    deleted = incident.plugin("who", "deleted", "namespace", name)
    assert deleted.startswith(f"bob deleted namespace/{name} at ")
    assert re.search(rf"request +delete /api/v1/namespaces/{name}$", deleted, re.MULTILINE)
    because = ask("who", "deleted", "configmap/settings", *before)
    assert f"because bob deleted namespace/{name} at " in because
    # Authors of the scaling and of the image.
    assert ask("who", "set", "deployment/web", "spec.replicas", *before).startswith(
        f"jane set spec.replicas of deployment.apps/web in namespace {name} from 3 to 0 at "
    )
    image = ask("who", "set", "deployment/web", "spec.template.spec.containers[name=web].image", *before, "-o", "json")
    [answer] = json.loads(image)["answers"]
    assert re.fullmatch(r"system:serviceaccount:ci-\d+:deployer", answer["user"])
    assert (answer["old"], answer["new"]) == (["example.invalid/shop:1"], ["example.invalid/shop:2"])
    nothing = ask("who", "deleted", "deployment/nothing", *before, code=2)
    assert f"there is no deployment.apps/nothing in namespace {name}, nor was there one since" in nothing
    # All changes of the Deployment, newest first.
    log = ask("log", "deployment/web", *before)
    assert [line.split(": ", 1)[1] for line in log.splitlines() if " → " in line] == [
        "example.invalid/shop:1 → example.invalid/shop:2",
        "3 → 0",
    ]
    assert "    deleted\n" in log
    assert "    created\n" in log
    # Its states just before the deletion, and yesterday.
    gone = next(line for line in log.splitlines() if line.startswith("revision ")).split()[1]
    blame = ask("blame", "deployment/web", *before, "--at", str(int(gone) - 1))
    assert re.search(r"  jane +  replicas: 0$", blame, re.MULTILINE)
    assert re.search(r"deployer +image: example.invalid/shop:2$", blame, re.MULTILINE)
    then = incident.plugin("at", yesterday, "get", "deployment", "web", *before, "-o", "jsonpath={.spec.replicas}")
    assert then == "3"
    assert "-  replicas: 3\n+  replicas: 0\n" in ask(
        "diff", "deployment/web", *before, "--from", yesterday, "--to", str(int(gone) - 1), code=1
    )
    # The restore.
    restore = ("restore", *before, "--to", yesterday)
    plan = ask(*restore, "--dry-run")
    assert f"+ recreate  namespace/{name}" in plan
    assert "nothing was restored: --yes restores without asking" in ask(*restore, code=2)
    assert f"namespace/{name} created" in ask(*restore, "--yes")
    differences = incident.now.call("diff", "-f", str(incident.export))
    assert (differences.returncode, differences.stdout) == (0, ""), differences.stdout + differences.stderr
    assert ask(*restore, "--yes").endswith(" objects of then is as it was.\n")
    assert ask("diff", *before, "--from", yesterday, "--no-status") == ""


def test_a_user_sees_only_permitted_objects(incident: Incident) -> None:
    """The command has the rights of its user, as kubectl."""
    as_other = ("-n", incident.namespace, "--as", "mallory")  # jane may edit, which includes revisions
    message = incident.ask("who", "set", "secret/key", "data.password", *as_other, code=2)
    assert message.startswith(
        "kubechronicle: permission denied: revisions.history.kubechronicle.dev is forbidden: User"
    )


def test_the_commands_in_the_documentation_exist() -> None:
    """Every command and flag on the page exists."""
    from kubechronicle.ops.client import dispatch

    commands = re.findall(r"^\$ kubectl chronicle (\S+) ?(.*)$", STORY.read_text(), re.MULTILINE)
    assert {name for name, _ in commands} >= {"between", "who", "log", "blame", "diff", "at", "restore", "export"}
    for name, rest in commands:
        dispatch.parse(name, re.sub(r" *[|>].*", "", rest).replace("'", "").split())


def test_restore_waits_for_a_namespace_in_deletion(incident: Incident) -> None:
    """A finalizer keeps the namespace. Without a timeout it is reported. After its removal, everything is restored."""
    now, name = incident.now, unique("stuck")
    now("create", "namespace", name)
    now("create", "configmap", "kept", "-n", name, "--from-literal=a=b")
    now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/mine"]}}')
    moment = datetime.now(UTC).isoformat()
    now("delete", "namespace", name, "--wait=false")
    # The report has the finalizer as soon as the namespace controller has written it to the conditions.
    now("wait", f"namespace/{name}", "--for=condition=NamespaceFinalizersRemaining", "--timeout=60s")
    restore = ("restore", "-n", name, "--to", moment, "--yes")
    hindered = incident.ask(*restore, "--timeout", "0.3", code=2)
    assert hindered.endswith(
        f"{name} is still being deleted after 0.3 s: blocked by finalizers: configmap/kept has example.com/mine\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "kubechronicle.ops.cli", *restore],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KUBECONFIG": str(incident.config)},
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith(f"To restore namespace {name} as of ")
        now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "configmap/kept created\n" in waiting.communicate(timeout=60)[0]
        assert waiting.returncode == 0
    assert now("get", "configmap/kept", "-n", name, "-o", "jsonpath={.metadata.finalizers[0]}") == "example.com/mine"
    now("patch", "configmap/kept", "-n", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    now("delete", "namespace", name, "--wait=false")
