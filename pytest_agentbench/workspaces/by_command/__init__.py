"""Container engines that are told what to do by their command line, such as podman."""
