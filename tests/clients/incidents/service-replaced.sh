#!/bin/bash
# https://github.com/kubernetes/kubernetes/issues/24040: a Service is replaced by force; address and node port are others.
. "$(dirname "$0")/common.sh"
OBJECTS=(services -n "$NS")
setup() { kubectl create service nodeport web -n "$NS" --tcp=80 --node-port="$PORT"; }
PORT=31999
state() { kubectl get service web -n "$NS" -o jsonpath='{.spec.clusterIP} {.spec.ports[*].nodePort} {.spec.type}{"\n"}'; }
loss() {
  as w0mbat replace --force -f - <<X
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: $NS
spec:
  selector: {app: web}
  ports: [{port: 80}]
X
}
undo() { kubectl chronicle restore service/web -n "$NS" --to "$SINCE" --replace --yes; }
incident
