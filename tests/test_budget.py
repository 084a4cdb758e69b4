"""What the source may come to: lines, files, lines a file, small files, and names that it was rid of.

Raising a number here takes a line in the CHANGELOG that says for what.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "s2sim"
MAX_LINES = 75_000
MAX_FILES = 400
MAX_FILE_LINES = 400
SMALL_LINES = 40
MAX_SMALL_FILES = 60
MAX_SMALL_MODULES = 20
MAX_REPEATED_CLASSES = 10
RAISE = "simplify instead; raising the budget in tests/test_budget.py takes a line in the CHANGELOG that says for what"
# Modules, classes and functions that have names of the field now; methods that plug-ins may override are left out.
RENAMED = frozenset(
    """
    about against as_logged as_sent asked begun_step beside beyond carry carry_out explained foreseen found gap
    goes_by_rank held_by in_a_word in_band in_loop in_step in_words is_toy last_passage late_order
    left_to_gain look_beyond many_sizes mixing not_explained_s own_choice own_parts reducers_asked
    shape_of_machine take_turns takes_fields_of told told_by try_out untold untrained what_it_is where_time_went
    whose whose_gradients why within_band words AskedReducer Banded Beside BetweenNodes Beyond ByRank Carried Drawn
    Found FoundRow Handed InBand Judged KeptPatterns LastPassage Leaving LoggedTimer MeshWays Meetings Passing
    RanRound ReducedHere Said SomeRanks Spent Tellable Told ToldPoint Trained Wanted Way Ways WithinBand
    """.split()  # noqa: SIM905
)


@cache
def line_counts():
    return {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }


def definitions(indent):
    """Return each class or function that is defined behind so much white space, with its file and its kind."""
    defined = re.compile(rf"^{indent}(?:async )?(class|def) (\w+)", re.MULTILINE)
    return [(file, *found) for file in line_counts() for found in defined.findall((PACKAGE / file).read_text("utf-8"))]


def test_lines_and_files_are_within_the_budget():
    lines = line_counts()
    assert sum(lines.values()) <= MAX_LINES, RAISE
    assert len(lines) <= MAX_FILES, RAISE


def test_no_file_is_longer_than_a_reader_takes_in():
    assert {file: lines for file, lines in line_counts().items() if lines > MAX_FILE_LINES} == {}, RAISE


def test_few_files_are_fragments():
    small = [file for file, lines in line_counts().items() if lines < SMALL_LINES]
    assert len(small) <= MAX_SMALL_FILES, RAISE
    modules = [file for file in small if not file.endswith("__init__.py")]
    assert len(modules) <= MAX_SMALL_MODULES, f"{RAISE}: {modules}"


def test_names_are_those_of_the_field():
    named = [f"{file}: {name}" for file, _, name in definitions(" *") if name in RENAMED]
    modules = [file for file in line_counts() if RENAMED & set(file.removesuffix(".py").split("/"))]
    assert named + modules == [], "these names were replaced by standard ones"


def test_hardly_any_public_class_name_stands_twice():
    classes = Counter(name for _, kind, name in definitions("") if kind == "class" and not name.startswith("_"))
    repeated = sorted(name for name, count in classes.items() if count > 1)
    assert len(repeated) <= MAX_REPEATED_CLASSES, f"{RAISE}: {repeated}"
