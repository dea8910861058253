"""The reward of a rollout: a rule for having queried, and a judge for having answered."""

from sql_agent.reward.hybrid import score
from sql_agent.reward.judge import JUDGE_NAMES, Judge, JudgeCase, Verdict, make_judge
from sql_agent.reward.rule import RULE_REWARD, rule_reward

__all__ = ["JUDGE_NAMES", "RULE_REWARD", "Judge", "JudgeCase", "Verdict", "make_judge", "rule_reward", "score"]
