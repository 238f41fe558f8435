"""What the judges of research reports are told, in two languages."""
