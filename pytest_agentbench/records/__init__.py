"""The frozen records every room speaks: Case, Model, RunArtifact, Evaluation and their parts."""
