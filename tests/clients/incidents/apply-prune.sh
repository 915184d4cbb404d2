#!/bin/bash
# https://github.com/kubernetes/kubectl/issues/572: apply --prune with a label deletes what another team had applied.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps,services -n "$NS" -l app=shop)
manifest() {
  cat <<X
apiVersion: v1
kind: ConfigMap
metadata:
  name: $1
  namespace: $NS
  labels: {app: shop}
data: {of: $1}
X
}
setup() {
  for name in ours theirs; do manifest $name | kubectl apply -f -; done
  kubectl apply -f - <<X
apiVersion: v1
kind: Service
metadata:
  name: theirs
  namespace: $NS
  labels: {app: shop}
spec:
  selector: {app: shop}
  ports: [{port: 80}]
X
}
state() {
  kubectl get configmaps -n "$NS" -l app=shop -o jsonpath='{range .items[*]}{.metadata.name} {.data}{"\n"}{end}'
  kubectl get services -n "$NS" -l app=shop -o jsonpath='{range .items[*]}{.metadata.name} {.spec.clusterIP}{"\n"}{end}'
}
loss() { manifest ours | as ci apply -n "$NS" --prune -l app=shop -f -; }
undo() { kubectl chronicle revert --user ci --since "$SINCE" -n "$NS" --yes; }
incident
