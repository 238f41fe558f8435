"""Secrets: redaction of keys and passwords in all that is stored, in any of the encodings that texts bring.

Others use: redaction
"""
