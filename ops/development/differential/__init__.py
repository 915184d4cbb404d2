"""Differential testing: the same generated requests to a real kube-apiserver and to this server, answers compared."""
