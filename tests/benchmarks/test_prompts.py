"""Are the servers asked what the options say?"""

from pathlib import Path

import pytest

from benchmarks.burst.prompts import from_file, made_up


def test_made_up_prompts_have_the_words_asked_for_and_differ() -> None:
    prompts = made_up(50, 12, seed=1)

    assert {len(prompt.split()) for prompt in prompts} == {12}
    assert len(set(prompts)) == 50


def test_a_seed_gives_the_same_prompts_again_and_another_gives_others() -> None:
    assert made_up(3, 8, seed=1) == made_up(3, 8, seed=1)
    assert not set(made_up(3, 8, seed=1)) & set(made_up(3, 8, seed=2))


def test_prompts_of_a_file_are_its_lines_repeated_as_needed(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\n  grüß dich \n", encoding="utf-8")

    assert from_file(file, 3) == ["one", "grüß dich", "one"]


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("\n \n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"prompts\.txt holds no prompt"):
        from_file(file, 3)
