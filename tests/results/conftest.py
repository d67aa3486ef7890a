"""Property-based tests have no deadline for one example: the machine may be busy with other tests."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
