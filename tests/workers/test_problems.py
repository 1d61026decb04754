"""How one problem reads."""

from workers.problems import Problem


def test_long_values_are_cut_short() -> None:
    shown = str(Problem("workers[0].id", "too long", "x" * 200))
    assert shown == f'workers[0].id = "{"x" * 78}…: too long'
