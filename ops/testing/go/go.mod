module kubechronicle.dev/testserver

go 1.24
