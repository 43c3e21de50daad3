"""The style of all reports: page, type and colours."""

from reportlab.lib.colors import HexColor
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from xml.sax.saxutils import escape

PAGE_WIDTH, PAGE_HEIGHT = A4
MARGIN = 22 * mm
TEXT_WIDTH = PAGE_WIDTH - 2 * MARGIN

INK, FAINT, RULE = HexColor("#1B2733"), HexColor("#5B6875"), HexColor("#D5DCE3")
NIGHT, ACCENT, SHADE = HexColor("#0C1E33"), HexColor("#0072B2"), HexColor("#F3F6F9")

FACES = {"normal": "Regular", "bold": "Bold", "italic": "Italic", "boldItalic": "BoldItalic"}
TEXT_FONT, BOLD_FONT = "Carlito-Regular", "Carlito-Bold"
# Has the characters of most alphabets, which the text font lacks.
SPARE_FONT = "DejaVuSans"

for face in FACES.values():
    pdfmetrics.registerFont(TTFont(f"Carlito-{face}", f"/usr/share/fonts/truetype/crosextra/Carlito-{face}.ttf"))
pdfmetrics.registerFont(TTFont(SPARE_FONT, "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"))
pdfmetrics.registerFontFamily(TEXT_FONT, **{style: f"Carlito-{face}" for style, face in FACES.items()})

BODY = ParagraphStyle("body", fontName=TEXT_FONT, fontSize=10.5, leading=15, textColor=INK, spaceAfter=7)
POINT = ParagraphStyle("point", BODY, leftIndent=13, bulletIndent=2, bulletColor=ACCENT, spaceAfter=4)
CHAPTER = ParagraphStyle("chapter", BODY, fontName=BOLD_FONT, fontSize=19, leading=24, spaceBefore=26, spaceAfter=9)
PART = ParagraphStyle("part", BODY, fontName=BOLD_FONT, fontSize=13, leading=17, spaceBefore=14, spaceAfter=4)
CAPTION = ParagraphStyle("caption", BODY, fontSize=9, leading=12, textColor=FAINT, spaceBefore=3, spaceAfter=14)
CELL = ParagraphStyle("cell", BODY, fontSize=8.8, leading=11.4, spaceAfter=0)
CELL_RIGHT = ParagraphStyle("cell right", CELL, alignment=TA_RIGHT)
HEAD = ParagraphStyle("head", CELL, fontName=BOLD_FONT, textColor=FAINT)
HEAD_RIGHT = ParagraphStyle("head right", HEAD, alignment=TA_RIGHT)
TITLE = ParagraphStyle("title", BODY, fontName=BOLD_FONT, fontSize=34, leading=39, spaceAfter=0)
SUBTITLE = ParagraphStyle("subtitle", BODY, fontSize=14, leading=19, textColor=FAINT, spaceAfter=0)
CONTENTS = [
    ParagraphStyle("contents 1", BODY, fontName=BOLD_FONT, fontSize=11.5, leading=16, spaceBefore=9, spaceAfter=0),
    ParagraphStyle("contents 2", BODY, fontSize=10.5, leading=15, leftIndent=14, textColor=FAINT, spaceAfter=0),
]


def marked_up(text):
    """Plain text for a Paragraph: without markup, and without missing glyphs."""
    known = pdfmetrics.getFont(TEXT_FONT).face.charToGlyph
    pieces = []
    for sign in text:
        if ord(sign) in known or sign.isspace():
            pieces.append(escape(sign))
        else:
            pieces.append(f'<font name="{SPARE_FONT}">{escape(sign)}</font>')
    return "".join(pieces)
