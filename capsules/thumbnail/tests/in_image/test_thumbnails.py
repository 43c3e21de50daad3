"""Generated pictures, resized by Pillow: sizes, formats, orientations, and files that are not pictures."""

import struct
import unittest
import zlib

from aod import CapsuleError
from aod.testing import CapsuleTestCase
from PIL import Image

from src import main

RED, BLUE = (255, 0, 0), (0, 0, 255)
ORIENTATION, TURNED_RIGHT = 0x0112, 6


def two_halves(width=400, height=200):
    """Red on the left, blue on the right."""
    picture = Image.new("RGB", (width, height), RED)
    picture.paste(BLUE, (width // 2, 0, width, height))
    return picture


def png_head(width, height):
    """The header of a PNG file with a number of pixels, but no data."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", b"")]
    written = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


class Thumbnails(CapsuleTestCase):
    def execute(self, *pictures, **inputs):
        inputs = {"pictures": list(pictures), "sizes": [256], "format": "jpeg", "quality": 85, **inputs}
        return main.execute(inputs, self.context)["thumbnails"]

    def made(self, thumbnail):
        image = Image.open(thumbnail["file"])
        image.load()
        return image

    def check_colour(self, image, place, colour):
        found = image.convert("RGB").getpixel(place)
        self.assertLess(max(abs(a - b) for a, b in zip(found, colour)), 12, f"{found} at {place}")

    def test_sizes_keep_the_proportions_and_nothing_grows(self):
        two_halves().save(self.io / "input" / "a.png")
        made = self.execute("a.png", sizes=[100, 1000])
        self.assertEqual([(one["width"], one["height"]) for one in made], [(100, 50), (400, 200)])
        for one in made:
            image = self.made(one)
            self.assertEqual((image.size, image.format), ((one["width"], one["height"]), "JPEG"))
            self.check_colour(image, (2, 2), RED)
            self.check_colour(image, (image.width - 3, 2), BLUE)

    def test_a_turned_photograph_comes_upright_and_says_so_no_more(self):
        notes = Image.Exif()
        notes[ORIENTATION] = TURNED_RIGHT
        notes[0x010F] = "a camera"
        two_halves().save(self.io / "input" / "a.jpg", exif=notes)
        for kind in ("jpeg", "png", "webp"):
            image = self.made(self.execute("a.jpg", sizes=[100], format=kind)[0])
            self.assertEqual(image.size, (50, 100))
            self.check_colour(image, (25, 3), RED)
            self.check_colour(image, (25, 96), BLUE)
            self.assertEqual(dict(image.getexif()), {})

    def test_what_is_transparent_stays_so_or_becomes_white(self):
        Image.new("RGBA", (10, 10), (0, 0, 0, 0)).save(self.io / "input" / "a.png")
        self.check_colour(self.made(self.execute("a.png")[0]), (5, 5), (255, 255, 255))
        self.assertEqual(self.made(self.execute("a.png", format="png")[0]).getpixel((5, 5))[3], 0)

    def test_every_kind_of_picture(self):
        for kind, mode in [
            ("gif", "P"),
            ("tiff", "CMYK"),
            ("tiff", "I;16"),
            ("bmp", "1"),
            ("webp", "RGBA"),
            ("png", "LA"),
            ("png", "P"),
        ]:
            with self.subTest(f"{mode} in {kind}"):
                Image.new(mode, (30, 20)).save(self.io / "input" / f"a.{kind}")
                self.assertEqual(self.made(self.execute(f"a.{kind}", sizes=[15])[0]).size, (15, 10))

    def test_sixteen_bits_of_grey_keep_their_brightness(self):
        for mode in ("I;16", "I"):
            Image.new(mode, (30, 20), 0x8000).save(self.io / "input" / "a.png")
            self.check_colour(self.made(self.execute("a.png")[0]), (5, 5), (128, 128, 128))

    def test_colours_are_mixed_in_every_mode(self):
        stripes = Image.new("1", (100, 100))
        stripes.putdata([column % 2 * 255 for _ in range(100) for column in range(100)])
        for mode in ("1", "L", "P", "RGB", "LA", "RGBA"):
            with self.subTest(mode):
                stripes.convert("L").convert(mode).save(self.io / "input" / "a.png")
                self.check_colour(self.made(self.execute("a.png", sizes=[10])[0]), (5, 5), (128, 128, 128))

    def test_a_turned_picture_of_any_mode_comes_upright(self):
        notes = Image.Exif()
        notes[ORIENTATION] = TURNED_RIGHT
        for kind, mode in [("png", "P"), ("tiff", "P"), ("tiff", "RGB"), ("webp", "RGB"), ("tiff", "I;16")]:
            with self.subTest(f"{mode} in {kind}"):
                Image.new("L", (40, 20)).convert(mode).save(self.io / "input" / f"a.{kind}", exif=notes)
                self.assertEqual(self.made(self.execute(f"a.{kind}", sizes=[20])[0]).size, (10, 20))

    def test_several_at_once_in_their_order(self):
        for name in ("b.png", "a.png", "a.bmp"):
            two_halves(20, 20).save(self.io / "input" / name)
        made = self.execute("b.png", "a.png", "a.bmp", sizes=[8, 4])
        self.assertEqual([(one["of"], one["size"]) for one in made], [(0, 8), (0, 4), (1, 8), (1, 4), (2, 8), (2, 4)])
        self.assertEqual(len({one["file"] for one in made}), 6)

    def test_all_that_cannot_be_read_is_named_at_once(self):
        two_halves().save(self.io / "input" / "good.png")
        (self.io / "input" / "letter.png").write_text("this is a letter")
        (self.io / "input" / "bomb.png").write_bytes(png_head(60_000, 60_000))
        (self.io / "input" / "large.png").write_bytes(png_head(10_001, 10_000))
        (self.io / "input" / "page.svg").write_text("<svg/>")
        with self.assertRaises(CapsuleError) as refused:
            self.execute("good.png", "letter.png", "bomb.png", "large.png", "page.svg")
        self.assertEqual(refused.exception.code, "picture_unreadable")
        self.assertEqual(str(refused.exception).count("has more than 100,000,000 pixels"), 2)
        self.assertEqual(str(refused.exception).count("has an unknown format"), 2)
        self.assertFalse((self.io / "output").exists())

    def test_a_picture_that_breaks_off_is_refused(self):
        two_halves().save(self.io / "input" / "a.png")
        content = (self.io / "input" / "a.png").read_bytes()
        (self.io / "input" / "half.png").write_bytes(content[: len(content) // 2])
        with self.assertRaises(CapsuleError) as refused:
            self.execute("half.png")
        self.assertIn("'half.png' is damaged", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
