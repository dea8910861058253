"""A panel combines its members, all of them."""

from __future__ import annotations

import pytest

from sql_agent.errors import JudgeError
from sql_agent.reward.judges.panel_cache_prefilter import PanelJudge
from tests.support.judge_server import Server
from tests.support.paracetamol import Fixed, case, judge


async def test_a_panel_is_the_mean_and_says_how_much_its_members_disagree() -> None:
    panel = PanelJudge([("a", Fixed("a")), ("b", Fixed("b", 0.5))])
    verdict = await panel.grade(case("0.8"))
    assert verdict.score == pytest.approx(0.6)
    assert verdict.criteria == pytest.approx({"disagreement": 0.4, "a": 0.8, "a.own": 0.8, "b": 0.4, "b.own": 0.4})
    assert verdict.usage.requests == 2
    assert panel.name == "a+b"


async def test_a_panel_with_a_member_missing_is_no_panel() -> None:
    with pytest.raises(JudgeError, match="no number"):
        await PanelJudge([("a", Fixed("a")), ("b", Fixed("b"))]).grade(case("x"))


async def test_a_panel_by_name(server: Server) -> None:
    server.default = {"score": 0.5}
    verdict = await judge(server, name="facts+reward-model").grade(case("pain; fever"))
    assert verdict.score == pytest.approx(0.75)
    assert verdict.criteria["disagreement"] == pytest.approx(0.5)
