"""The first rights: never open to the world.

system:masters may do everything. Everybody, anonymous included, may ask for the health checks and the version, as the
bootstrap role system:public-info-viewer grants. All else is forbidden.
"""

from __future__ import annotations

from kubechronicle.http.authentication.user import GROUP_MASTERS, User
from kubechronicle.http.request_info import RequestInfo

# system:public-info-viewer's nonResourceURLs.
PUBLIC_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})


def allowed(user: User, info: RequestInfo) -> bool:
    if GROUP_MASTERS in user.groups:
        return True
    return not info.is_resource and info.verb == "get" and info.path in PUBLIC_PATHS


def forbidden_message(user: User, info: RequestInfo) -> str:
    """The words of k8s.io/apiserver's responsewriters.Forbidden."""
    if not info.is_resource:
        return f'User "{user.name}" cannot {info.verb} path "{info.path}"'
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {info.verb} resource "{resource}" in API group "{info.group}" {where}'
