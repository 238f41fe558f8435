"""What sessions in this process share, and a project for each test."""

from support.sessions import bench, import_rooms

__all__ = ["bench"]

import_rooms()
