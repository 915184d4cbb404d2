#!/bin/bash
# https://github.com/velero-io/velero/issues/4707: an owner comes back with another uid, and its dependents lose it.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps -n "$NS" -l tree)
map() {
  kubectl create -f - <<X
apiVersion: v1
kind: ConfigMap
metadata:
  name: $1
  namespace: $NS
  labels: {tree: "true"}
  ownerReferences: [${2:-}]
X
}
reference() { echo "{apiVersion: v1, kind: ConfigMap, name: $1, uid: $(kubectl get configmap "$1" -n "$NS" -o jsonpath='{.metadata.uid}')}"; }
setup() {
  map middle
  map above "$(reference middle)"
  map z-below "$(reference above)"
}
state() {
  kubectl get configmaps -n "$NS" -l tree -o jsonpath='{range .items[*]}{.metadata.name} of {.metadata.ownerReferences[*].name}{"\n"}{end}'
  for name in above z-below; do
    owner=$(kubectl get configmap $name -n "$NS" -o jsonpath='{.metadata.ownerReferences[0].name}')
    [ "$(kubectl get configmap "$owner" -n "$NS" -o jsonpath='{.metadata.uid}')" = \
      "$(kubectl get configmap $name -n "$NS" -o jsonpath='{.metadata.ownerReferences[0].uid}')" ] && echo "$name has the present owner"
  done
}
loss() { as mallory delete configmap middle -n "$NS"; gone configmaps -n "$NS" -l tree; }
undo() { kubectl chronicle restore configmap/middle -n "$NS" --to "$SINCE" --with-consequences --yes; }
incident
