#!/bin/bash
# https://github.com/openshift/origin/issues/19899: a node is deleted and registers again, without its labels and taints.
. "$(dirname "$0")/common.sh"
OBJECTS=(nodes "$NS")
node() {
  kubectl --as="system:node:$NS" --as-group=system:nodes --as-group=system:authenticated create -f - <<X
apiVersion: v1
kind: Node
metadata:
  name: $NS
  labels: {kubernetes.io/hostname: $NS}
X
}
setup() {
  node
  kubectl label node "$NS" node-role.kubernetes.io/compute=true logging-infra-fluentd=true
  kubectl taint node "$NS" dedicated=gpu:NoSchedule
}
state() { kubectl get node "$NS" -o jsonpath='{.metadata.labels} {.spec.taints}{"\n"}'; }
loss() {
  as autoscaler delete node "$NS"
  node
}
undo() { kubectl chronicle restore "node/$NS" --to "$SINCE" --yes; }
incident
