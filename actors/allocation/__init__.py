"""Allocation of values that are unique in the cluster to Services: cluster IPs and node ports."""
