"""The wait list: leases that wait until capacity is free.

``waiting`` adds, shows and changes entries. ``passes`` decides, in the order of the list, which
leases to place. ``placing`` books one lease, moves its booking to an earlier time, or withdraws it;
each is one transaction of the ordinary admission, so a wrong order could never book twice.
"""
