"""The built-in kinds as data tables and small functions: one folder per API group.

A kind with many rules has a folder of its own within its group, as in Kubernetes' ``pkg/registry``. Each folder has:

    strategy.py     rows of the strategy table, and the hooks that change an object before it is stored
    validation*.py  functions from an object or a change to its validation causes
    defaults.py     values of fields that a request leaves out
    warnings*.py    warnings about fields that are accepted but have no effect or a surprising one
    columns.py      table columns of lists
    conversions*.py converters between the versions of a kind

The modules beside the folders merge these tables. Imports run downward: from the gatherers to the groups, and from the
groups to common/. Other groups import core for pod templates, volumes and addresses. core imports no other group.
"""
