"""ServiceAccount: require an existing service account for every pod, and mount its token at the usual path
(plugin/pkg/admission/serviceaccount of kube-apiserver).

Mirror pods, which show a kubelet's static pods, must not refer to objects of the API server.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.actors.admission.chain import (
    CREATE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    Attributes,
    NotYet,
    forbidden,
    name_problem,
)
from kubechronicle.actors.evaluation import judge_large, note_growth
from kubechronicle.actors.large_work import LARGE
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.metadata import NAME_ALPHABET
from kubechronicle.api.values.objects import TRUE_WORDS, Object
from kubechronicle.eventlog.entries import Entry

SERVICE_ACCOUNTS: Final = "serviceaccounts"
DEFAULT_NAME: Final = "default"
MIRROR_POD: Final = "kubernetes.io/config.mirror"
ENFORCE_SECRETS: Final = "kubernetes.io/enforce-mountable-secrets"
VOLUME_PREFIX: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# An hour and seven seconds. The seven seconds identify tokens of pods that requested no lifetime.
TOKEN_SECONDS: Final = 3607
ROOT_CA: Final = "kube-root-ca.crt"


class ServiceAccount(AdmissionPlugin):
    name = "ServiceAccount"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource or attributes.operation != CREATE:
            return
        spec = pod.setdefault("spec", {})
        if _is_mirror(pod):
            _check_mirror(attributes, spec)
            return
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_NAME
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = _account(attributes, spec, state)
        if _automounts(account, spec):
            _mount_token(spec, attributes.seed)
        if not spec.get("imagePullSecrets") and account.pulls:
            spec["imagePullSecrets"] = [{"name": name} for name in account.pulls]
            note_growth(sum(map(len, account.pulls)))
        _check_secrets(attributes, account, spec)

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource not in ("", "ephemeralcontainers"):
            return
        spec = pod.get("spec") or {}
        if attributes.operation != (UPDATE if attributes.subresource else CREATE):
            return
        if not attributes.subresource and _is_mirror(pod):
            _check_mirror(attributes, spec)
            return
        if not spec.get("serviceAccountName"):
            name = pod["metadata"].get("name", "")
            raise forbidden(attributes, f"no service account specified for pod {attributes.namespace}/{name}")
        _check_secrets(attributes, _account(attributes, spec, state), spec)


def _check_secrets(attributes: Attributes, account: _Account, spec: Object) -> None:
    """Reject secrets that the account does not have, if it allows no others."""
    if not account.enforces:
        return
    if attributes.subresource:
        _limit_environment(attributes, account, spec, {"ephemeralContainers": "ephemeral container"})
    else:
        _limit_secrets(attributes, account, spec)


def _is_mirror(pod: Object) -> bool:
    return MIRROR_POD in (pod["metadata"].get("annotations") or {})


class _Account(NamedTuple):
    """The part of a service account on which its pods depend.

    ``enforces``: pods may have no other secrets than its own: ``secrets``. ``pulls``: the names of its pull secrets.
    """

    name: str
    automounts: bool | None
    enforces: bool
    secrets: frozenset[str]
    pulls: tuple[str, ...]


def _account(attributes: Attributes, spec: Object, state: AdmissionState) -> _Account:
    name = spec["serviceAccountName"]
    entry = state.peek(SERVICE_ACCOUNTS, attributes.namespace, name)
    if entry is not None:
        if len(entry.json) > LARGE:
            return judge_large((SERVICE_ACCOUNTS, name), entry.revision, _read, entry)
        return _read(entry)
    why = name_problem(name) or f"serviceaccount {go_quote(name)} not found"
    error = forbidden(attributes, f"error looking up service account {attributes.namespace}/{name}: {why}")
    # A controller creates a namespace's default account soon after the namespace.
    raise NotYet.because(error) if name == DEFAULT_NAME else error


def _read(entry: Entry) -> _Account:
    account = entry.object()
    meta = account["metadata"]
    return _Account(
        name=meta["name"],
        automounts=account.get("automountServiceAccountToken"),
        enforces=(meta.get("annotations") or {}).get(ENFORCE_SECRETS, "") in TRUE_WORDS,
        secrets=frozenset(one.get("name", "") for one in account.get("secrets") or ()),
        pulls=tuple(one.get("name", "") for one in account.get("imagePullSecrets") or ()),
    )


def _automounts(account: _Account, spec: Object) -> bool:
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.automounts
    return automount is None or bool(automount)


def _mount_token(spec: Object, seed: str) -> None:
    """Mount the token, from one volume, into every container with no mount at its path.

    ``seed``: as in Attributes.
    """
    volumes = spec.get("volumes") or []
    present = next((one["name"] for one in volumes if one.get("name", "").startswith(VOLUME_PREFIX)), "")
    chosen = hashlib.blake2b(seed.encode(), digest_size=5).digest() if seed else os.urandom(5)
    name = present or VOLUME_PREFIX + "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in chosen)
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
            for _, reference in _environment_secrets(container):
                yield reference.get("name", "")
    for volume in spec.get("volumes") or []:
        for field, path in _VOLUME_SECRETS.items():
            value: Any = volume.get(field)
            for step in path:
                value = (value or {}).get(step)
            yield value or ""
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield (source.get("secret") or {}).get("name", "")


# -- accounts that allow their own secrets only -----------------------------------------------------------------------


def _limit_secrets(attributes: Attributes, account: _Account, spec: Object) -> None:
    """Check volumes, environments and pull secrets. As in kube-apiserver, secrets inside projected volumes and the
    secrets of storage drivers are not checked.
    """
    name, allowed = account.name, account.secrets
    for volume in spec.get("volumes") or []:
        source = volume.get("secret")
        if source is not None and (secret := source.get("secretName", "")) not in allowed:
            raise _not_allowed(attributes, f'volume with secret.secretName="{secret}"', name, "secret")
    kinds = {"initContainers": "init container", "containers": "container"}
    _limit_environment(attributes, account, spec, kinds)
    pulls = frozenset(account.pulls)
    for index, one in enumerate(spec.get("imagePullSecrets") or []):
        if (secret := one.get("name", "")) not in pulls:
            found = f'imagePullSecrets[{index}].name="{secret}"'
            raise _not_allowed(attributes, found, name, "imagePullSecret")


def _limit_environment(attributes: Attributes, account: _Account, spec: Object, kinds: Mapping[str, str]) -> None:
    """Check every secret that a container reads into its environment, as one variable (env) or whole (envFrom)."""
    allowed = account.secrets
    for field, kind in kinds.items():
        for container in spec.get(field) or []:
            for place, reference in _environment_secrets(container):
                if (secret := reference.get("name", "")) not in allowed:
                    reader = f"{kind} {container.get('name', '')} with {place}"
                    found = f'{reader} referencing secret.secretName="{secret}"'
                    raise _not_allowed(attributes, found, account.name, "secret")


def _environment_secrets(container: Object) -> Iterator[tuple[str, Object]]:
    """Yield each reference to a secret in the environment of a container, with its place as messages name it."""
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable.get('name', '')}", reference
    for source in container.get("envFrom") or []:
        if source.get("secretRef") is not None:
            yield "envFrom", source["secretRef"]


def _not_allowed(attributes: Attributes, found: str, account: str, reference: str) -> StatusError:
    why = f"{found} is not allowed because service account {account} does not reference that {reference}"
    return forbidden(attributes, why)
