"""The ABAC authorizer: a file of policies, one JSON object a line. Policies only allow; none denies.

    {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
     "spec": {"user": "bob", "namespace": "projects", "resource": "pods", "apiGroup": "", "readonly": true}}

A policy allows a request if all of this is true (Kubernetes' pkg/auth/authorizer/abac):

- It has a user or a group. Its user is the requesting user, and its group is one of the user's groups.
- It is not read-only, or the request is a read.
- Its namespace, resource and apiGroup, or its nonResourcePath, match the request or are ``*``.

The file is read once, at the start. A decision looks up eight keys for the user and for each of its groups, however
many lines there are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from kubechronicle.api.access.rule_index import Rule
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs import yaml as yaml_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.configuration import files
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.schema import check
from kubechronicle.http.authentication.user import GROUP_AUTHENTICATED, User
from kubechronicle.http.authorization.decision import ALLOWED, Decision, NotInHistory, UserRules, Verdict
from kubechronicle.http.authorization.view_follower import FollowedViews

log = logging.getLogger(__name__)

GROUP: Final = "abac.authorization.kubernetes.io"
V1BETA1, V0 = f"{GROUP}/v1beta1", f"{GROUP}/v0"
KIND: Final = "Policy"
ALL: Final = "*"
READ_VERBS: Final = ("get", "list", "watch")
# Bytes of a line, as in Kubernetes' scanner; bytes of a file; characters of a line in an error.
MAX_LINE: Final = 64 * 1024
MAX_FILE: Final = 64 << 20
MAX_SHOWN: Final = 300


class PolicyFileError(ValueError):
    """The file can't be used. The message is one line with position and reason."""


@dataclass(frozen=True, slots=True)
class AbacPolicy:
    """One line. ``user`` and ``group`` are "" if missing; ``*`` becomes the group system:authenticated."""

    user: str = ""
    group: str = ""
    readonly: bool = False
    namespace: str = ""
    resource: str = ""
    api_group: str = ""
    path: str = ""

    def is_about(self, user: User) -> bool:
        """Return whether the user is its subject."""
        if not (self.user or self.group):
            return False
        return (not self.user or self.user == user.name) and (not self.group or self.group in user.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    user: str = ""
    group: str = ""
    readonly: bool = False
    api_group: str = ""
    resource: str = ""
    namespace: str = ""
    non_resource_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyV1Beta1:
    """A line of the version v1beta1."""

    GO_NAME: ClassVar[str] = KIND

    spec: PolicySpec = PolicySpec()

    def policy(self) -> AbacPolicy:
        spec = self.spec
        policy = AbacPolicy(
            user=spec.user,
            group=spec.group,
            readonly=spec.readonly,
            namespace=spec.namespace,
            resource=spec.resource,
            api_group=spec.api_group,
            path=spec.non_resource_path,
        )
        return _for_authenticated(policy) if ALL in (spec.user, spec.group) else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyV0:
    """A line of the old version, which names no version. A field that is left out means all."""

    GO_NAME: ClassVar[str] = KIND

    user: str = ""
    group: str = ""
    readonly: bool = False
    resource: str = ""
    namespace: str = ""

    def policy(self) -> AbacPolicy:
        policy = AbacPolicy(
            user=self.user,
            group=self.group,
            readonly=self.readonly,
            namespace=self.namespace or ALL,
            resource=self.resource or ALL,
            api_group=ALL,
            path="" if self.namespace or self.resource else ALL,
        )
        everyone = ALL in (self.user, self.group) or not (self.user or self.group)
        return _for_authenticated(policy) if everyone else policy


def _for_authenticated(policy: AbacPolicy) -> AbacPolicy:
    return replace(policy, user="", group=GROUP_AUTHENTICATED)


# -- the file ---------------------------------------------------------------------------------------------------------


def read_policy_file(path: Path) -> list[AbacPolicy]:
    """Return the policies of a file. Raises PolicyFileError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise PolicyFileError(f"error reading policy file {path}: {error.strerror or error}") from None
    if len(data) > MAX_FILE:
        raise PolicyFileError(f"error reading policy file {path}: it has more than {MAX_FILE} bytes")
    return parse_policies(data, str(path))


def parse_policies(data: bytes, path: str) -> list[AbacPolicy]:
    """Return the policies of a file's content, without blank lines and comments (``#``). Raises PolicyFileError."""
    policies: list[AbacPolicy] = []
    unversioned = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            if len(line) >= MAX_LINE:
                raise ValueError(f"it is longer than {MAX_LINE} bytes")
            version, policy, unknown = _policy(line.removesuffix(b"\r"))
        except ValueError as error:
            shown = line[:MAX_SHOWN].decode("utf-8", "replace").strip()
            raise PolicyFileError(f"error reading policy file {path}, line {number}: {shown}: {error}") from None
        if unknown:
            log.warning("Unknown fields in the policy file", extra={"file": path, "line": number, "fields": unknown})
        unversioned += version == V0
        policies.append(policy)
    if unversioned:
        log.warning("The policy file has lines without apiVersion", extra={"file": path, "lines": unversioned})
    return policies


def _policy(line: bytes) -> tuple[str, AbacPolicy, list[str]]:
    """Return a line's version, its policy, and its unknown fields. Raises ValueError."""
    codec = json_codec if line.lstrip().startswith(b"{") else yaml_codec
    try:
        value, _ = codec.decode(line)
    except CodecError as error:
        raise ValueError(str(error)) from None
    version = _version(value)
    record: type[PolicyV0 | PolicyV1Beta1] = PolicyV0 if version == V0 else PolicyV1Beta1
    unknown = check.check(value, files.schema_of_file(record))
    if version == V0 and "spec" in unknown:
        # As a line without apiVersion it would allow everyone everything.
        raise ValueError(f"it has a spec, but does not say apiVersion: {V1BETA1} and kind: {KIND}")
    return version, files.structure_checked(value, record).policy(), unknown


def _version(value: Mapping[str, Any]) -> str:
    """Return V1BETA1, or V0 for a line that names no version. Raises ValueError."""
    meta = files.structure_checked(value, files.TypeMeta)
    version, kind = meta.api_version, meta.kind
    if (version, kind) in ((V1BETA1, KIND), (V0, KIND)):
        return version
    if version == V1BETA1 and not kind:
        raise ValueError("Object 'Kind' is missing")
    if version in ("", V0) and kind in ("", KIND):
        return V0
    raise ValueError(f"no kind {go_quote(kind or KIND)} is registered for version {go_quote(version or V0)}")


# -- decisions --------------------------------------------------------------------------------------------------------


class _Allowed:
    """All policies of one subject. Values: whether writes are allowed, too."""

    __slots__ = ("lengths", "paths", "prefixes", "resources")

    def __init__(self) -> None:
        self.resources: dict[tuple[str, str, str], bool] = {}  # (namespace, API group, resource)
        self.paths: dict[str, bool] = {}
        self.prefixes: dict[str, bool] = {}
        self.lengths: tuple[int, ...] = ()  # of the prefixes, the shortest first

    def add(self, policy: AbacPolicy) -> None:
        writes = not policy.readonly
        key = (policy.namespace, policy.api_group, policy.resource)
        self.resources[key] = writes or self.resources.get(key, False)
        self.paths[policy.path] = writes or self.paths.get(policy.path, False)
        if policy.path.endswith(ALL):
            prefix = policy.path.rstrip(ALL)
            self.prefixes[prefix] = writes or self.prefixes.get(prefix, False)
            if len(prefix) not in self.lengths:
                self.lengths = tuple(sorted((*self.lengths, len(prefix))))

    def permits(self, info: RequestInfo, *, reads: bool) -> bool:
        if not info.is_resource:
            return self._permits_path(info.path, reads)
        resources = self.resources
        for namespace in (info.namespace, ALL):
            for group in (info.group, ALL):
                for resource in (info.resource, ALL):
                    writes = resources.get((namespace, group, resource))
                    if writes is not None and (writes or reads):
                        return True
        return False

    def _permits_path(self, path: str, reads: bool) -> bool:
        writes = self.paths.get(path)
        if writes is not None and (writes or reads):
            return True
        for length in self.lengths:
            if length > len(path):
                return False
            writes = self.prefixes.get(path[:length])
            if writes is not None and (writes or reads):
                return True
        return False


NO_POLICY: Final = Verdict(Decision.NO_OPINION, "No policy matched.")


class AbacAuthorizer:
    def __init__(self, policies: list[AbacPolicy]) -> None:
        self._policies = tuple(policies)
        self._of_user: dict[str, _Allowed] = {}
        self._of_group: dict[str, _Allowed] = {}
        self._of_both: dict[str, dict[str, _Allowed]] = {}  # user -> group
        for policy in policies:
            if policy.user and policy.group:
                table, key = self._of_both.setdefault(policy.user, {}), policy.group
            elif policy.user:
                table, key = self._of_user, policy.user
            elif policy.group:
                table, key = self._of_group, policy.group
            else:
                continue
            table.setdefault(key, _Allowed()).add(policy)

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return ALLOW if a policy allows the request."""
        reads = info.verb in READ_VERBS
        for allowed in self._about(user):
            if allowed.permits(info, reads=reads):
                return ALLOWED
        return NO_POLICY

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        """Return the rules in a namespace, in the order of the file.

        As in Kubernetes a rule about paths is listed only for the namespace its policy names.
        """
        rules: list[Rule] = []
        for policy in self._policies:
            if policy.namespace not in (ALL, namespace) or not policy.is_about(user):
                continue
            verbs = list(READ_VERBS) if policy.readonly else [ALL]
            if policy.resource:
                rules.append({"verbs": verbs, "apiGroups": [policy.api_group], "resources": [policy.resource]})
            if policy.path:
                rules.append({"verbs": verbs, "nonResourceURLs": [policy.path]})
        return UserRules(rules)

    def at(self, views: FollowedViews) -> NotInHistory:
        return NotInHistory("ABAC")

    def _about(self, user: User) -> Iterator[_Allowed]:
        allowed = self._of_user.get(user.name)
        if allowed is not None:
            yield allowed
        both = self._of_both.get(user.name)
        for group in user.groups:
            allowed = self._of_group.get(group)
            if allowed is not None:
                yield allowed
            if both is not None and (allowed := both.get(group)) is not None:
                yield allowed
