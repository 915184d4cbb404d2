#!/bin/bash
# https://github.com/helm/helm/issues/11564: a chart is uninstalled, its definitions go, and all custom objects with them.
. "$(dirname "$0")/common.sh"
OBJECTS=(papers.incidents.example.com -A)
setup() {
  kubectl create namespace "$NS-2"
  kubectl apply -f - <<X
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: papers.incidents.example.com
spec:
  group: incidents.example.com
  scope: Namespaced
  names: {plural: papers, kind: Paper}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
X
  kubectl wait --for=condition=Established crd/papers.incidents.example.com
  for namespace in "$NS" "$NS-2"; do
    for name in one two; do
      kubectl apply -f - <<X
apiVersion: incidents.example.com/v1
kind: Paper
metadata:
  name: $name
  namespace: $namespace
spec:
  title: $name of $namespace
X
    done
  done
}
state() { kubectl get papers.incidents.example.com -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.title}{"\n"}{end}'; }
loss() { as helm delete crd papers.incidents.example.com; gone crd papers.incidents.example.com; }
undo() { kubectl chronicle restore crd/papers.incidents.example.com --to "$SINCE" --with-consequences --yes; }
incident
