"""`[feed] mqtt` adds the output for plain MQTT subscribers (S2, S3)."""

import asyncio

import msgspec

from edge.feeds.adapter.mqtt_output import mqtt_outputs
from edge.feeds.adapter.settings import AdapterSettings, FeedSection, SourceSection
from edge.feeds.ingress_output import IngressOutput


def test_the_output_is_there_if_it_is_asked_for() -> None:
    """S2."""
    source = SourceSection(format="nmea0183", name="harbour", address="-")
    settings = AdapterSettings(feed=FeedSection(name="ships", slot="active", adapter="a"), source=source)
    assert mqtt_outputs(settings) == ()
    asked = msgspec.structs.replace(settings, feed=msgspec.structs.replace(settings.feed, mqtt=True))

    async def made() -> None:
        [output] = mqtt_outputs(asked)
        assert isinstance(output, IngressOutput)
        await output.close()

    asyncio.run(made())
