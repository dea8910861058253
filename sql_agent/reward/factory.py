"""Build the judge that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.reward import Judge
from sql_agent.reward.judges.endpoint import CallLimits
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Words
from sql_agent.reward.judges.panel_cache_prefilter import CachedJudge, PanelJudge, PrefilteredJudge
from sql_agent.schemas import Lang

if TYPE_CHECKING:
    from sql_agent.reward.judges.client import JudgeClient

_NO_WORDS: Mapping[Lang, Words] = {"en": Words(), "zh": Words()}


def judge_name(settings: JudgeSettings, teacher: TeacherSettings) -> str:
    """Return the name of the judge. For "auto" it is llm if TEACHER_MODEL is set, else facts."""
    if settings.name != "auto":
        return settings.name
    return "llm" if teacher.model else "facts"


def judge_from_settings(settings: Settings, words: Mapping[Lang, Words], *, alone: bool = False) -> Judge:
    """Return the judge `settings.judge`; environment variables name its endpoint.

    `words` are the task's words by language, for the judges "facts" and "llm". The processes of a run share the
    endpoint's rate limits: the runners and, for the judge "ranking", the training process, which ranks. With `alone`,
    this judge gets the full limits. Raises ConfigError if a setting of the endpoint is missing.
    """
    processes = 1 if alone else settings.runner.n_runners + (settings.judge.name == "ranking")
    return make_judge(settings.judge, TeacherSettings(), words=words, processes=processes)


def make_judge(
    settings: JudgeSettings, teacher: TeacherSettings, *, words: Mapping[Lang, Words] = _NO_WORDS, processes: int = 1
) -> Judge:
    """Return the judge `settings.name`; a judge that asks a model grades only answers that pass the prefilter.

    Names joined by "+" make a panel. `processes` is the number of processes that share the endpoint's limits. Raises
    ConfigError if the name is unknown, or a setting is missing or wrong.
    """
    return _Factory(settings, teacher, words, processes).judge(judge_name(settings, teacher))


def teacher_client(settings: JudgeSettings, teacher: TeacherSettings) -> JudgeClient:
    """Return a client of the model TEACHER_MODEL, for requests other than gradings.

    Raises ConfigError if TEACHER_MODEL is not set.
    """
    if not teacher.model:
        raise ConfigError("no teacher model is set", hint="set TEACHER_MODEL and TEACHER_BASE_URL, see env_template")
    return _Factory(settings, teacher, _NO_WORDS, 1).client(teacher.model)


@dataclass(frozen=True)
class _Factory:
    # Modules that import an HTTP client are imported only when they are needed: most runs need none.

    settings: JudgeSettings
    teacher: TeacherSettings
    words: Mapping[Lang, Words]
    processes: int

    @property
    def limits(self) -> CallLimits:
        requests, tokens = self.settings.requests_per_minute, self.settings.tokens_per_minute
        concurrency = max(1, self.settings.concurrency // self.processes)
        return CallLimits(concurrency, requests and requests / self.processes, tokens and tokens / self.processes)

    def judge(self, name: str) -> Judge:
        if name == "ranking":
            from sql_agent.reward.judges.ranking_judge import RankingJudge  # noqa: PLC0415

            return RankingJudge(self.client(self.teacher.model), FactsJudge(self.words))
        labels = name.split("+")
        if len(set(labels)) < len(labels):
            raise ConfigError(f"the panel {name} names a judge twice", hint="name each judge once, as in llm:A+llm:B")
        members = [(label, self._member(label)) for label in labels]
        judge = members[0][1] if len(members) == 1 else PanelJudge(members)
        return judge if name == "facts" else PrefilteredJudge(judge)  # the judge "facts" asks no model

    def client(self, model: str | None) -> JudgeClient:
        from sql_agent.reward.judges.client import JudgeClient  # noqa: PLC0415

        if not model:
            raise ConfigError(
                f"the judge {self.settings.name} has no model", hint="set TEACHER_MODEL, or use the judge 'facts'"
            )
        key = self.teacher.api_key
        return JudgeClient(
            model,
            self.limits,
            timeout_s=self.settings.timeout_s,
            max_tokens=self.settings.max_tokens,
            base_url=self.teacher.base_url,
            api_key=key.get_secret_value() if key else None,
        )

    def _member(self, label: str) -> Judge:
        kind, _, model = label.partition(":")
        if label == "facts":
            return FactsJudge(self.words)
        if kind == "llm":
            from sql_agent.reward.judges.llm_judge import LlmJudge, load_rubric  # noqa: PLC0415

            client, rubric = self.client(model or self.teacher.model), load_rubric(self.settings.rubric)
            refusals = [sentence for words in self.words.values() for sentence in words.refusals]
            judge: Judge = LlmJudge(client, rubric, refusals)
        elif label == "reward-model":
            from sql_agent.reward.judges.reward_model_judge import RewardModelJudge  # noqa: PLC0415

            url, scale = self.teacher.reward_model_url, self.settings.reward_model_range
            if not url:
                raise ConfigError("the judge reward-model has no address", hint="set REWARD_MODEL_URL")
            judge = RewardModelJudge(url, self.limits, timeout_s=self.settings.timeout_s, scale=scale)
        else:
            raise ConfigError(
                f"unknown judge {label!r}",
                hint="use one of: auto, facts, llm, llm:MODEL, reward-model, ranking, or several joined by +",
            )
        return CachedJudge(judge, self.settings.cache_dir)
