"""What Services are given of which there is only one: cluster IPs and node ports.

Files:
    bands.py      which numbers of a range are handed out first, and the choice among the free ones
    network.py    the ranges the administrator gave
    ranges.py     the ranges as ServiceCIDR objects have them now
    families.py   which families a Service has
    ledger.py     what one write takes and gives back
    addresses.py  cluster IPs: an IPAddress object each
    ports.py      node ports: an internal object each
    services.py   all of it as one claimant
"""
