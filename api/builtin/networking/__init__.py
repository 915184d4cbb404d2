"""Ingresses and their classes, NetworkPolicies, IPAddresses and ServiceCIDRs."""
