"""Collection: case × model × repetition become items, with ids, keywords and marks."""
