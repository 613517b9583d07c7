"""Settings of the quality job: `[quality]`. `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.sections import Memory, NotNegative, Positive, Section


class QualitySettings(Section, frozen=True, kw_only=True):
    """What the quality job checks, and where it writes its pages."""

    settle_s: NotNegative
    clock_skew_s: Annotated[float, Meta(ge=0.001)]
    latency_quantile: Annotated[float, Meta(gt=0, lt=1)]
    latency_rows: Positive
    routing_ms: Positive
    delivery_ms: Positive
    examples: Annotated[int, Meta(ge=1, le=1000)]
    dates_per_pass: Positive
    docs: str
    heap: Memory
