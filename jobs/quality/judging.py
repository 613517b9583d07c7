"""Great Expectations over Spark's findings.

Its Spark engine would query Spark once or twice for every expectation and date. So Spark measures each expectation for
all dates at once (:mod:`pipelines.quality.findings`), and a checkpoint here judges the measurements: what was observed
is at most what is allowed.
"""

import html
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from jobs.errors import QualityError
from jobs.output import visible
from pipelines.quality.expectations import EXPECTATIONS, SUITES, Expectation

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read on import: turns its telemetry off
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its import warnings concern nobody here
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

logging.getLogger("great_expectations").setLevel(logging.ERROR)

NAME = "quality"


class Measured(NamedTuple):
    """What was found for one expectation on one date: of `judged` rows, how many are `unexpected`, some `examples` of
    these, and the values compared: `observed` with the maximum `allowed`. `observed` is None if nothing can be
    measured."""

    expectation: Expectation
    judged: int
    unexpected: int
    observed: float | None
    allowed: float
    examples: Sequence[str] = ()


class Verdict(NamedTuple):
    """`success` of each expectation by name, and Great Expectations' own results by suite."""

    success: Mapping[str, bool]
    results: Mapping[str, ExpectationSuiteValidationResult]


class Judge:
    """A checkpoint with one expectation suite per family (:mod:`pipelines.quality.expectations`); `allowed` by name."""

    def __init__(self, allowed: Mapping[str, float]) -> None:
        config = DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
            progress_bars=ProgressBarsConfig(globally=False),
            analytics_enabled=False,
        )
        context = gx.get_context(mode="ephemeral", project_config=config)
        asset = context.data_sources.add_pandas("ledger").add_dataframe_asset("measurements")
        batch = asset.add_batch_definition_whole_dataframe("date")
        definitions = [
            context.validation_definitions.add(
                gx.ValidationDefinition(name=suite, data=batch, suite=context.suites.add(_suite(suite, allowed)))
            )
            for suite in SUITES
        ]
        self._checkpoint = context.checkpoints.add(
            gx.Checkpoint(name=NAME, validation_definitions=definitions, result_format="BASIC")
        )

    def judge(self, measured: Sequence[Measured]) -> Verdict:
        """The verdict on one date."""
        # One row with a column for each: one row for each, with row conditions, took half as long again.
        frame = pd.DataFrame({one.expectation.name: [one.observed] for one in measured}, dtype="float64")
        done = self._checkpoint.run(batch_parameters={"dataframe": frame})
        by_name = {one.expectation.name: one for one in measured}
        success: dict[str, bool] = {}
        results: dict[str, ExpectationSuiteValidationResult] = {}
        for result in done.run_results.values():
            results[result.suite_name] = result
            for single in result.results:
                _raise_if_failed(single)
                name = single.expectation_config.meta["name"]
                success[name] = bool(single.success)
                single.result = _in_rows(by_name[name], success[name])
        return Verdict(success, results)


def _suite(suite: str, allowed: Mapping[str, float]) -> Any:
    return gx.ExpectationSuite(
        name=suite,
        expectations=[
            gx.expectations.ExpectColumnValuesToBeBetween(
                column=one.name, max_value=allowed[one.name], description=one.sentence, meta={"name": one.name}
            )
            for one in EXPECTATIONS
            if one.suite == suite
        ],
    )


def _raise_if_failed(result: ExpectationValidationResult) -> None:
    """An expectation that could not be judged is neither a success nor a fault of the ledger. Raises QualityError."""
    if result.exception_info.get("raised_exception"):
        name, message = result.expectation_config.meta["name"], result.exception_info["exception_message"]
        raise QualityError(f"cannot check the expectation {name}: {message}")


def _in_rows(measured: Measured, success: bool) -> dict[str, Any]:
    """The result in terms of the judged rows, where the checkpoint saw only one measurement."""
    # Escaped for the pages, whose renderer inserts samples unescaped: clients choose their ids.
    examples = [] if success else [html.escape(visible(example)) for example in measured.examples]
    percent = 100 * measured.unexpected / measured.judged if measured.judged else 0.0
    return {
        "element_count": measured.judged,
        "unexpected_count": measured.unexpected,
        "unexpected_percent": percent,
        "observed_value": measured.observed,
        "partial_unexpected_list": examples,
        "partial_unexpected_counts": [{"value": example, "count": 1} for example in examples],
    }
