"""The pytest plugin: a clean cluster for each test, its history in assertions, and the incident of a failed one."""
