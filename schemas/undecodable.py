"""What decoding raises for bytes that somebody else has sent or written."""

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that do not follow the declared format. RecursionError: they are nested too deeply."""
