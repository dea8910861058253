"""Choose the model to ask: one behind OPENAI_API_BASE, or one that this machine serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from sql_agent.agent.endpoint import ModelEndpoint
from sql_agent.config.settings import EndpointSettings, Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import ConfigError
from sql_agent.runs.console import Ui
from sql_agent.system.runtime import slow_imports


def remote_endpoint(settings: Settings, named: str | None) -> ModelEndpoint | None:
    """Return the endpoint of OPENAI_API_BASE; None when that is not set, or when `named` is a folder of this machine.

    `named` is the model of the command line, which wins over OPENAI_MODEL. Raises ConfigError when neither is given.
    """
    given = EndpointSettings()
    if not given.base_url or (named and Path(named).exists()):
        return None
    if "@" in urlsplit(given.base_url).netloc:  # the URL is printed and kept beside results
        raise ConfigError("OPENAI_API_BASE contains a user name or a password", hint="give a key as OPENAI_API_KEY")
    model = named or given.model
    if not model:
        raise ConfigError("OPENAI_API_BASE is set but no model is named", hint="set OPENAI_MODEL, or give --model NAME")
    key = given.api_key.get_secret_value() if given.api_key else "unused"
    return ModelEndpoint(given.base_url, model, key, settings.agent.val_temperature)


def describe_local(settings: Settings) -> str:
    """Return a phrase that names the model of `local_endpoint`."""
    if settings.model:
        return settings.model
    trained = "after supervised fine-tuning" if settings.sft.steps else "as it is, without supervised fine-tuning"
    return f"the embedded SmolLM2-135M-Instruct, {trained}"


@contextmanager
def local_endpoint(settings: Settings, databases: DatabasePool, ui: Ui) -> Iterator[ModelEndpoint]:
    """Serve the model of `settings` inside the context: a folder as it is, the embedded one after `sft.steps` steps."""
    # Only here, because asking another endpoint needs no torch.
    with slow_imports():
        from sql_agent.training.local.trainer import serve_for_questions  # noqa: PLC0415
        from sql_agent.training.serving.server import MODEL_NAME  # noqa: PLC0415

    service = serve_for_questions(settings, databases, ui)
    try:
        agent = settings.agent
        yield ModelEndpoint(service.base_url, MODEL_NAME, service.api_key, agent.val_temperature)
    finally:
        service.close()
