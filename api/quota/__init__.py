"""ResourceQuota: what an object uses up of a quota, which quotas it counts against, and whether it still fits.

amounts.py adds quantities up; pods.py, claims.py and evaluators.py say what each kind of object uses; scopes.py says
which objects a quota is about; check.py charges a write to the quotas of its namespace, and totals.py adds up what a
namespace uses. After kube-apiserver's pkg/quota/v1 and its admission plugin of this name.
"""
