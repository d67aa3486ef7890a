"""From run records to reports. Imports nothing of ours and no torch, so that it works on any laptop."""
