"""Making images for later sessions, with whichever engine a user has."""
