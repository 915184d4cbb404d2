//go:build tools

// Package extension names the programs that prepare.sh builds: an extension API server of Kubernetes, and its store.
package extension

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/sample-apiserver"
)
