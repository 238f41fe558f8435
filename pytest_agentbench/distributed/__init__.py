"""One session over many processes: shares of xdist workers, shards, and the gateways between them.

Others use: control_socket, gateways, live_session, sharding, shares
"""
