"""Define the settings of a rollout: the agent, the judge, and the processes that run both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from sql_agent.config.paths import VAR
from sql_agent.config.section import (
    NotNegative,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Seconds,
    Section,
    Share,
    TopP,
)


class AgentSettings(Section):
    """How the agent runs, and how its model is sampled in training and in validation."""

    tool: Literal["builtin", "mcp"] = Field(
        "builtin", description="builtin: statements run in processes of our own; mcp: behind an MCP server of ours"
    )
    mcp_url: str | None = Field(
        None, description="address of the MCP server, such as http://127.0.0.1:8765/mcp; its token is MCP_TOKEN"
    )
    mcp_command: str | None = Field(
        None, description="command that starts an MCP server over stdio, in place of `agent.mcp_url`: sql-agent mcp"
    )
    workflow: Literal["react", "check-rewrite"] = Field(
        "react",
        description="react: the model calls the tool until it answers; check-rewrite: it writes a statement, checks "
        "the result and writes the statement again, each in a role with a prompt of its own",
    )
    train_roles: str = Field(
        "write|rewrite",
        description="regular expression; of a workflow with several roles only the calls of those that it matches as a "
        "whole are trained: write, check, rewrite, answer",
    )
    max_turns: Positive = Field(
        4,
        description="calls of the model in one rollout, the final answer included; in check-rewrite the statements "
        "that it writes",
    )
    max_tokens: Positive = Field(128, description="tokens that the model may write in one turn")
    temperature: NotNegativeNumber = Field(1.0, description="sampling temperature in training; 0 is greedy")
    top_p: TopP = Field(1.0, description="nucleus sampling in training: share of the probability that is sampled from")
    val_temperature: NotNegativeNumber = Field(
        0.0, description="sampling temperature in validation, `sql-agent ask` and `evaluate`; 0 is greedy"
    )
    val_top_p: TopP = Field(
        1.0, description="nucleus sampling in validation, `sql-agent ask` and `evaluate`, as a share"
    )
    request_timeout_s: Seconds = Field(120.0, description="seconds that one call of the model may take")

    @field_validator("train_roles")
    @classmethod
    def _is_expression(cls, expression: str) -> str:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return expression


class JudgeSettings(Section):
    """Which judge grades the answers, within which limits, and how many failures a run accepts."""

    name: str = Field(
        "auto",
        description="facts, llm, llm:MODEL, reward-model or ranking, or several joined by + as a panel; auto is llm "
        "where TEACHER_MODEL is set, else facts",
    )
    combine: Literal["mean", "min"] = Field("mean", description="how the scores of a panel become one")
    absolute: str = Field("facts", description="judge that grades single answers for the judge `ranking`")
    rubric: Path | None = Field(
        None,
        description="TOML file with the rubric of the judge `llm`; none takes the shipped one. Questions that the "
        "database cannot answer keep theirs",
    )
    scale: Path | None = Field(
        None, description="JSON file with a rescaling of the scores, made by utils/reward_scale.py; none leaves them"
    )
    reward_model_range: tuple[float, float] = Field(
        (0.0, 1.0), description="lowest and highest score of the reward model, mapped to 0 and 1"
    )
    max_answer_chars: Positive = Field(2000, description="characters; a longer answer gets 0 from every judge")
    structure: Literal["json_schema", "json_object", "none"] = Field(
        "json_schema", description="`response_format` of requests to the judge; not every endpoint knows json_schema"
    )
    max_tokens: Positive = Field(
        800, description="tokens of one reply of the judge; doubled, twice at most, when a reply was cut off"
    )
    timeout_s: Seconds = Field(60.0, description="seconds that one request to the judge may take")
    attempts: Positive = Field(6, description="requests for one grading, retries and repairs included")
    concurrency: Positive = Field(32, description="requests to the judge at once, of all runners together")
    requests_per_minute: PositiveNumber | None = Field(
        None, description="requests to the judge in a minute, of all runners together; none is no limit"
    )
    tokens_per_minute: PositiveNumber | None = Field(
        None, description="tokens to and from the judge in a minute, of all runners together; none is no limit"
    )
    cache: bool = Field(True, description="keep the verdicts of judges that are asked over a network")
    cache_dir: Path = Field(VAR / "judge-cache", description="folder of these verdicts")
    max_failed_share: Share = Field(
        0.05,
        description="share of a step's rollouts whose grading may fail; more stops the run. One always may, with the "
        "judge `ranking` one group",
    )
    evaluations_dir: Path = Field(VAR / "judges", description="folder of what `sql-agent judge evaluate` measured")
    min_agreement: Share = Field(0.6, description="Spearman correlation with labels below which no run starts")
    max_false_reward: Share = Field(
        0.15, description="mean score of false answers of one kind (one transformation) above which no run starts"
    )
    allow_weak: bool = Field(
        False, description="train although the judge is below min_agreement or above max_false_reward"
    )

    @field_validator("reward_model_range")
    @classmethod
    def _rises(cls, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] >= ends[1]:
            raise ValueError("the lowest score must come first, and below the highest")
        return ends


class RunnerSettings(Section):
    """Runner processes, the store they talk to, and what happens to lost rollouts."""

    n_runners: Positive = Field(4, description="runner processes")
    concurrency: Positive = Field(
        32, description="rollouts at once in each runner process, and questions at once in `sql-agent evaluate`"
    )
    n_proxies: Positive = Field(1, description="LLM proxy processes; only the verl backend runs more than one")
    store_port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description="port of the store; 0 takes a free one")
    poll_s: Seconds = Field(0.2, description="seconds between two polls of a store that runs elsewhere")
    rollout_timeout_s: Seconds = Field(300.0, description="seconds after which a rollout is lost")
    span_deadline_s: Seconds = Field(
        10.0, description="seconds that the last spans of an ended rollout may take before it is lost"
    )
    rollout_retries: NotNegative = Field(3, description="runs of a lost rollout beyond the first; 0 runs it once")
    max_failed_share: Share = Field(
        0.2, description="share of a step's rollouts that may be lost, failed gradings included; more stops the run"
    )
    stall_s: Seconds = Field(
        60.0, description="seconds without a rollout that starts or ends until a message names those still running"
    )
