"""Makes thumbnails with Pillow.

Looks after payload and files; how a picture becomes a small one is in utils/shrink.py, which alone
knows the library.
"""

from aod import CapsuleError

from src.utils.naming import thumbnail_names
from src.utils.shrink import Unreadable, check, save, shrunk


def execute(inputs, ctx):
    """Shrinks each of `pictures` to each of `sizes`, upright, without what cameras write beside the picture."""
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
    """Before any work is done, all files that are no pictures, or too large, are named at once."""
    problems = []
    for picture in pictures:
        try:
            check(picture)
        except Unreadable as problem:
            problems.append(str(problem))
    if problems:
        raise CapsuleError("picture_unreadable", "; ".join(problems))
