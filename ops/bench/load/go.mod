module kubechronicle/ops/bench/load

go 1.24
