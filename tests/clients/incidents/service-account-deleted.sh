#!/bin/bash
# https://github.com/FairwindsOps/rbac-manager/issues/428: an account is deleted and made again; its stored token is gone.
. "$(dirname "$0")/common.sh"
OBJECTS=(serviceaccounts,secrets -n "$NS")
setup() {
  kubectl create serviceaccount ci -n "$NS"
  kubectl label serviceaccount ci -n "$NS" team=build
  kubectl create rolebinding ci -n "$NS" --clusterrole=edit --serviceaccount="$NS:ci"
  kubectl apply -f - <<X
apiVersion: v1
kind: Secret
metadata:
  name: ci-token
  namespace: $NS
  annotations: {kubernetes.io/service-account.name: ci}
type: kubernetes.io/service-account-token
X
  token
}
token() { # wait for the token, and use it
  for _ in $(seq 100); do
    found=$(kubectl get secret ci-token -n "$NS" -o jsonpath='{.data.token}' | base64 -d)
    [ -n "$found" ] && break
    sleep 0.1
  done
  kubectl --token="$found" --kubeconfig="$ANONYMOUS" auth can-i create deployments -n "$NS"
}
state() {
  kubectl get serviceaccount ci -n "$NS" -o jsonpath='{.metadata.labels}{"\n"}'
  token
}
loss() { as rbac-manager delete serviceaccount ci -n "$NS"; gone secret ci-token -n "$NS"; }
undo() { kubectl chronicle restore serviceaccount/ci -n "$NS" --to "$SINCE" --with-consequences --yes; }
incident
