"""Control loops for Services: cluster IPs, node ports, ServiceCIDRs, and the endpoints of the server itself."""
