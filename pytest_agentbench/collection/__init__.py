"""Collection: case × model × repetition become items, with ids, keywords and marks.

Others use: items, marks, planning, plugins, roots, start, walk
"""
