"""The built-in kinds as data tables and small functions: one file per kind, in a folder or one file per API group.

A kind's file reads from top to bottom: defaults, preparation, validation, warnings, table columns and conversions, as
far as the facts about types do not say them. At its end is the record of the kind (common/kind.py). kinds.py finds the
files by the registry. A kind with more than 400 lines has a folder of a few files: KIND/KIND.py has the record.

Imports run downward: from kinds.py to the groups, and from the groups to common/. Other groups import core for pod
templates, volumes and addresses. core imports no other group.
"""
