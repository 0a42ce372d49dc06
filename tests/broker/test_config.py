"""The configuration: defaults, sources, and every mistake named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.broker.config import Address, Config, ConfigError, load
from tidelog.broker.config.problems import LATER_SECTIONS, keys_of

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests counts."""
    monkeypatch.delenv("TIDELOG_URL", raising=False)


def file_of(tmp_path: Path, text: str) -> str:
    """Write a configuration file and return its path."""
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    return str(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    """What is wrong with a configuration file."""
    with pytest.raises(ConfigError) as caught:
        load(file_of(tmp_path, text))
    return [str(problem) for problem in caught.value.problems]


def test_the_defaults() -> None:
    """Without any source the documented defaults hold."""
    config = load()
    assert config == Config()
    assert config.broker.listen == Address("127.0.0.1", 9440)
    assert (config.log.durability, config.log.segment_bytes, config.log.retention_us) == (
        "synced",
        67_108_864,
        604_800_000_000,
    )
    assert (config.topics.partitions, config.topics.max_message_bytes) == (6, 16_777_216)


def test_the_example_holds_every_key_with_its_default() -> None:
    """`config.example.yaml` names every key and no other, each with the value that holds without it."""
    import yaml

    assert load(str(EXAMPLE)) == Config()
    written = yaml.safe_load(EXAMPLE.read_text())
    assert {section: list(keys) for section, keys in written.items()} == keys_of()


def test_every_key_of_the_example_has_its_unit() -> None:
    """Durations and sizes stand in the example as people write them."""
    import yaml

    written = yaml.safe_load(EXAMPLE.read_text())
    for section, keys in written.items():
        for key, value in keys.items():
            field = next(
                field
                for name, field in Config.model_fields[section].annotation.model_fields.items()  # pyright: ignore
                if (field.alias or name) == key
            )
            if field.metadata and "read" in str(field.metadata[0]):
                assert isinstance(value, str | dict | None), f"{section}.{key}: {value!r} has no unit"


def test_units_of_every_kind(tmp_path: Path) -> None:
    """Durations, sizes, `null` and addresses are read as they are written."""
    config = load(
        file_of(
            tmp_path,
            "broker: {listen: '[::1]:7', drain_timeout: 250ms}\n"
            "log: {retention: null, segment_bytes: 128MiB, retention_bytes: 10GiB, segment_age: none}\n",
        )
    )
    assert (config.broker.listen, config.broker.drain_timeout_us) == (Address("::1", 7), 250_000)
    assert (config.log.retention_us, config.log.segment_age_us) == (None, None)
    assert (config.log.segment_bytes, config.log.retention_bytes) == (1 << 27, 10 << 30)


def test_flags_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stronger source wins key by key; the weaker ones fill in the rest."""
    path = file_of(tmp_path, "topics: {partitions: 1, max_topics: 11}\nlogging: {level: debug}\n")
    monkeypatch.setenv("TIDELOG_TOPICS__PARTITIONS", "2")
    monkeypatch.setenv("TIDELOG_LOG__RETENTION", "none")
    assert load(path).topics.partitions == 2
    config = load(path, {"topics": {"partitions": 3}})
    assert (config.topics.partitions, config.topics.max_topics, config.logging.level) == (3, 11, "debug")
    assert config.log.retention_us is None


def test_keys_within_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that has keys of its own is merged over the sources like a section; its mistakes are named in full."""
    path = file_of(tmp_path, "delivery: {backoff: {kind: linear, initial: 2s}}\n")
    monkeypatch.setenv("TIDELOG_DELIVERY__BACKOFF__INITIAL", "3s")
    backoff = load(path).delivery.backoff
    assert (backoff.kind, backoff.initial_us, backoff.max_us) == ("linear", 3_000_000, 600_000_000)
    monkeypatch.delenv("TIDELOG_DELIVERY__BACKOFF__INITIAL")
    monkeypatch.setenv("TIDELOG_DELIVERY__BACKOFF", "{kind: constant}")
    assert load(path).delivery.backoff.kind == "constant"
    monkeypatch.delenv("TIDELOG_DELIVERY__BACKOFF")
    text = "delivery: {max_attempts: 0, backoff: {initail: 1s, max: 5, jitter: 2, multiplier: x}, dead_letters: true}\n"
    assert problems(tmp_path, text) == [
        "delivery.max_attempts: expected at least 1, found 0",
        "delivery.backoff.max: expected a duration with its unit such as 250ms, 30s, 5m or 7d, found 5",
        "delivery.backoff.multiplier: expected a number, found 'x'",
        "delivery.backoff.jitter: expected at most 1.0, found 2",
        "delivery.backoff.initail: unknown key; did you mean initial?",
        "delivery.dead_letters: unknown key; did you mean dead_letter?",
    ]
    weights = load(file_of(tmp_path, "delivery: {lanes: {weights: {9: 50, 0: 10}}}\n")).delivery.lanes.weights
    assert weights == (10, 1, 1, 1, 1, 1, 1, 1, 1, 50)
    monkeypatch.setenv("TIDELOG_DELIVERY__LANES__WEIGHTS", "9:3")
    assert load(path).delivery.lanes.weights == (1, 1, 1, 1, 1, 1, 1, 1, 1, 3)
    monkeypatch.delenv("TIDELOG_DELIVERY__LANES__WEIGHTS")
    text = "delivery: {lanes: {policy: fair, weights: {10: 1}, max_wait: 0s, max_wait_share: 1, wieghts: 1}}\n"
    assert problems(tmp_path, text) == [
        "delivery.lanes.policy: expected 'strict' or 'weighted', found 'fair'",
        "delivery.lanes.weights: expected priorities of 0 to 9, found 10",
        "delivery.lanes.max_wait: expected at least 1ms, found 0us",
        "delivery.lanes.max_wait_share: expected at least 2, found 1",
        "delivery.lanes.wieghts: unknown key; did you mean weights?",
    ]
    assert problems(tmp_path, "delivery: {backoff: {initial: 5s, max: 1s}}\n") == [
        "delivery.backoff.initial: expected at most 1s (delivery.backoff.max), found 5s"
    ]


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    """Unknown keys with the nearest name, wrong values, later sections and bad pairs come in one go."""
    found = problems(
        tmp_path,
        "broker: {listne: 1, listen: '0.0.0.0:1', max_connections: 0}\n"
        "log: {retention: 3, partitions: 3, durability: maybe}\n"
        "tls: {cert: x}\n"
        "tpoics: {partitions: 1}\n",
    )
    assert found == [
        "broker.max_connections: expected at least 1, found 0",
        "broker.listne: unknown key; did you mean listen?",
        "log.durability: expected 'received', 'written' or 'synced', found 'maybe'",
        "log.retention: expected a duration with its unit such as 250ms, 30s, 5m or 7d, found 3",
        "log.partitions: unknown key; did you mean topics.partitions?",
        "tls: this version has no such section yet; leave it out",
        "tpoics: unknown section; did you mean topics?",
        "broker.listen: 0.0.0.0:1 can be reached from other machines, but nothing is encrypted and nobody is asked for"
        " credentials; set broker.insecure: true or give --insecure if that is meant",
    ]


def test_a_wrong_value_is_named_with_what_was_expected_in_its_unit(tmp_path: Path) -> None:
    """Bounds stand there as in the example file, beside what was found."""
    found = problems(
        tmp_path,
        "broker: {node_id: a b, max_connections: x, insecure: huh, data_dir: ''}\n"
        "log: {sync_interval: 0s, max_batch_bytes: 1KiB, index_interval_bytes: 1GiB, retention: 1us}\n",
    )
    assert found == [
        "broker.data_dir: expected some text, found ''",
        "broker.node_id: expected 1 to 64 letters, digits, dots, underscores and dashes, found 'a b'",
        "broker.insecure: expected true or false, found 'huh'",
        "broker.max_connections: expected a whole number, found 'x'",
        "log.index_interval_bytes: expected at most 16MiB, found 1GiB",
        "log.retention: expected at least 1s, found 1us",
        "log.sync_interval: expected at least 1ms, found 0us",
        "log.max_batch_bytes: expected at least 64KiB, found 1KiB",
    ]


@pytest.mark.parametrize("section", LATER_SECTIONS)
def test_sections_of_later_versions_are_refused(tmp_path: Path, section: str) -> None:
    """Nobody believes that a setting protects or does something that this version does not know."""
    assert problems(tmp_path, f"{section}: {{enabled: true}}\n") == [
        f"{section}: this version has no such section yet; leave it out"
    ]


BAD_PAIRS = [
    ("broker: {listen: '192.0.2.1:1'}", "broker.listen: 192.0.2.1:1 can be reached"),
    ("broker: {listen: 'example.org:1'}", "broker.listen: example.org:1 can be reached"),
    (
        "broker: {max_frame_bytes: 32MiB}\nlog: {max_batch_payload: 30MiB}",
        "log.max_batch_bytes: expected at most 32704KiB (broker.max_frame_bytes less 64KiB), found 32MiB",
    ),
    (
        "log: {segment_bytes: 32MiB, max_batch_payload: 30MiB}",
        "log.max_batch_bytes: expected at most 32764KiB (log.segment_bytes less 4KiB), found 32MiB",
    ),
    (
        "log: {max_batch_payload: 64MiB, segment_bytes: 128MiB}",
        "log.max_batch_payload: expected at most 65472KiB (broker.max_frame_bytes less 64KiB), found 64MiB",
    ),
    (
        "log: {max_batch_payload: 64MiB}\nbroker: {max_frame_bytes: 90MiB}",
        "log.max_batch_payload: expected at most 65532KiB (log.segment_bytes less 4KiB), found 64MiB",
    ),
    (
        "log: {max_batch_bytes: 1MiB}",
        "topics.max_message_bytes: expected at most 1020KiB (log.max_batch_bytes or max_batch_payload less 4KiB), found"
        " 16MiB",
    ),
    (
        "log: {max_unsynced_bytes: 32MiB}",
        "log.max_unsynced_bytes: expected at least 64MiB (broker.max_frame_bytes), found 32MiB",
    ),
    (
        "broker: {max_connection_bytes: 32MiB}",
        "broker.max_frame_bytes: expected at most 32MiB (broker.max_connection_bytes), found 64MiB",
    ),
    (
        "broker: {max_memory_bytes: 64MiB}",
        "broker.max_connection_bytes: expected at most 64MiB (broker.max_memory_bytes), found 96MiB",
    ),
    (
        "log: {retention: 1d, segment_age: 7h}",
        "log.segment_age: expected at most 6h (a quarter of log.retention), found 7h",
    ),
    (
        "topics: {partitions: 20, max_partitions_per_topic: 10}",
        "topics.partitions: expected at most 10 (topics.max_partitions_per_topic), found 20",
    ),
    (
        "topics: {max_partitions: 999}",
        "topics.max_partitions_per_topic: expected at most 999 (topics.max_partitions), found 1000",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD_PAIRS)
def test_keys_that_contradict_each_other_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    """Each bad pair is one problem that names both keys and the bound."""
    (found,) = problems(tmp_path, text)
    assert found.startswith(expected)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_insecure(tmp_path: Path, listen: str) -> None:
    """What only this machine can reach is always allowed."""
    assert str(load(file_of(tmp_path, f"broker: {{listen: '{listen}'}}")).broker.listen) == listen


def test_insecure_allows_any_address(tmp_path: Path) -> None:
    """Whoever says so may serve the network."""
    text = "broker: {listen: '0.0.0.0:9440', insecure: true}"
    assert load(file_of(tmp_path, text)).broker.listen == Address("0.0.0.0", 9440)


def test_a_file_that_cannot_be_used_is_one_problem(tmp_path: Path) -> None:
    """A missing file, bad YAML, a list, and a key that stands twice are said with the file."""
    with pytest.raises(ConfigError, match="No such file"):
        load(str(tmp_path / "nowhere.yaml"))
    assert "is not YAML" in problems(tmp_path, "log: {")[0]
    assert "expected sections" in problems(tmp_path, "[1, 2]")[0]
    assert "stands twice" in problems(tmp_path, "log:\n  retention: 1d\n  retention: 2d\n")[0]
    assert problems(tmp_path, "log: 3") == ["log: expected keys with their values, found 3"]
    assert load(file_of(tmp_path, "")) == Config()
    assert load(file_of(tmp_path, "log:\n")) == Config()


def test_a_bad_value_from_the_environment_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of a mistake is said, and an unknown variable is a mistake too."""
    monkeypatch.setenv("TIDELOG_LOG__SYNC_INTERVAL", "soon")
    monkeypatch.setenv("TIDELOG_LGO__RETENTION", "7d")
    monkeypatch.setenv("TIDELOG_LOG__RETENSION", "7d")
    with pytest.raises(ConfigError) as caught:
        load()
    assert sorted(map(str, caught.value.problems)) == [
        "TIDELOG_LGO__RETENTION: unknown section (known: broker, log, topics, archive, delivery, trace, logging)",
        "log.retension: unknown key; did you mean retention? (from TIDELOG_LOG__RETENSION)",
        "log.sync_interval: expected a duration such as 250ms, 30s, 5m or 7d, found 'soon'"
        " (from TIDELOG_LOG__SYNC_INTERVAL)",
    ]


def test_the_client_s_variable_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIDELOG_URL belongs to clients and disturbs no broker."""
    monkeypatch.setenv("TIDELOG_URL", "localhost:1")
    assert load() == Config()


def test_yaml_cannot_run_code(tmp_path: Path) -> None:
    """A configuration is data: tags that make objects are refused."""
    assert "is not YAML" in problems(tmp_path, "log: !!python/object/apply:os.system ['true']")[0]


def test_the_options_of_the_archive_are_a_mapping_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and values from a file or as one mapping in the environment; what is none never shows what it holds."""
    path = file_of(tmp_path, "archive: {url: 's3://b', options: {allow_http: true, port: 9000, region: eu}}")
    assert load(path).archive.options == {"allow_http": "true", "port": "9000", "region": "eu"}
    monkeypatch.setenv("TIDELOG_ARCHIVE__OPTIONS", "{region: us}")
    assert load(path).archive.options == {"region": "us"}
    monkeypatch.setenv("TIDELOG_ARCHIVE__URL", "none")
    assert load(path).archive.url is None
    monkeypatch.setenv("TIDELOG_ARCHIVE__OPTIONS", "hush")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert [str(problem) for problem in caught.value.problems] == [
        "archive.options: expected names with their values, as in {region: eu-west-1}, found something else"
        " (from TIDELOG_ARCHIVE__OPTIONS)"
    ]
    monkeypatch.delenv("TIDELOG_ARCHIVE__OPTIONS")
    monkeypatch.delenv("TIDELOG_ARCHIVE__URL")
    assert problems(tmp_path, "archive: {url: nowhere, part_bytes: 1MiB, options: {key: [hush]}}") == [
        "archive.url: expected a url such as file:///var/archive or s3://bucket/prefix, found 'nowhere'",
        "archive.options: key: expected text, found something else",
        "archive.part_bytes: expected at least 5MiB, found 1MiB",
    ]
