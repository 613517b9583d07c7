"""Started by spark-submit, which takes a file, while applications are modules: `launch.py MODULE [ARGUMENT ...]`."""

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
