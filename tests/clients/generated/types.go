// Package generated names the Go types from which controller-gen makes definitions: those of the Prometheus operator.
package generated

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
