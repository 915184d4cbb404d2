#!/bin/bash
# https://github.com/razee-io/Razee/issues/15: kubectl delete -f of an operator takes the ClusterRole cluster-admin along.
. "$(dirname "$0")/common.sh"
OBJECTS=(clusterroles cluster-admin)
setup() { kubectl create configmap razee -n "$NS" --from-literal=a=b; }
state() {
  kubectl get clusterrole cluster-admin -o jsonpath='{.rules}{"\n"}'
  kubectl get configmap razee -n "$NS" -o jsonpath='{.data}{"\n"}'
}
loss() {
  as jtpape delete -f - <<X
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-admin
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: razee
  namespace: $NS
X
}
undo() { kubectl chronicle revert --user jtpape --since "$SINCE" -A --yes; }
incident
