"""Tables of the parameters of operations, in the query and in the path of a URL.

Source of names and types: the option types of apimachinery and core/v1 (ListOptions, PodLogOptions and so on). A list
has its items' type, as in every published document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.kinds import reading


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. ``place``: query, or path (always required). ``type``: a JSON type."""

    name: str
    type: str
    description: str
    place: str = "query"


def _query(type_name: str, **described: str) -> dict[str, Parameter]:
    return {name: Parameter(name, type_name, text) for name, text in described.items()}


_COMMON: Final[Mapping[str, Parameter]] = {
    **_query(
        "boolean",
        allowWatchBookmarks="Let the watch send events of type BOOKMARK with the revision it has reached.",
        force="Take over fields that other managers own. Only for apply patches, and only for the user.",
        sendInitialEvents=(
            "Begin the watch with an ADDED event for every existing object, followed by a bookmark with the annotation "
            "k8s.io/initial-events-end. Needs watch=true and resourceVersionMatch=NotOlderThan."
        ),
        watch="Stream the changes (added, modified, deleted) since resourceVersion instead of listing.",
    ),
    **_query("integer", limit="The most items of one answer; its continue token fetches the rest."),
    **_query("integer", timeoutSeconds="The longest time of the list or watch, in seconds, with or without activity."),
    **_query(
        "string",
        dryRun="Process all stages of the request without storing the result. The only valid value is All.",
        fieldManager="The author of this change in managedFields: at most 128 printable characters.",
        fieldSelector="Only objects whose fields match, such as metadata.name=a. Everything by default.",
        fieldValidation=(
            "Treatment of unknown and duplicate fields: Ignore drops them, Warn (the default) drops them and adds a "
            "warning for each to the answer, Strict rejects the request and lists them."
        ),
        labelSelector="Only objects whose labels match, such as app=a,tier in (b,c). Everything by default.",
        pretty=(
            "'true': indent the answer. The default is true only for browsers and command-line tools (curl, wget)."
        ),
        resourceVersion="The revision to read from; unset means the newest. See resourceVersionMatch.",
        resourceVersionMatch="How resourceVersion constrains a list: Exact or NotOlderThan.",
        shardSelector="Only objects of a shard of the list. Requires the alpha feature ShardedListAndWatch.",
    ),
    "continue": Parameter(
        "continue",
        "string",
        "The continue token of the previous answer, for the next items of the same list. An expired token is "
        "answered with 410 ResourceExpired.",
    ),
}

_PATCH_MANAGER: Final = Parameter(
    "fieldManager",
    "string",
    "The author of this change in managedFields: at most 128 printable characters. Required for apply patches, "
    "optional for others.",
)

_DELETE_OPTIONS: Final[Mapping[str, str]] = {
    "gracePeriodSeconds": "integer",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
    "orphanDependents": "boolean",
    "propagationPolicy": "string",
}

_LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
)
# Deleting a collection takes the parameters of a list, but not of a watch.
_COLLECTION: Final = tuple(name for name in _LIST if name not in ("allowWatchBookmarks", "watch"))
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")

PRETTY: Final = _COMMON["pretty"]
NAMESPACE: Final = Parameter(
    "namespace", "string", "object name and auth scope, such as for teams and projects", "path"
)
PATH: Final = Parameter("path", "string", "path to the resource", "path")


def name_of(kind: str) -> Parameter:
    return Parameter("name", "string", f"name of the {kind}", "path")


def of_verb(verb: str, *, custom: bool = False) -> tuple[Parameter, ...]:
    """Return the query parameters of a verb. ``watchlist`` and ``watch`` are the paths below /watch/.

    ``custom``: of a custom resource, for which kube-apiserver describes other ones.
    """
    if custom and verb == "get":
        return _named(("resourceVersion",))
    if custom and verb == "deletecollection":
        return _named(_LIST)
    if verb in ("list", "watch", "watchlist"):
        return _named(_LIST)
    if verb == "deletecollection":
        return (*_named((*_COLLECTION, "dryRun")), *_of_delete_options())
    if verb == "delete":
        return (*_named(("dryRun",)), *_of_delete_options())
    if verb in ("create", "update"):
        return _named(_WRITE)
    if verb == "patch":
        return (*_named(("dryRun", "fieldValidation", "force")), _PATCH_MANAGER)
    return ()


def _named(names: Iterable[str]) -> tuple[Parameter, ...]:
    return tuple(_COMMON[name] for name in names)


def _of_delete_options() -> tuple[Parameter, ...]:
    """Return parameters for fields of DeleteOptions, with the same descriptions."""
    options = reading.release().declared("meta.v1.DeleteOptions")
    return tuple(Parameter(name, word, options.description(name)) for name, word in _DELETE_OPTIONS.items())


def _of(*parameters: tuple[str, str, str]) -> tuple[Parameter, ...]:
    return tuple(Parameter(*parameter) for parameter in parameters)


LOG: Final = _of(
    ("container", "string", "The container of the log; optional for a pod with one container."),
    ("follow", "boolean", "Follow the log as it grows. False by default."),
    (
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Do not verify the kubelet's serving certificate. An attacker can then read and change the data.",
    ),
    ("limitBytes", "integer", "End after about this many bytes, possibly within a line."),
    ("previous", "boolean", "The log of the container's previous instance. False by default."),
    ("sinceSeconds", "integer", "Only lines of the last given number of seconds. Not allowed with sinceTime."),
    ("stream", "string", "All (the default), Stdout or Stderr. With tailLines, only All is allowed."),
    ("tailLines", "integer", "Only this many last lines. With stream, only All is allowed."),
    ("timestamps", "boolean", "Begin every line with its RFC 3339 time. False by default."),
)

CONNECT: Final[Mapping[str, tuple[Parameter, ...]]] = {
    "NodeProxyOptions": _of(("path", "string", "The path of the request in the node's URL.")),
    "PodProxyOptions": _of(("path", "string", "The path of the request in the pod's URL.")),
    "ServiceProxyOptions": _of(
        ("path", "string", "The path of the request in the service's URL, with suffixes and parameters.")
    ),
    "PodAttachOptions": _of(
        ("container", "string", "The container to attach to; optional for a pod with one container."),
        ("stderr", "boolean", "Forward its standard error. True by default."),
        ("stdin", "boolean", "Forward standard input to it. False by default."),
        ("stdout", "boolean", "Forward its standard output. True by default."),
        ("tty", "boolean", "The container runtime allocates a terminal for the call. False by default."),
    ),
    "PodExecOptions": _of(
        ("command", "string", "The command and its arguments, one value each; no shell is involved."),
        ("container", "string", "The container to run it in; optional for a pod with one container."),
        ("stderr", "boolean", "Forward the command's standard error."),
        ("stdin", "boolean", "Forward standard input to the command. False by default."),
        ("stdout", "boolean", "Forward the command's standard output."),
        ("tty", "boolean", "Allocate a terminal for the call. False by default."),
    ),
    "PodPortForwardOptions": _of(("ports", "integer", "The ports to forward. Required when WebSockets are used.")),
}
"""Kind of a connect subresource's options -> its query parameters."""
