"""When do figures mean nothing?"""


class Invalid(Exception):
    """A gateway did not do what was measured. The text says what it did instead."""
