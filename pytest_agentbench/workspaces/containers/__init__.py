"""Containers of a session's runs, whatever engine makes them."""
