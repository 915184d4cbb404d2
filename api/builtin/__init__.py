"""The built-in kinds as data tables and small functions: one folder per API group.

Each group's folder has the rules of its kinds, by what they are for; a kind with many rules has a folder of its own in
it, as in Kubernetes' ``pkg/registry``:

    strategy.py     the rows of the table of strategies, and what the server decides when an object is written
    validation*.py  what is wrong with an object or with a change
    defaults.py     what stands in fields that are not given
    warnings*.py    what will not do what the writer may think it does
    columns.py      how lists are shown
    conversions*.py how the versions of a kind become each other

The modules beside the folders gather their tables, and list what is served. Imports run downward: from the gatherers to
the groups, and from those to common/. Other groups import core, for pod templates, volumes and addresses; core imports
no group.
"""
