"""Egress: connections to the networks of EgressSelectorConfiguration, through HTTP proxies and konnectivity servers."""
