"""One fuzzing process: `python -m tests.fuzz.worker TARGET SEED [libFuzzer's options and corpus directories]`.

atheris measures which branches of the gateway an input reaches; what reaches new ones is kept and mutated on.
"""

import logging
import random
import sys

import atheris
import structlog

INSTRUMENTED = {"host": ["gateway.host", "gateway.shard.session", "gateway.shard.subscribing", "mqtt"]}


def main() -> None:
    name, seed, *options = sys.argv[1:]
    with atheris.instrument_imports(include=INSTRUMENTED.get(name, ["mqtt"])):
        from tests.fuzz.targets import LARGEST_BYTES, TARGETS

        target = TARGETS[name]
        run = target.run
    # What the gateway says about its clients is not what is looked for.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    rng = random.Random()

    def mutate(data: bytes, max_size: int, step: int) -> bytes:
        rng.seed(step)
        return target.mutate(bytes(data), rng, lambda raw: bytes(atheris.Mutate(raw, LARGEST_BYTES)))[:max_size]

    command = f"{sys.executable} -m tests.fuzz.worker {name} {seed}"  # by which libFuzzer starts itself to merge
    atheris.Setup([command, *options, f"-seed={seed}", f"-max_len={LARGEST_BYTES}"], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
