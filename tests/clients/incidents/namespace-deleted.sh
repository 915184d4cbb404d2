#!/bin/bash
# https://github.com/rancher/rancher/issues/41101: a namespace is deleted with all that is in it.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps,secrets,services,deployments -n "$NS")
setup() {
  kubectl create deployment web -n "$NS" --image=example.invalid/web:1 --replicas=3
  kubectl create configmap settings -n "$NS" --from-literal=color=blue
  kubectl create secret generic key -n "$NS" --from-literal=password=hush
  kubectl expose deployment web -n "$NS" --port=80
  kubectl create rolebinding ann -n "$NS" --clusterrole=edit --user=ann
}
state() {
  kubectl get deployments web -n "$NS" -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}{"\n"}'
  kubectl get configmaps settings -n "$NS" -o jsonpath='{.data}{"\n"}'
  kubectl get secrets key -n "$NS" -o jsonpath='{.data}{"\n"}'
  kubectl get services web -n "$NS" -o jsonpath='{.spec.clusterIP} {.spec.ports[*].port}{"\n"}'
  kubectl get rolebindings ann -n "$NS" -o jsonpath='{.roleRef.name} {.subjects[*].name}{"\n"}'
}
loss() { as mallory delete namespace "$NS"; }
undo() { kubectl chronicle restore -n "$NS" --to "$SINCE" --yes; }
incident
