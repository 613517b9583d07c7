"""Whether what a gateway answers for a bundle is a receipt for it: only such a one settles a message (M8). Pure."""

from bundles import receipt as receipt_format
from bundles.bundle import Header
from bundles.errors import BundleError
from bundles.receipt import Signers, VerifiedReceipt


class NoReceipt(Exception):
    """`is_unknown`: the signer's certificate may be missing here; otherwise the receipt is wrong."""

    def __init__(self, text: str, *, is_unknown: bool = False) -> None:
        super().__init__(text)
        self.is_unknown = is_unknown


def checked(raw: bytes, header: Header, signers: Signers) -> VerifiedReceipt:
    """The verified receipt in `raw` for the message of `header`. Raises NoReceipt."""
    try:
        found = receipt_format.decode(raw)
        if found.message_id != header.message_id:
            raise NoReceipt(f"a receipt for {found.message_id} came for {header.message_id}")
        if not found.settles(header):
            raise NoReceipt(f"{found.signer} is not the recipient of {header.message_id}")
        is_unknown = not signers(found.signer, found.role)
    except BundleError as error:
        raise NoReceipt(f"the receipt for {header.message_id} cannot be read: {error}") from error
    try:
        return receipt_format.verify(found, signers)
    except BundleError as error:
        raise NoReceipt(str(error), is_unknown=is_unknown) from error
