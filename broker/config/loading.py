"""From flags, environment and file to one checked `Config`; or every problem at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from .pairs import check_pairs
from .problems import LATER_SECTIONS, ConfigError, Problem, is_nested, keys_of, problems_of
from .sections import (
    ArchiveSection,
    BrokerSection,
    Config,
    DeliverySection,
    LoggingSection,
    LogSection,
    TopicsSection,
    TraceSection,
)

ENV_PREFIX = "TIDELOG_"
ENV_DELIMITER = "__"

Values = dict[str, dict[str, object]]
"""section -> key -> value as it was written."""


class _Environment(BaseSettings):
    """Tells pydantic-settings which variables to look for: `TIDELOG_LOG__SEGMENT_BYTES` is `log.segment_bytes`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER, enable_decoding=False, env_ignore_empty=False
    )
    broker: BrokerSection = BrokerSection()
    log: LogSection = LogSection()
    topics: TopicsSection = TopicsSection()
    archive: ArchiveSection = ArchiveSection()
    delivery: DeliverySection = DeliverySection()
    trace: TraceSection = TraceSection()
    logging: LoggingSection = LoggingSection()


def load(
    path: str | None = None, flags: Mapping[str, Mapping[str, object]] | None = None, *, environment: bool = True
) -> Config:
    """Return the configuration: flags win over environment, environment over the file, the file over defaults.

    Raises ConfigError that names every wrong key.
    """
    problems: list[Problem] = []
    values: Values = {}
    for source in (_read_file(path, problems), _read_environment(problems) if environment else {}, flags or {}):
        for section, keys in source.items():
            _merge(values.setdefault(section, {}), section, keys)
    config = _validate(values, problems)
    wrong = {problem.key for problem in problems}
    problems += check_pairs(config, wrong)
    if problems:
        raise ConfigError([_with_variable(problem) for problem in problems])
    return config


def _merge(into: dict[str, object], section: str, keys: Mapping[str, object]) -> None:
    """Let stronger values replace weaker ones, key by key; keys that have keys of their own are merged too."""
    for key, value in keys.items():
        weaker = into.get(key)
        if isinstance(value, dict) and isinstance(weaker, dict) and is_nested(section, key):
            into[key] = {**cast("dict[str, object]", weaker), **cast("dict[str, object]", value)}
        else:
            into[key] = value


def _validate(values: Values, problems: list[Problem]) -> Config:
    """Return the configuration with the default in place of each wrong value, so that pairs can still be checked."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems += problems_of(error)
        for found in error.errors():
            section, *rest = map(str, found["loc"])
            if rest:
                values[section].pop(rest[0], None)
            else:
                values.pop(section, None)
        return Config.model_validate(values)


def _read_file(path: str | None, problems: list[Problem]) -> Values:
    if path is None:
        return {}
    try:
        content = yaml.load(Path(path).read_text("utf-8"), _UniqueKeysLoader)
    except OSError as error:
        problems.append(Problem(path, f"cannot be read: {error.strerror}"))
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problems.append(Problem(path, "is not YAML: " + " ".join(str(error).split())))
        return {}
    return _sections_of(path, content, problems)


def _sections_of(path: str, content: object, problems: list[Problem]) -> Values:
    if content is None:
        return {}
    if not isinstance(content, dict):
        problems.append(Problem(path, f"expected sections ({', '.join(keys_of())}), found {content!r:.60}"))
        return {}
    values: Values = {}
    for name, keys in cast("dict[object, object]", content).items():
        if isinstance(keys, dict):
            values[str(name)] = {str(key): value for key, value in cast("dict[object, object]", keys).items()}
        elif str(name) in LATER_SECTIONS or str(name) not in keys_of():
            values[str(name)] = {}
        elif keys is not None:
            problems.append(Problem(str(name), f"expected keys with their values, found {keys!r:.60}"))
    return values


def _read_environment(problems: list[Problem]) -> Values:
    known = keys_of()
    for variable in os.environ:
        section = variable.removeprefix(ENV_PREFIX).split(ENV_DELIMITER)[0].lower()
        if variable.startswith(ENV_PREFIX) and ENV_DELIMITER in variable and section not in known:
            problems.append(Problem(variable, f"unknown section (known: {', '.join(known)})"))
    found = cast("dict[str, object]", EnvSettingsSource(_Environment)())
    values: Values = {}
    for section, keys in found.items():
        if isinstance(keys, dict):
            values[section] = cast("dict[str, object]", keys)
        else:
            problems.append(Problem(f"{ENV_PREFIX}{section.upper()}", "set single keys, as in TIDELOG_LOG__RETENTION"))
    return values


def _with_variable(problem: Problem) -> Problem:
    """Say that a value came from the environment, where it did."""
    variable = ENV_PREFIX + problem.key.replace(".", ENV_DELIMITER).upper()
    return Problem(problem.key, f"{problem.text} (from {variable})") if variable in os.environ else problem


class _UniqueKeysLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys in silence; a configuration that contradicts itself is an error."""

    def compose_mapping_node(  # pyright: ignore[reportIncompatibleMethodOverride]: the stubs have another argument
        self, anchor: dict[object, yaml.Node]
    ) -> yaml.MappingNode:
        """Refuse a key that stands twice, with its place in the file."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if isinstance(key, yaml.ScalarNode):
                text = str(key.value)
                if text in seen:
                    raise yaml.MarkedYAMLError(None, None, f"the key {text!r} stands twice", key.start_mark)
                seen.add(text)
        return node
