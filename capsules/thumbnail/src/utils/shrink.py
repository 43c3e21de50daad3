"""From a picture file to small pictures, by Pillow."""

from PIL import Image, ImageOps, UnidentifiedImageError

# A picture is unpacked before it is shrunk: 100 million pixels of four bytes are 400 MB.
PIXELS_MAX = 100_000_000
# Pillow's own limit: it warns above it, and refuses above twice as many before anything is unpacked.
Image.MAX_IMAGE_PIXELS = PIXELS_MAX

FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"]


class Unreadable(Exception):
    """The file is no picture of a known format, is damaged, or has too many pixels."""


def check(path):
    """Raises Unreadable for what the head of the file tells already."""
    with opened(path):
        pass


def opened(path):
    try:
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable(f"'{path.name}' is none of: {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError:
        raise too_large(path) from None
    except (OSError, ValueError, SyntaxError) as problem:
        raise Unreadable(f"'{path.name}' is damaged: {problem}") from problem
    if image.width * image.height > PIXELS_MAX:
        image.close()
        raise too_large(path)
    return image


def too_large(path):
    return Unreadable(f"'{path.name}' has more than {PIXELS_MAX:,} pixels")


def shrunk(path, sizes):
    """The picture, upright, with its longer side at most each of `sizes`: pairs of size and image, in that order."""
    with opened(path) as image:
        try:
            # The largest first: it reads a JPEG no finer than it needs, and the others are made from it.
            small = smooth(image)
            small.thumbnail((max(sizes), max(sizes)))
            whole = plain(upright(small))
        except (OSError, ValueError, SyntaxError) as problem:
            raise Unreadable(f"'{path.name}' is damaged: {problem}") from problem
    for size in sizes:
        copy = whole.copy()
        copy.thumbnail((size, size))
        yield size, copy


def smooth(image):
    """The same picture in a mode that is shrunk by mixing colours: of others Pillow only leaves pixels out."""
    if not image.mode.startswith(("I", "P", "1")):
        return image
    # The file knows how it is turned; its copies in other modes may not.
    image = upright(image)
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    return image.convert("RGBA" if is_transparent(image) else "RGB")


def upright(image):
    """The picture as it is to be seen, which cameras leave to a note beside it."""
    image.load()
    # A TIFF is turned while it is read, and its note stays.
    return image if image.format == "TIFF" else ImageOps.exif_transpose(image)


def is_transparent(image):
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def plain(image):
    """The same picture in RGB, or RGBA where something is transparent; of its notes only the colour profile stays."""
    mode = "RGBA" if is_transparent(image) else "RGB"
    # A profile describes the colours before the conversion: after one it would be wrong.
    profile = image.info.get("icc_profile") if image.mode == mode else None
    converted = image.convert(mode)
    converted.info = {"icc_profile": profile} if profile else {}
    return converted


def save(image, path, kind, quality):
    """Writes the picture as `kind`; what a JPEG cannot show as transparent becomes white."""
    profile = image.info.get("icc_profile")
    if kind == "jpeg" and image.mode == "RGBA":
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    options = {"jpeg": {"quality": quality, "optimize": True}, "png": {"optimize": True}, "webp": {"quality": quality}}
    image.save(path, kind, icc_profile=profile, **options[kind])
