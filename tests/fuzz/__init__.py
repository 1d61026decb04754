"""What holds for any bytes at all? Targets that are searched for an exception, and what has shown one.

A target's `check` takes bytes and raises AssertionError where something that must hold does not. Its corpus
is a folder of bytes worth trying: written by hand, and each one that ever showed a fault. The tests try these
and a few hundred that are made of them, the same in each run; `python -m tests.fuzz` searches for new ones.
"""
