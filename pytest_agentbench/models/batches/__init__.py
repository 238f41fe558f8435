"""Batches: requests that wait for hours and cost half, collected, sent together, found again by a later session.

Others use: collector, jobs, services
"""
