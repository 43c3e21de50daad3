"""Creates thumbnails with Pillow.

Handles payload and files; utils/shrink.py resizes pictures, and is the only module that uses Pillow.
"""

from aod import CapsuleError

from src.utils.naming import thumbnail_names
from src.utils.shrink import Unreadable, check, save, shrunk


def execute(inputs, ctx):
    """Resizes each of `pictures` to each of `sizes`, upright, without camera metadata."""
    pictures = [ctx.input_file(name) for name in inputs["pictures"]]
    sizes, kind = inputs["sizes"], inputs["format"]
    refuse_unreadable(pictures)

    names = thumbnail_names(inputs["pictures"], sizes, kind)
    thumbnails = []
    for index, picture in enumerate(pictures):
        try:
            for size, image in shrunk(picture, sizes):
                file = ctx.output_file(names[index, size])
                save(image, file, kind, inputs["quality"])
                thumbnails.append(
                    {"file": file, "of": index, "size": size, "width": image.width, "height": image.height}
                )
        except Unreadable as problem:
            raise CapsuleError("picture_unreadable", str(problem)) from problem
    ctx.log.info(f"made {len(thumbnails)} thumbnails of {len(pictures)} pictures")
    return {"thumbnails": thumbnails}


def refuse_unreadable(pictures):
    """Reports all files that are not pictures, or too large, before any work."""
    problems = []
    for picture in pictures:
        try:
            check(picture)
        except Unreadable as problem:
            problems.append(str(problem))
    if problems:
        raise CapsuleError("picture_unreadable", "; ".join(problems))
