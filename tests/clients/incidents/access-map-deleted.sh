#!/bin/bash
# https://github.com/pulumi/pulumi-eks/issues/918: the map of users is deleted to be replaced, and the second step fails.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps -n "$NS")
setup() { kubectl create configmap aws-auth -n "$NS" --from-literal=mapRoles='- groups: [system:masters]'; }
state() { kubectl get configmap aws-auth -n "$NS" -o jsonpath='{.data}{"\n"}'; }
loss() { as pulumi delete configmap aws-auth -n "$NS"; }
undo() { kubectl chronicle restore configmap/aws-auth -n "$NS" --to "$SINCE" --yes; }
incident
