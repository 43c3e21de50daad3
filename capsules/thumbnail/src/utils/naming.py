"""Names for thumbnails: from the picture's name, the size, and the extension of the format."""

import re
from pathlib import PurePath

ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}
STEM_CHARACTERS_MAX = 80


def thumbnail_names(pictures, sizes, kind):
    """A unique file name for each pair of (index of the picture, size)."""
    names, taken = {}, set()
    for index, picture in enumerate(pictures):
        stem = re.sub(r"[^\w-]+", "-", PurePath(picture).stem).strip("-")[:STEM_CHARACTERS_MAX] or "picture"
        # 'a.png' and 'a.jpg' would get the same name.
        while stem in taken:
            stem = f"{stem}-{index + 1}"
        taken.add(stem)
        names.update({(index, size): f"{stem}-{size}.{ENDINGS[kind]}" for size in sizes})
    return names
