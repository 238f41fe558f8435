"""One session over many processes: shares of xdist workers, shards, and the gateways between them.

Others use: gateways, sharding, shares
"""
