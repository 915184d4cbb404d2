"""APIServices, which route API groups to other servers."""
