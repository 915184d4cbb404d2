#!/bin/bash
# https://github.com/kubernetes/kubernetes/issues/88250: kubectl delete clusterrolebinding --all.
. "$(dirname "$0")/common.sh"
OBJECTS=(clusterrolebindings)
setup() {
  kubectl create clusterrolebinding "$NS-flannel" --clusterrole=view --serviceaccount=kube-flannel:flannel
  kubectl create clusterrolebinding "$NS-ops" --clusterrole=edit --group=ops
}
state() { kubectl get clusterrolebindings -o jsonpath='{range .items[*]}{.metadata.name} {.roleRef.name} {.subjects[*].name}{"\n"}{end}'; }
loss() { as isildur delete clusterrolebinding --all; }
undo() { kubectl chronicle restore clusterrolebindings --to "$SINCE" --yes; }
incident
