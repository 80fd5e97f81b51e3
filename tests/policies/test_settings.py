"""Settings explain themselves."""

from __future__ import annotations

import pydoc

import pytest

from robandit import Bandit, Policy
from robandit.policies import POLICIES
from robandit.policies.settings import describe


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", [Policy, Bandit, *POLICIES.values()])
def test_help_says_what_every_setting_means(kind: type) -> None:
    assert "Settings:" in pydoc.render_doc(kind)
    shown = " ".join((kind.__doc__ or "").split())
    for setting in describe(kind):
        assert setting.meaning and f"{setting.name}: {setting.meaning}" in shown
