"""Normal forms of answers: values that differ by server and run become ordinals, first seen first."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
SERVICE_IP = re.compile(r"\b10\.96\.\d{1,3}\.\d{1,3}\b(?!/)")
RANDOM_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b")
# Revisions within texts: objects printed in messages, and the newest revision in refusals.
REVISION = re.compile(r'([rR]esourceVersion\\*"?: ?\\*"?|, current: |resource version: )[1-9]\d*')
# The place in the source that made a scheme: it depends on the paths of the build, not on the request.
SCHEME = re.compile(r'(?<=in scheme )\\*"[^"]*"')
NODE_PORT = re.compile(r"(?<=[: ])3[0-2]\d{3}(?=[/},\s]|$)")
NUMBER = re.compile(r'(?<=[("])\d{2,}(?=[)"\\])')
AGE = re.compile(r"\d+(?:ms|[smhdy])(?:\d+[smhd])?")
GENERATED = re.compile(r".*[a-z0-9]{5}")
NEAR = 2  # days around the present: a time in these is the servers' clock, not the request's
PORTS = range(30000, 32768)
PORT_KEYS = frozenset({"nodePort", "healthCheckNodePort"})
# Values that describe the installation: builds, addresses and keys.
LOCAL_KEYS = frozenset({
    "buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "jwks_uri", "platform",
    "serverAddress", "emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor",
})  # fmt: skip
DISCOVERY_KEYS = frozenset({"groups", "items", "paths"})
ORDER = ("operation", "subresource", "manager", "apiVersion")
CONFLICT = "FieldManagerConflict"
OWN_GROUP = ".kubechronicle.dev"
SECRET_KEYS = frozenset({"token"})  # in the answers of token requests


class Normaliser:
    """Tokens for one server's values within one sequence, and the way back from a token to the value."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._step = 0
        self._names: dict[str, str] = {}
        self.given = ""  # texts of all requests: a value that was asked for is no random one
        today = datetime.datetime.now(datetime.UTC).date()
        self._near = {(today + datetime.timedelta(days=n)).isoformat() for n in range(-NEAR, NEAR + 1)}

    def token(self, family: str, value: str) -> str:
        """Return the token of a value: the step that showed it first, and its place among the new ones of that step.

        So a value that only one server shows does not shift the tokens of later steps.
        """
        known = self._tokens.get((family, value))
        if known is None:
            self._counts[family] = self._counts.get(family, 0) + 1
            known = self._tokens[family, value] = f"<{family}:{self._step}.{self._counts[family]}>"
            self._values[known] = value
        return known

    def value_of(self, token: str) -> str | None:
        return self._values.get(token)

    def generated(self, request: Any, name: Any) -> None:
        """Note a name that the server made from the request's metadata.generateName."""
        asked = request.get("metadata") if isinstance(request, Mapping) else None
        prefix = asked.get("generateName") if isinstance(asked, Mapping) else None
        if not isinstance(prefix, str) or not prefix or asked is None or asked.get("name"):
            return
        start = prefix.partition("$ID")[0][:58]
        if isinstance(name, str) and GENERATED.fullmatch(name) and name.startswith(start) and name not in self._names:
            self._names[name] = self.token("generated", name)

    def answer(self, data: Any, names: Mapping[str, str]) -> Any:
        self._shared = names
        self._step += 1
        self._counts.clear()
        form = self._node(data, "")
        if isinstance(form, dict) and str(form.get("kind", "")).endswith(("List", "Table")):
            without_revision(form)
        if isinstance(form, list):
            form = [event for event in form if not is_passing_bookmark(event)]
        for event in form if isinstance(form, list) else ():
            if isinstance(event, dict) and event.get("type") == "BOOKMARK":
                without_revision(event.get("object"))
        if isinstance(form, dict) and form.get("kind") == "SelfSubjectRulesReview":
            sort_rules(form)
        return form

    def _node(self, node: Any, key: str) -> Any:
        if isinstance(node, dict):
            # In the order of keys: the servers write fields in orders of their own, and tokens are numbered.
            return {self._text(k): self._node(node[k], k) for k in sorted(node, key=str)}
        if isinstance(node, list):
            if key == "managedFields":
                node = in_order(node)
            elif key == "causes" and CONFLICT in str(node[:1]):
                node = sorted(node, key=str)  # the reference lists managers in the random order of a map
            return [self._node(v, key) for v in (shared_part(node, key) if key in DISCOVERY_KEYS else node)]
        if isinstance(node, str):
            return self._string(node, key)
        if key in PORT_KEYS and isinstance(node, int) and node in PORTS and str(node) not in self.given:
            return self.token("port", str(node))
        return node

    def _string(self, value: str, key: str) -> str:
        if key in LOCAL_KEYS:
            return f"<{key}>"
        if key == "resourceVersion" and value.isdigit() and value != "0":
            return self.token("rv", value)
        if key == "continue" and value:
            return "<continue>"
        if key == "cells" and AGE.fullmatch(value):
            return "<age>"
        if key in SECRET_KEYS and value.count(".") == 2:
            return "<token>"
        return self._text(value, key)

    def _text(self, value: str, key: str = "") -> str:
        for name, token in self._names.items():
            if name in value:
                value = value.replace(name, token)
        for name, token in self._shared.items():
            if name in value:
                value = value.replace(name, token)
        if "-" in value:
            value = UID.sub(self._uid, value)
            value = TIME.sub(self._time, value)
            value = RANDOM_VOLUME.sub("kube-api-access-<random>", value)
        if "ersion" in value:
            value = REVISION.sub(r"\1<rv>", value)
        if "in scheme " in value:
            value = SCHEME.sub("<scheme>", value)
        if key == "message":
            value = NUMBER.sub(self._revision, value)
        if "3" in value:
            value = NODE_PORT.sub(self._port, value)
        if "10.96." in value:
            value = SERVICE_IP.sub(self._address, value)
        return value

    def _uid(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in self.given else self.token("uid", match[0])

    def _revision(self, match: re.Match[str]) -> str:
        return "<rv>" if ("rv", match[0]) in self._tokens else match[0]

    def _port(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in self.given or int(match[0]) not in PORTS else self.token("port", match[0])

    def _time(self, match: re.Match[str]) -> str:
        return "<time>" if f"{match[1]}-{match[2]}-{match[3]}" in self._near else match[0]

    def _address(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in self.given else self.token("ip", match[0])


def is_passing_bookmark(event: Any) -> bool:
    """Tell a bookmark that a server sends when it likes from the one that ends the initial events."""
    return isinstance(event, dict) and event.get("type") == "BOOKMARK" and "initial-events-end" not in str(event)


def in_order(entries: list[Any]) -> list[Any]:
    """Sort managedFields by operation and manager: their order depends on the second in which each write came."""
    return sorted(entries, key=lambda entry: [str(entry.get(k)) for k in ORDER] if isinstance(entry, dict) else [])


def without_revision(form: Any) -> None:
    """Hide the revision of a list or bookmark: other sequences write at the same time."""
    metadata = form.get("metadata") if isinstance(form, dict) else None
    if isinstance(metadata, dict) and str(metadata.get("resourceVersion", "")).startswith("<rv:"):
        metadata["resourceVersion"] = "<rv>"


def shared_part(listed: list[Any], key: str) -> list[Any]:
    """Leave out of discovery the API groups of kubechronicle itself, and the names of health checks."""
    if key == "paths":
        return [path for path in listed if str(path).startswith("/api") and OWN_GROUP not in str(path)]
    return [item for item in listed if not (isinstance(item, dict) and OWN_GROUP in str(item))]


def sort_rules(review: dict[str, Any]) -> None:
    """Sort the rules of a review: the reference lists them in the random order of a map."""
    status = review.get("status")
    for name in ("resourceRules", "nonResourceRules"):
        rules = status.get(name) if isinstance(status, dict) else None
        if isinstance(rules, list):
            rules.sort(key=str)
