"""EndpointSlices."""
