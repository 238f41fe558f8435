"""One session over many processes: shares of xdist workers, shards, gateways, and the socket of a live session.

Others use: control_socket, gateways, live_session, session_control, sharding, shares
"""
