"""ResourceQuota: the usage of objects, the quotas they count against, and the check of writes against these.

amounts.py adds up quantities. pods.py and evaluators.py measure the usage of each kind. scopes.py selects
the objects of a quota. check.py charges a write to the quotas of its namespace, and adds up a namespace's usage.
Source: kube-apiserver's pkg/quota/v1 and its admission plugin ResourceQuota.
"""
