"""Readers and writers of file formats, for `arete.save` and `arete.load`.

All that is read is taken for hostile: sizes are checked against the file before memory is taken, and nothing is executed.
"""
