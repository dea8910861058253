"""Read the data that a report holds, as its script does."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def data_of(page: Path) -> dict[str, Any]:
    """The data of a page besides the records."""
    found = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data
