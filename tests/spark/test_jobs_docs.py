"""The jobs in docs/spark.md: what it names is there, and what is there it names. Runs none of them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from tests.helpers.markdown import blocks_of
from tidelog.spark import jobs
from tidelog.spark.jobs import archive_topics, read_archive, replay_topic, report_topic, verify_archive
from tidelog.spark.jobs.archive import COMPRESSIONS, RECORDS_PER_FILE
from tidelog.spark.jobs.pacing import STEP_RECORDS

PAGE = Path(__file__).parents[2] / "docs/spark.md"
COMMANDS = ("spark archive", "spark replay", "spark report")


def section(title: str, level: int) -> str:
    """The text under a heading, to the next of its level."""
    _, found, rest = PAGE.read_text().partition(f"\n{'#' * level} {title}\n")
    assert found
    return rest.split(f"\n{'#' * level} ")[0]


def test_the_page_names_every_job() -> None:
    """Each function that is offered, each command, and each code that a job refuses with."""
    text = section("Jobs", 2)
    functions = [name for name in jobs.__all__ if name.islower()]
    assert functions == [
        "archive_topics",
        "read_archive",
        "replay_topic",
        "report_topic",
        "verify_archive",
        "write_package",
    ]
    assert [name for name in functions if f"`{name}`" not in text] == []
    assert [name for name in COMMANDS if f"`tidelog {name}`" not in text] == []
    codes = ("JOB_BUSY", "JOB_STATE", "JOB_FAILED", "NOT_INSTALLED")
    assert [code for code in codes if f"`{code}`" not in text] == []


@pytest.mark.parametrize(
    ("title", "job"), [("Archive", archive_topics), ("Replay", replay_topic), ("Report", report_topic)]
)
def test_the_page_names_every_argument(title: str, job: object) -> None:
    """Each argument of a job stands in its part, or in what is said of all jobs or, for bounds, of a replay."""
    assert callable(job)
    names = [name for name in inspect.signature(job).parameters if name != "spark"]
    text = section(title, 3) + section("Jobs", 2).split("\n### ")[0] + section("Replay", 3) * (title == "Report")
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_examples_call_what_there_is() -> None:
    """Every call of a job in the page's examples fits its signature, and all but the zip have one; defaults that the
    page tells are those of the code."""
    offered = {job.__name__: job for job in (archive_topics, read_archive, verify_archive, replay_topic, report_topic)}
    called: list[str] = []
    for block in blocks_of(PAGE):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in offered:
                    named = {str(each.arg): None for each in node.keywords}
                    inspect.signature(offered[node.func.id]).bind(*node.args, **named)
                    called.append(node.func.id)
    assert sorted(called) == [
        "archive_topics",
        "read_archive",
        "read_archive",
        "replay_topic",
        "report_topic",
        "verify_archive",
    ]
    text = section("Jobs", 2)
    assert f"| {STEP_RECORDS:,}; with a rate" in text
    assert f"| {RECORDS_PER_FILE:,} |" in text
    assert [each for each in COMPRESSIONS if f"`{each}`" not in text] == []
