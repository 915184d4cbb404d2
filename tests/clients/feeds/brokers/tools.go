//go:build tools

// Package broker names the NATS server that prepare.sh builds.
package main

import (
	_ "github.com/nats-io/nats-server/v2"
)
