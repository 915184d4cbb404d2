//go:build tools

// Package konnectivity names the programs that prepare.sh builds: the proxy server and the agent of Kubernetes.
package konnectivity

import (
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
)
