"""Webhook configurations and admission policies from files instead of the API (KEP-5793).

Sources: k8s.io/apiserver ``pkg/admission/plugin/manifest``, ``…/webhook/manifest``, ``…/policy/manifest``.

A directory belongs to one plugin. Its files count in the order of their names: .yaml, .yml and .json. Each document is
one object, a list of the kind, or a v1 List. Objects are decoded strictly, defaulted and validated as if they were
created through the API. Their names end in ``.static.k8s.io``, which the API refuses in turn.

Lives here: from the bytes of files to objects. Not here: reading files (ops/server/admission_manifests.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.builtin.admissionregistration.webhooks import STATIC_SUFFIX
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object

API_VERSION: Final = "admissionregistration.k8s.io/v1"
EXTENSIONS: Final = (".yaml", ".yml", ".json")
KINDS: Final = {
    "ValidatingAdmissionWebhook": ("ValidatingWebhookConfiguration",),
    "MutatingAdmissionWebhook": ("MutatingWebhookConfiguration",),
    "ValidatingAdmissionPolicy": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "MutatingAdmissionPolicy": ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
}
"""The kinds in the files of each plugin: configurations or policies, then bindings."""
_ANY_TIME: Final = "2000-01-01T00:00:00Z"
_ANY_UID: Final = "00000000-0000-0000-0000-000000000000"

File = tuple[str, bytes]
"""The path of a file, and its content."""


@dataclass(frozen=True, slots=True, eq=False)
class Manifests:
    """The objects from the files of one plugin, each sorted by name.

    ``configurations``: webhook configurations or policies.
    ``hash``: of the files; "" without any.
    """

    configurations: tuple[Object, ...] = ()
    bindings: tuple[Object, ...] = ()
    hash: str = ""


def hash_of(files: Sequence[File]) -> str:
    """Return the hash of the contents of files, "" if all are empty."""
    contents = [content + b"\0" for _, content in files if content]
    return f"sha256:{hashlib.sha256(b''.join(contents)).hexdigest()}" if contents else ""


def load(plugin: str, files: Sequence[File]) -> Manifests:
    """Return the objects in the files of a plugin's directory. ConfigFileError: they cannot be used, as a whole."""
    kinds = KINDS[plugin]
    found: dict[str, dict[str, Object]] = {kind: {} for kind in kinds}
    places: dict[tuple[str, str], str] = {}
    for path, content in files:
        try:
            for document in _documents(content):
                for obj in _objects(document, kinds):
                    stored = _accepted(obj)
                    kind, name = stored["kind"], _checked_name(stored, path, places)
                    _check_constraints(stored, name, path)
                    found[kind][name] = stored
        except ConfigFileError as error:
            raise ConfigFileError(f"error loading {path}: {error}") from None
    ordered = [tuple(found[kind][name] for name in sorted(found[kind])) for kind in kinds]
    bindings = ordered[1] if len(kinds) > 1 else ()
    for binding in bindings:
        policy = binding["spec"]["policyName"]
        if policy not in found[kinds[0]]:
            name = go_quote(binding["metadata"]["name"])
            raise ConfigFileError(
                f"binding {name} references policy {go_quote(policy)} which does not exist in the manifest directory"
            )
    return Manifests(ordered[0], bindings, hash_of(files))


def _documents(content: bytes) -> Iterator[Any]:
    try:
        yield from (document for document in yaml.decode_all(content) if document is not None)
    except (CodecError, ValueError) as error:
        raise ConfigFileError(str(error)) from None


def _objects(document: Any, kinds: Sequence[str]) -> Iterator[Object]:
    """Yield the objects of a document, which may be a list."""
    if not isinstance(document, dict):
        raise ConfigFileError("couldn't get version/kind; json parse error: a document is no object")
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) == ("v1", "List"):
        for item in document.get("items") or ():
            yield from _objects(item, kinds)
    elif version == API_VERSION and kind in kinds:
        yield document
    elif version == API_VERSION and isinstance(kind, str) and kind.removesuffix("List") in kinds:
        for item in document.get("items") or ():
            if isinstance(item, dict):
                yield {**item, "apiVersion": API_VERSION, "kind": kind.removesuffix("List")}
    elif not version or not kind:
        raise ConfigFileError(f"Object '{'Kind' if not kind else 'apiVersion'}' is missing in the document")
    else:
        wanted = " or ".join(kinds)
        raise ConfigFileError(f"unsupported resource type {version} {kind}: {wanted} of {API_VERSION} are expected")


def _accepted(obj: Object) -> Object:
    """Return an object as it would be stored. ConfigFileError: the API would reject it."""
    rt = known_registry().by_api_version(obj["apiVersion"], obj["kind"])
    assert rt is not None, "a built-in kind"
    strategy_of(rt.resource)  # loads the rules of the kind
    context = WriteContext(now=_ANY_TIME, uid=_ANY_UID, field_validation="Strict")
    try:
        decoded, _ = pipeline.decode_object(rt, obj, context, create=True)
        return pipeline.prepare_create(rt, decoded, context).object
    except StatusError as error:
        meta = obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else ""
        why = error.message.partition(" is invalid: ")[2] or error.message
        raise ConfigFileError(f"{obj['kind']} {go_quote(str(name or ''))}: {why}") from None


def _checked_name(obj: Object, path: str, places: dict[tuple[str, str], str]) -> str:
    name, kind = obj["metadata"].get("name") or "", obj["kind"]
    if not name:
        raise ConfigFileError(f"resource in file {go_quote(path)} must have a name")
    if not name.endswith(STATIC_SUFFIX):
        raise ConfigFileError(
            f'{go_quote(name)} in file {go_quote(path)} must have a name ending with "{STATIC_SUFFIX}"'
        )
    if (kind, name) in places:
        seen = go_quote(places[kind, name])
        raise ConfigFileError(
            f"duplicate name {go_quote(name)} found in file {go_quote(path)} (previously seen in {seen})"
        )
    places[kind, name] = path
    return str(name)


def _check_constraints(obj: Object, name: str, path: str) -> None:
    """Reject what files may not have: parameters, and webhooks of Services. They would depend on stored objects."""
    kind, quoted = obj["kind"], go_quote(name)
    for webhook in obj.get("webhooks") or ():
        client = webhook.get("clientConfig") or {}
        where = f"webhook {go_quote(webhook['name'])} in {quoted} (file {go_quote(path)}): clientConfig"
        if client.get("service"):
            raise ConfigFileError(
                f"{where}.service is not supported for static manifests; use clientConfig.url instead"
            )
        if not client.get("url"):
            raise ConfigFileError(f"{where}.url is required for static manifests")
    spec = obj.get("spec") or {}
    if spec.get("paramKind") is not None:
        raise ConfigFileError(f"{kind} {quoted}: spec.paramKind is not supported for static manifests")
    if not kind.endswith("Binding"):
        return
    policy = spec.get("policyName") or ""
    if not policy:
        raise ConfigFileError(f"binding {quoted} must reference a policy (spec.policyName)")
    if not policy.endswith(STATIC_SUFFIX):
        raise ConfigFileError(f'binding {quoted}: spec.policyName {go_quote(policy)} must end with "{STATIC_SUFFIX}"')
    if spec.get("paramRef") is not None:
        raise ConfigFileError(f"binding {quoted}: spec.paramRef is not supported for static manifests")
