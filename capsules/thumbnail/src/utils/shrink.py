"""Resizes picture files with Pillow."""

from PIL import Image, ImageOps, UnidentifiedImageError

# A picture is decoded before it is resized: 100 million pixels of four bytes are 400 MB.
PIXELS_MAX = 100_000_000
# Pillow's own limit: above it, Pillow warns; above twice the value, it refuses before decoding.
Image.MAX_IMAGE_PIXELS = PIXELS_MAX

FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"]


class Unreadable(Exception):
    """The file is not a picture of a supported format, is damaged, or has too many pixels."""


def check(path):
    """Raises Unreadable for problems that the header of the file shows."""
    with opened(path):
        pass


def opened(path):
    try:
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise Unreadable(f"'{path.name}' has an unknown format; expected one of: {', '.join(FORMATS)}") from None
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
            # The largest first: it reads a JPEG only as finely as needed, and the others are made from it.
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
    """The same picture in a mode that Pillow resizes by mixing colours instead of dropping pixels."""
    if not image.mode.startswith(("I", "P", "1")):
        return image
    # The file has the orientation; its copies in other modes may not.
    image = upright(image)
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    return image.convert("RGBA" if is_transparent(image) else "RGB")


def upright(image):
    """The picture in its intended orientation, which cameras store as metadata."""
    image.load()
    # Pillow rotates a TIFF on reading, and its metadata stays.
    return image if image.format == "TIFF" else ImageOps.exif_transpose(image)


def is_transparent(image):
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def plain(image):
    """The same picture in RGB, or RGBA if it is transparent, with only the colour profile as metadata."""
    mode = "RGBA" if is_transparent(image) else "RGB"
    # A profile describes the colours before the conversion, and would be wrong afterwards.
    profile = image.info.get("icc_profile") if image.mode == mode else None
    converted = image.convert(mode)
    converted.info = {"icc_profile": profile} if profile else {}
    return converted


def save(image, path, kind, quality):
    """Writes the picture as `kind`; transparent parts become white in a JPEG."""
    profile = image.info.get("icc_profile")
    if kind == "jpeg" and image.mode == "RGBA":
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    options = {"jpeg": {"quality": quality, "optimize": True}, "png": {"optimize": True}, "webp": {"quality": quality}}
    image.save(path, kind, icc_profile=profile, **options[kind])
