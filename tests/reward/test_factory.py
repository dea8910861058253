"""A judge that cannot be made is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.reward.factory import make_judge


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "chatgpt"}, "unknown judge 'chatgpt'"),
        ({"name": "facts+"}, "unknown judge ''"),
        ({"name": "llm+llm"}, "twice"),
        ({"name": "reward-model"}, "REWARD_MODEL_URL"),
    ],
)
def test_a_wrong_judge_is_said_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_judge(JudgeSettings(**settings), TeacherSettings(model="m", reward_model_url=None))
