"""What sessions in this process share, and a project for each test."""

import pytest
from support.sessions import bench, import_rooms
from support.stored import as_files

__all__ = ["bench"]

import_rooms()


@pytest.fixture(params=["database", "files"])
def as_stored(request):
    """Leave the store in an output folder as it is, or turn its documents into files, as on a network file system."""
    return as_files if request.param == "files" else lambda output: None
