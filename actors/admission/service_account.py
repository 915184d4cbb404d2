"""ServiceAccount: require an existing service account for every pod, and mount its token at the usual path
(plugin/pkg/admission/serviceaccount of kube-apiserver).

Mirror pods, which show a kubelet's static pods, must not refer to objects of the API server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, NotYet, State, forbidden
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.metadata import NAME_ALPHABET
from kubechronicle.api.values.objects import Object

SERVICE_ACCOUNTS: Final = "serviceaccounts"
DEFAULT_NAME: Final = "default"
MIRROR_POD: Final = "kubernetes.io/config.mirror"
ENFORCE_SECRETS: Final = "kubernetes.io/enforce-mountable-secrets"
VOLUME_PREFIX: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# An hour and seven seconds. The seven seconds identify tokens of pods that requested no lifetime.
TOKEN_SECONDS: Final = 3607
ROOT_CA: Final = "kube-root-ca.crt"
# Spellings of true in Go's ParseBool.
TRUE_WORDS: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class ServiceAccount(AdmissionPlugin):
    name = "ServiceAccount"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource or attributes.operation != CREATE:
            return
        if not _is_mirror(pod):
            spec = pod.setdefault("spec", {})
            name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_NAME
            spec["serviceAccountName"] = spec["serviceAccount"] = name
            account = _account(attributes, spec, state)
            if _automounts(account, spec):
                _mount_token(spec)
            if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
                spec["imagePullSecrets"] = [{"name": one.get("name", "")} for one in account["imagePullSecrets"]]
        self.validate(attributes, state)

    def validate(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource not in ("", "ephemeralcontainers"):
            return
        spec = pod.get("spec") or {}
        if attributes.subresource:
            if spec.get("serviceAccountName"):
                account = _account(attributes, spec, state)
                if _enforces(account):
                    added = spec.get("ephemeralContainers") or []
                    _limit_environment(attributes, account, added, "ephemeral container")
            return
        if attributes.operation != CREATE:
            return
        if _is_mirror(pod):
            _check_mirror(attributes, spec)
            return
        if not spec.get("serviceAccountName"):
            name = pod["metadata"].get("name", "")
            raise forbidden(attributes, f"no service account specified for pod {attributes.namespace}/{name}")
        account = _account(attributes, spec, state)
        if _enforces(account):
            _limit_secrets(attributes, account, spec)


def _is_mirror(pod: Object) -> bool:
    return MIRROR_POD in (pod["metadata"].get("annotations") or {})


def _account(attributes: Attributes, spec: Object, state: State) -> Object:
    name = spec["serviceAccountName"]
    entry = state.peek(SERVICE_ACCOUNTS, attributes.namespace, name)
    if entry is not None:
        return entry.object()
    why = f"error looking up service account {attributes.namespace}/{name}: serviceaccount {go_quote(name)} not found"
    error = forbidden(attributes, why)
    # A controller creates a namespace's default account soon after the namespace.
    raise NotYet.because(error) if name == DEFAULT_NAME else error


def _automounts(account: Object, spec: Object) -> bool:
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    return automount is None or bool(automount)


def _mount_token(spec: Object) -> None:
    """Mount the token, from one volume, into every container with no mount at its path."""
    volumes = spec.get("volumes") or []
    present = next((one["name"] for one in volumes if one.get("name", "").startswith(VOLUME_PREFIX)), "")
    name = present or VOLUME_PREFIX + "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in os.urandom(5))
    needed = False
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        mounts = container.get("volumeMounts") or []
        if all(mount.get("mountPath") != MOUNT_PATH for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}]
            needed = True
    if needed and not present:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _token_volume() -> Object:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }


def _check_mirror(attributes: Attributes, spec: Object) -> None:
    if spec.get("serviceAccountName"):
        raise forbidden(attributes, "a mirror pod may not reference service accounts")
    if any(_secret_names(spec)):
        raise forbidden(attributes, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or []:
        for source in (volume.get("projected") or {}).get("sources") or []:
            if source.get("serviceAccountToken") is not None:
                raise forbidden(attributes, "a mirror pod may not use ServiceAccountToken volume projections")


# Volume fields that name a secret → path below the field.
_VOLUME_SECRETS: Final = {
    "secret": ("secretName",),
    "azureFile": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
}


def _secret_names(spec: Object) -> Iterator[str]:
    """Yield every secret a pod refers to, in its containers, volumes and pull secrets."""
    for reference in spec.get("imagePullSecrets") or []:
        yield reference.get("name", "")
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or []:
            for source in container.get("envFrom") or []:
                yield (source.get("secretRef") or {}).get("name", "")
            for variable in container.get("env") or []:
                yield ((variable.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name", "")
    for volume in spec.get("volumes") or []:
        for field, path in _VOLUME_SECRETS.items():
            value: Any = volume.get(field)
            for step in path:
                value = (value or {}).get(step)
            yield value or ""
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield (source.get("secret") or {}).get("name", "")


# -- accounts that allow their own secrets only -----------------------------------------------------------------------


def _enforces(account: Object) -> bool:
    return (account["metadata"].get("annotations") or {}).get(ENFORCE_SECRETS, "") in TRUE_WORDS


def _limit_secrets(attributes: Attributes, account: Object, spec: Object) -> None:
    name = account["metadata"]["name"]
    allowed = {one.get("name") for one in account.get("secrets") or []}
    for volume in spec.get("volumes") or []:
        secret = (volume.get("secret") or {}).get("secretName", "")
        if volume.get("secret") is not None and secret not in allowed:
            why = f'volume with secret.secretName="{secret}" is not allowed because service account {name} does not '
            raise forbidden(attributes, f"{why}reference that secret")
    _limit_environment(attributes, account, spec.get("initContainers") or [], "init container")
    _limit_environment(attributes, account, spec.get("containers") or [], "container")
    pulls = {one.get("name") for one in account.get("imagePullSecrets") or []}
    for index, one in enumerate(spec.get("imagePullSecrets") or []):
        if one.get("name") not in pulls:
            why = f'imagePullSecrets[{index}].name="{one.get("name", "")}" is not allowed because service account '
            raise forbidden(attributes, f"{why}{name} does not reference that imagePullSecret")


def _limit_environment(attributes: Attributes, account: Object, containers: list[Object], kind: str) -> None:
    name = account["metadata"]["name"]
    allowed = {one.get("name") for one in account.get("secrets") or []}
    for container in containers:
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
            if reference is not None and reference.get("name", "") not in allowed:
                why = (
                    f"{kind} {container.get('name', '')} with envVar {variable.get('name', '')} referencing "
                    f'secret.secretName="{reference.get("name", "")}" is not allowed because service account {name} '
                    "does not reference that secret"
                )
                raise forbidden(attributes, why)
