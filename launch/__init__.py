"""From an experiment file to running processes. Imports no torch, and never imports `training`."""
