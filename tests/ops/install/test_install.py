"""ops/install/: each file is accepted by the program that reads it, and every flag in it by this server."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import open_server

from kubechronicle.ops.settings.flags import foreign
from kubechronicle.ops.settings.settings import BY_NAME, read_config

ROOT = Path(__file__).resolve().parents[3]
INSTALL = ROOT / "ops" / "install"
COLLECTIONS = {
    "Service": "/api/v1/namespaces/default/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "Pod": "/api/v1/namespaces/kube-system/pods",
}


def unknown_flags(arguments: list[str]) -> list[str]:
    names = [each.removeprefix("--").partition("=")[0] for each in arguments if each.startswith("--")]
    return [name for name in names if name != "config" and (name not in BY_NAME or name in foreign.BY_NAME)]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((INSTALL / name).read_text()))


def test_the_unit_is_valid_and_confined() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze on this machine")
    unit = INSTALL / "kubechronicle.service"
    found = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False).stderr
    lines = [line for line in found.splitlines() if "kubechronicle.service" in line]
    assert [line for line in lines if "is not executable: No such file" not in line] == []
    security = [tool, "security", "--offline=true", "--threshold=20", str(unit)]
    assert subprocess.run(security, capture_output=True, check=False).returncode == 0  # exposure of 2.0 at most


def test_the_unit_starts_the_server() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (INSTALL / "kubechronicle.service").read_text(), re.MULTILINE)
    program, command, *flags = shlex.split(line)
    assert (Path(program).name, command) == ("kubechronicle", "serve")
    assert unknown_flags(flags) == []
    assert read_config(INSTALL / "config.yaml")  # raises for an unknown setting


@pytest.mark.parametrize("name", ["pods.yaml", "static-pod.yaml"])
async def test_a_server_takes_the_manifests(name: str) -> None:
    async with open_server(loops=True) as server:
        for document in documents(name):
            answer = await server.ask("POST", f"{COLLECTIONS[document['kind']]}?fieldValidation=Strict", document)
            assert answer.status == 201, answer.json()
            assert answer.header_all("warning") == []


@pytest.mark.parametrize("name", ["pods.yaml", "static-pod.yaml"])
def test_the_flags_of_manifests_are_known(name: str) -> None:
    for document in documents(name):
        spec = document["spec"].get("template", document)["spec"] if document["kind"] != "Service" else {}
        for container in spec.get("containers") or ():
            assert unknown_flags(container["args"]) == []
            assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_image_copies_all_that_the_wheel_needs() -> None:
    text = (INSTALL / "Containerfile").read_text()
    build, _, final = text.partition("\nFROM ")[2].partition("\nFROM ")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", build, re.MULTILINE) for name in line.split()]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    links = [path.resolve().name for path in (ROOT / "kubechronicle").iterdir() if path.is_symlink()]
    assert set(links) <= set(copied)
    assert re.search(r"^USER (?!0\b|root)\d+", final, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", final, re.MULTILINE)
    program, command, *flags = yaml.safe_load(entry)
    assert (program, command, unknown_flags(flags)) == ("kubechronicle", "serve", [])
    assert (
        str(
            yaml.safe_load((INSTALL / "pods.yaml").read_text().split("\n---\n")[2])["spec"]["template"]["spec"][
                "securityContext"
            ]["runAsUser"]
        )
        in final
    )


def test_the_balancer_asks_what_the_server_answers() -> None:
    text = (INSTALL / "haproxy.cfg").read_text()
    assert "option httpchk GET /readyz" in text
    tool = shutil.which("haproxy")
    if tool is not None:
        subprocess.run([tool, "-c", "-f", str(INSTALL / "haproxy.cfg")], check=True, capture_output=True)
