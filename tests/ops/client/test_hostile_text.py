"""Texts of others in every place of a server's answers: no command lets them act on the terminal or forge a line."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import ADMIN
from server_in_thread import InThread, Running

from kubechronicle.ops import cli
from kubechronicle.ops.client import session
from kubechronicle.ops.client.commands import completion
from kubechronicle.ops.client.kubeconfig import ClusterTarget
from kubechronicle.ops.client.transport import Reply

FORGED = "FORGED revision 666"
HOSTILE = (
    f"\x1b[2J\x1b[31mx\r\n{FORGED}",
    f"\u202egpj.exe\u2066\n{FORGED}",
    f"\x9b2J\x85{FORGED}\u2028{FORGED}\x0b{FORGED}",
    f"\n{FORGED}\n---\n{FORGED}",
    "\x07\x08\x7f\u200b\u061c\ufeff\U000e0041\x00",
)
# Fields that the client parses. Their values are the server's own.
PARSED = frozenset({
    "apiVersion", "kind", "resourceVersion", "uid", "operation", "time", "creationTimestamp", "deletionTimestamp",
    "continue", "op", "path", "field", "code", "type", "revision",
})  # fmt: skip
COLOUR = re.compile("\x1b\\[[0-9]{1,2}m")


class Poisoned(InThread):
    """A transport that appends hostile text to names, keys and values in the answers."""

    def __init__(self, running: Running, target: ClusterTarget, seed: int) -> None:
        super().__init__(running, target.server.token, target.headers)
        self._random = random.Random(seed)
        self._share = (0.05, 0.3, 1.0)[seed % 3]

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        reply = super().send(method, path, headers, body)
        return Reply(reply.status, reply.headers, self._poisoned(path, reply.body))

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        lines = super().lines(path, headers)
        return lines if isinstance(lines, Reply) else (self._poisoned(path, line) for line in lines)

    def _poisoned(self, path: str, body: bytes) -> bytes:
        if path.partition("?")[0].endswith(("/api", "/apis", "/version")):
            return body
        try:
            value = json.loads(body)
        except ValueError:
            return body + self._text("").encode()
        return json.dumps(self._value(value, "")).encode()

    def _value(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            revision = "operation" in value
            return {
                self._key(key, name): each if revision and key == "metadata" else self._value(each, key)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._value(each, name) for each in value]
        return self._text(value) if isinstance(value, str) and name not in PARSED else value

    def _key(self, key: str, parent: str) -> str:
        return self._text(key) if parent in ("data", "annotations", "labels") else key

    def _text(self, text: str) -> str:
        return text + self._random.choice(HOSTILE) if self._random.random() < self._share else text


@pytest.fixture
def poisoned(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))  # without kubectl

    def run(seed: int, *arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(session, "make_transport", lambda target: Poisoned(running, target, seed))
        name, *rest = arguments
        assert cli.main([name, "--server", "https://in.process", "--token", ADMIN, *rest]) in (0, 1, 2, 3)
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def check(text: str) -> None:
    for line in text.split("\n"):
        plain = COLOUR.sub("", line)
        assert plain.isprintable(), plain
        assert not plain.startswith(FORGED)


TEXT_COMMANDS = (
    ("log", "-n", "NS"),
    ("log", "-n", "NS", "--show-secrets"),
    ("log", "deployment/web", "-n", "NS", "--field", "spec"),
    ("log", "-A", "--limit", "30"),
    ("blame", "deployment/web", "-n", "NS"),
    ("blame", "secret/key", "-n", "NS", "--show-secrets"),
    ("diff", "-n", "NS", "--from", "REV"),
    ("diff", "-n", "NS", "--from", "REV", "--show-secrets"),
    ("diff", "deployment/web", "-n", "NS", "--from", "REV"),
    ("who", "deleted", "configmap/settings", "-n", "NS"),
    ("who", "set", "deployment/web", "spec.replicas", "-n", "NS", "--all"),
    ("who", "changed", "deployment/web", "-n", "NS"),
    ("between", "REV", "now", "-n", "NS", "-v"),
    ("between", "REV", "now", "-n", "NS", "--by", "object"),
    ("incident", "now", "-n", "NS"),
    ("tree", "deployment/web", "-n", "NS", "--from", "1"),
    ("restore", "-n", "NS", "--to", "REV", "--prune", "--dry-run", "-v", "--show-secrets"),
    ("restore", "-n", "NS", "--to", "REV", "--yes", "--timeout", "0"),
    ("who", "created", "pod/none", "-n", "NS"),
    ("blame", "pod/none", "-n", "NS"),
)
PLAIN_COMMANDS = (
    ("at", "now", "get", "configmaps", "-n", "NS"),
    ("at", "REV", "get", "deployments", "-A", "-o", "wide"),
    ("at", "now", "get", "secrets", "-n", "NS", "-o", "name"),
    ("at", "now", "get", "pod", "none", "-n", "NS"),
    ("at", "now", "get", "revisions", "-n", "NS"),
    ("export", "-n", "NS", "--at", "REV"),
    ("completion", "words", "log", "configmap/", "-n"),
)
DOCUMENT_COMMANDS = (
    ("log", "-n", "NS"),
    ("blame", "deployment/web", "-n", "NS"),
    ("diff", "-n", "NS", "--from", "REV"),
    ("who", "changed", "deployment/web", "-n", "NS"),
    ("between", "REV", "now", "-n", "NS", "-v"),
    ("restore", "-n", "NS", "--to", "REV", "--dry-run"),
    ("export", "-n", "NS", "--at", "REV"),
    ("at", "now", "get", "configmaps", "-n", "NS"),
)


def filled(command: tuple[str, ...], shop: tuple[str, int]) -> list[str]:
    return [shop[0] if each == "NS" else str(shop[1]) if each == "REV" else each for each in command]


@pytest.mark.parametrize("command", [*TEXT_COMMANDS, *PLAIN_COMMANDS], ids=" ".join)
def test_text(poisoned: Callable[..., tuple[str, str]], shop: tuple[str, int], command: tuple[str, ...]) -> None:
    colour = ["--color", "always"] if command in TEXT_COMMANDS else []
    for seed in range(6):
        out, err = poisoned(seed, *filled(command, shop), *colour)
        assert out or err
        check(out)
        check(err)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", DOCUMENT_COMMANDS, ids=" ".join)
def test_documents(
    poisoned: Callable[..., tuple[str, str]], shop: tuple[str, int], command: tuple[str, ...], form: str
) -> None:
    kept = 0
    for seed in range(6):
        out, err = poisoned(seed, *filled(command, shop), "-o", form)
        check(out)
        check(err)
        documents = [json.loads(out)] if form == "json" and out else list(yaml.load_all(out, yaml.CSafeLoader))
        kept += sum(text.endswith(HOSTILE) for text in texts(documents))
    assert kept


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.items() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from texts(each)


def test_the_words_of_a_completion_are_single_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["role/plain", "role/a\nb", "role/$(reboot)", "role/`x`", "role/\x1b[2J", "role/a b", "system:node", "a/"]
    monkeypatch.setattr(completion, "_words", lambda before, prefix: words)
    assert completion.complete(["log", ""]) == ["role/plain", "system:node", "a/"]
