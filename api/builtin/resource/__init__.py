"""Dynamic resource allocation: DeviceClasses, ResourceClaims with their templates, and ResourceSlices."""
