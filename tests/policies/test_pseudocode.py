"""The paper's two algorithms stand in their files line by line, in the order of the pseudo-code."""

import io
import re
import tokenize
from pathlib import Path

import pytest

import robandit

POLICIES = Path(robandit.__file__).parent / "policies"

# The lines that the PDF numbers, without the heads and ends of loops (Algorithm 1: 2 and 8; 2: 4, 6, 10, 15, 17, 20).
ALGORITHMS = {
    "robust_weighted_oful.py": ("Algorithm 1 (label alg:2)", [1, 3, 4, 5, 6, 7]),
    "multi_level_weighted_oful.py": (
        "Algorithm 2 (label alg:1)",
        [1, 2, 3, 5, 7, 8, 9, 11, 12, 13, 14, 16, 18, 19],
    ),
}


def cited(source: str) -> list[int]:
    """The numbers of the lines that comments cite, in the order of the file; several places may share a line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    groups = [match for text in comments for match in re.findall(r"[Ll]ines? (\d+(?: and \d+)?)", text)]
    numbers = [int(number) for group in groups for number in group.split(" and ")]
    return [number for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_line_of_the_pseudo_code_is_cited_in_order(name: str) -> None:
    source, (algorithm, lines) = (POLICIES / name).read_text(encoding="utf-8"), ALGORITHMS[name]
    assert algorithm in source and "tests/policies/transcriptions.py" in source
    assert cited(source) == lines


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_line_that_is_missing_or_out_of_order_is_found(name: str) -> None:
    source, (_, lines) = (POLICIES / name).read_text(encoding="utf-8"), ALGORITHMS[name]
    for number in lines:
        without = re.sub(rf"(#.*?[Ll]ines? (?:\d+ and )?){number}\b", r"\g<1>99", source)
        assert without != source and cited(without) != lines
    comments = re.findall("#.*", source)  # alone: from Python 3.12 on, code that makes no sense has no tokens
    assert cited("\n".join(comments)) == lines != cited("\n".join(reversed(comments)))
