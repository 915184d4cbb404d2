"""Requests as data: a step with placeholders, and a conversation that sends each step to both servers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from kubechronicle.api.codecs import protobuf
from kubechronicle.ops.development.differential.normalise import Normaliser
from kubechronicle.ops.development.differential.transport import Answer, Connection

PROTOBUF = "application/vnd.kubernetes.protobuf"
TOKEN = re.compile(r"<(?:uid|rv|ip|port|generated|continue):\d+\.\d+>|\$\{\w+\}")


@dataclass(slots=True)
class Step:
    """One request.

    ``$NS`` and ``$ID`` in it stand for the sequence's namespace and for a suffix of cluster-scoped names; both servers
    get the same. ``${rv}``, ``${uid}``, ``${name}`` and the normaliser's tokens stand for each server's own values.
    """

    method: str
    path: str
    body: Any = None
    text: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    verb: str = ""
    area: str = ""
    aside: bool = False  # on another object than the sequence's own

    @property
    def dry_run(self) -> bool:
        if self.method == "DELETE" and isinstance(self.body, dict):
            return bool(self.body.get("dryRun"))  # the query does not count beside a body
        return "dryRun=All" in self.path

    @property
    def writes(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH", "DELETE") and not self.dry_run

    def wire(self) -> str | None:
        """Return the body as it is sent: without spaces, as Go's clients write it.

        kube-apiserver stores drivers' parameters with their spaces, and takes another spelling for a change.
        """
        return self.text if self.body is None else json.dumps(self.body, ensure_ascii=False, separators=(",", ":"))

    def data(self) -> Any:
        """Return the body as data, None if it is neither JSON nor YAML."""
        if self.text is None:
            return self.body
        with contextlib.suppress(ValueError):
            return json.loads(self.text)
        with contextlib.suppress(yaml.YAMLError):
            return yaml.load(self.text, Loader=yaml.CSafeLoader)
        return None

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "", {}, False)}


SETTLE_ATTEMPTS, SETTLE_PAUSE = 20, 0.05


@dataclass(slots=True)
class Exchange:
    """A step with the two answers and their normal forms."""

    step: Step
    want: Answer
    have: Answer
    want_form: Any
    have_form: Any


class Side:
    """One server within one sequence: its connection, its own values and the normaliser that knows them."""

    def __init__(self, connection: Connection, namespace: str, suffix: str) -> None:
        self.connection = connection
        self.normaliser = Normaliser()
        self.variables: dict[str, str] = {}
        self._shared = {"$NS": namespace, "$ID": suffix}

    def fill(self, text: str) -> str:
        for name, value in self._shared.items():
            text = text.replace(name, value)
        if "<" in text or "${" in text:
            text = TOKEN.sub(self._own, text)
        return text

    def _own(self, match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("$"):
            return self.variables.get(token[2:-1], "unset")
        return self.normaliser.value_of(token) or token

    def send(self, step: Step) -> None:
        text = step.wire()
        self.normaliser.given += f" {text or ''}"
        headers = {name: self.fill(value) for name, value in step.headers.items()}
        if text is not None:
            headers.setdefault("Content-Type", "application/json")
        body = None if text is None else self.fill(text).encode("utf-8", "surrogatepass")
        if body is not None and step.text is None and headers["Content-Type"] == PROTOBUF:
            with contextlib.suppress(Exception):  # a body that the encoder refuses is sent as JSON
                body = protobuf.encode(json.loads(body))
        self.connection.send(step.method, quoted(self.fill(step.path)), body, headers)

    def learn(self, step: Step, data: Any) -> None:
        """Note the values of the object that later steps refer to."""
        metadata = data.get("metadata") if isinstance(data, Mapping) else None
        if not isinstance(metadata, Mapping):
            return
        if token := metadata.get("continue"):
            self.variables["continue"] = str(token)
        if metadata.get("uid") and step.area != "other" and not step.aside:
            for name, key in (("rv", "resourceVersion"), ("uid", "uid"), ("name", "name")):
                self.variables[name] = str(metadata.get(key, ""))
            if step.method == "POST":
                self.variables["first"] = self.variables["rv"]
        self.normaliser.generated(step.data() or {"metadata": {**metadata, "name": ""}}, metadata.get("name"))

    def learn_rejection(self, step: Step, data: Any) -> None:
        details = data.get("details") if isinstance(data, Mapping) else None
        if isinstance(details, Mapping):
            self.normaliser.generated(step.data(), details.get("name"))


def has_condition(answer: Answer) -> bool:
    data = answer.decoded()
    status = data.get("status") if answer.status == 200 and isinstance(data, dict) else {}
    return answer.status != 200 or bool(isinstance(status, dict) and status.get("conditions"))


def quoted(path: str) -> str:
    """Percent-encode only the characters that would break the request line."""
    return "".join(c if "!" <= c <= "~" else "".join(f"%{b:02X}" for b in c.encode("utf-8", "replace")) for c in path)


class Conversation:
    """One sequence's namespace on both servers."""

    def __init__(self, reference: Connection, ours: Connection, tag: str) -> None:
        self.namespace, self.suffix = f"d-{tag}", tag
        self.sides = (Side(reference, self.namespace, tag), Side(ours, self.namespace, tag))

    def begin(self) -> None:
        """Create the namespace and its default service account."""
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": "$NS"}}),
            ("/api/v1/namespaces/$NS/serviceaccounts", {"metadata": {"name": "default"}}),
        ):
            self.say(Step("POST", path, body, area="other"))

    def say(self, step: Step) -> Exchange:
        for side in self.sides:
            side.send(step)
        answers = [side.connection.receive() for side in self.sides]
        forms = []
        for side, answer in zip(self.sides, answers, strict=True):
            data = answer.decoded()
            if answer.status < 300:
                side.learn(step, data)
            else:
                side.learn_rejection(step, data)
            names = {self.namespace: "$NS", self.suffix: "$ID"}
            forms.append(side.normaliser.answer(data, names))
        if step.kind == "FlowSchema" and step.writes and all(answer.status < 300 for answer in answers):
            self.settle(step.path.split("?")[0])
        return Exchange(step, answers[0], answers[1], forms[0], forms[1])

    def settle(self, path: str) -> None:
        """Wait until both servers have set the condition of a FlowSchema, which they do on their own."""
        one = path if path.endswith("}") else path + "/${name}"
        for side in self.sides:
            for _ in range(SETTLE_ATTEMPTS):
                side.send(Step("GET", one.removesuffix("/status")))
                answer = side.connection.receive()
                if has_condition(answer):
                    break
                time.sleep(SETTLE_PAUSE)
            side.learn(Step("GET", one), answer.decoded())
