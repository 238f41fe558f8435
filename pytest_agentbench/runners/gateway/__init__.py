"""Serve agents of any make with the model of their run, by requests over HTTP."""
