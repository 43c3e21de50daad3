"""Converts sections to ReportLab elements: headings, text, tables and numbered figures."""

from itertools import count

from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.platypus import CondPageBreak, Image, KeepTogether, Paragraph, Spacer, Table

from src.utils import style
from src.utils.blocks import blocks_of, column_widths, is_numeric, squared
from src.utils.style import TEXT_WIDTH, marked_up

# Maximum height of a picture on the same page as its heading, text and caption.
PICTURE_HEIGHT_MAX = 165 * mm
CELL_PADDING = 5
# A table of at most this many rows is not divided between pages.
ROWS_KEPT_MAX = 14
# Minimum free height for a chapter or a table to begin on a page.
CHAPTER_ROOM = 60 * mm


def story_of(sections, picture_file):
    """The flowables of all sections; `picture_file` gives the path of a picture by its name."""
    figures = count(1)
    story = []
    for section in sections:
        head = heading(section["heading"], section.get("level", 1))
        body = [text(kind, words) for kind, words in blocks_of(section.get("text", ""))]
        picture = section.get("picture")
        if picture:
            body += figure(picture_file(picture), section.get("caption", ""), next(figures))
        grid = section.get("grid", [])
        if grid:
            body += [table(grid), Spacer(1, 10)]
        if len(grid) > ROWS_KEPT_MAX:
            # A long table continues on the next page, with its head.
            story += [CondPageBreak(CHAPTER_ROOM), head, *body]
        else:
            # A chapter does not begin at the foot of a page with its content on the next.
            story += [CondPageBreak(CHAPTER_ROOM if head.contents_level == 0 else 0), KeepTogether([head, *body])]
    return story


def heading(words, level):
    paragraph = Paragraph(marked_up(words), style.CHAPTER if level == 1 else style.PART)
    paragraph.contents_level, paragraph.plain_text = level - 1, words
    return paragraph


def text(kind, words):
    if kind == "point":
        return Paragraph(marked_up(words), style.POINT, bulletText="•")
    return Paragraph(marked_up(words), style.BODY)


def figure(path, caption, number):
    """The picture as wide as the text, or as high as a page allows, above its numbered caption."""
    picture = Image(path)
    scale = min(TEXT_WIDTH / picture.imageWidth, PICTURE_HEIGHT_MAX / picture.imageHeight)
    picture = Image(path, picture.imageWidth * scale, picture.imageHeight * scale, hAlign="LEFT")
    return [picture, Paragraph(f"<b>Figure {number}.</b> {marked_up(caption)}", style.CAPTION)]


def table(grid):
    """A table as wide as the text; its head is repeated on each page, its numbers are right-aligned."""
    grid = squared(grid)
    columns = list(zip(*grid))
    right = [is_numeric(column[1:]) for column in columns]
    natural = [max(cell_width(cell, row == 0) for row, cell in enumerate(column)) for column in columns]
    rows = [
        [Paragraph(marked_up(cell), cell_style(row == 0, right[place])) for place, cell in enumerate(cells)]
        for row, cells in enumerate(grid)
    ]
    return Table(
        rows,
        colWidths=column_widths(natural, TEXT_WIDTH),
        repeatRows=1,
        style=[
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ("VALIGN", (0, 0), (-1, 0), "BOTTOM"),
            ("LEFTPADDING", (0, 0), (-1, -1), CELL_PADDING),
            ("RIGHTPADDING", (0, 0), (-1, -1), CELL_PADDING),
            ("TOPPADDING", (0, 0), (-1, -1), 4),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 5),
            ("LINEBELOW", (0, 0), (-1, 0), 1, style.FAINT),
            ("LINEBELOW", (0, 1), (-1, -1), 0.4, style.RULE),
            ("ROWBACKGROUNDS", (0, 1), (-1, -1), [None, style.SHADE]),
        ],
    )


def cell_width(cell, head):
    """The width of a cell without a line break, with a small reserve for rounding."""
    return stringWidth(cell, style.BOLD_FONT if head else style.TEXT_FONT, style.CELL.fontSize) + 2 * CELL_PADDING + 1


def cell_style(head, right):
    if head:
        return style.HEAD_RIGHT if right else style.HEAD
    return style.CELL_RIGHT if right else style.CELL
