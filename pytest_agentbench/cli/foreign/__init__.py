"""Case files of other tools as cases of ours. Nothing of them is run: no Python, no JavaScript, no template engine."""
