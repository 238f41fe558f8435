"""Container engines: docker by its SDK, others by their command line."""
