"""Configurations of encryption at rest, real KMS plugins (tests/clients/kms), and a search of files for secrets."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import BINARIES, eventually

SECRETS = "/api/v1/namespaces/default/secrets"


def key(name: str) -> dict[str, str]:
    """Return a key of 32 bytes, the same for the same name."""
    return {"name": name, "secret": base64.b64encode(name.encode().ljust(32, b"!")).decode()}


def write_configuration(path: Path, *providers: Mapping[str, Any], resources: Sequence[str] = ("secrets",)) -> Path:
    """Write an EncryptionConfiguration, by one rename as tools do."""
    document = {
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{"resources": list(resources), "providers": list(providers)}],
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.replace(path)
    return path


def secret(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"text": text}}


def text_of(obj: Mapping[str, Any]) -> str:
    return base64.b64decode(obj["data"]["text"]).decode()


@dataclass
class Plugin:
    """A KMS plugin as a process. ``control``: the file that it reads at each call (tests/clients/kms/main.go)."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=lambda: {"key": "1"})
    process: subprocess.Popen[bytes] | None = None

    @property
    def provider(self) -> dict[str, Any]:
        """The provider in a configuration."""
        endpoint = f"unix://{self.directory}/kms.sock"
        return {"kms": {"apiVersion": "v2", "name": "vault", "endpoint": endpoint, "timeout": "1s"}}

    @property
    def calls(self) -> list[str]:
        return (self.directory / "kms.log").read_text().splitlines()

    def set(self, **settings: Any) -> None:
        self.settings.update(settings)
        new = self.directory / "control.new"
        new.write_text(json.dumps(self.settings))
        new.replace(self.directory / "control.json")

    def start(self) -> Plugin:
        self.set()
        command = [str(BINARIES / "kms-plugin"), f"{self.directory}/kms.sock", f"{self.directory}/control.json"]
        with (self.directory / "kms.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually((self.directory / "kms.sock").exists, "the plugin listens")
        return self

    def kill9(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def files_with(directory: Path, *planted: str) -> list[str]:
    """Return the files below a directory that hold one of the texts, or its base64 at any offset."""
    needles = [needle for text in planted for needle in _forms(text)]
    found = []
    for root, _, names in os.walk(directory):
        for name in names:
            path = Path(root) / name
            if path.is_file() and not path.is_socket() and any(needle in path.read_bytes() for needle in needles):
                found.append(str(path))
    return found


def _forms(text: str) -> list[bytes]:
    data = text.encode()
    encoded = [base64.b64encode(bytes(shift) + data)[4:-4] for shift in range(3)]
    return [data, *encoded]
