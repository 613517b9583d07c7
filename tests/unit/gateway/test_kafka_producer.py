"""The gateway's producer and settings that the Kafka client refuses."""

import pytest

from gateway.kafka_producer import make_producer
from gateway.kafka_stats import KafkaStats
from schemas.errors import SettingsError


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"foo.bar": "1"}, 'No such configuration property: "foo.bar"'),
        ({"security.protocol": "SASL_SS"}, 'Invalid value "SASL_SS" for configuration property "security.protocol"'),
    ],
)
def test_a_setting_that_the_client_refuses_is_named(setting: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make_producer(setting, KafkaStats())
    assert str(refused.value).startswith(f"kafka.client cannot be used: {reason}; correct it ")
