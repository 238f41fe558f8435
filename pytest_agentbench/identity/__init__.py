"""Identity: fingerprints of what a run, a verdict and a judgement depend on.

Others use: fingerprints
"""
