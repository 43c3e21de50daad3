"""The document: its cover, its table of contents, and the foot of each page."""

from reportlab.lib.utils import ImageReader
from reportlab.lib.units import mm
from reportlab.platypus import BaseDocTemplate, Frame, NextPageTemplate, PageBreak, PageTemplate, Paragraph
from reportlab.platypus.tableofcontents import TableOfContents

from src.utils import style
from src.utils.style import MARGIN, PAGE_HEIGHT, PAGE_WIDTH, TEXT_WIDTH, marked_up


class Report(BaseDocTemplate):
    """A PDF file with a cover and numbered pages; headings become table of contents, links and bookmarks.

    The same story gives the same bytes, independent of time and randomness.
    """

    def __init__(self, path, title, subtitle, numbers, picture):
        super().__init__(
            str(path),
            pagesize=style.A4,
            title=title,
            subject=subtitle,
            author="Agent-On-Demand",
            creator="report",
            invariant=1,
        )
        self.title_text, self.subtitle, self.numbers, self.picture = title, subtitle, numbers, picture
        self.headings = 0
        frame = Frame(MARGIN, 24 * mm, TEXT_WIDTH, PAGE_HEIGHT - 46 * mm, 0, 0, 0, 0)
        self.addPageTemplates([
            PageTemplate("cover", [frame], onPage=self.draw_cover),
            PageTemplate("inside", [frame], onPage=self.draw_foot),
        ])  # fmt: skip

    def front(self):
        """The pages before the first chapter: the cover, which draws itself, and the table of contents."""
        contents = TableOfContents(levelStyles=style.CONTENTS, dotsMinLevel=0)
        heading = Paragraph("Contents", style.CHAPTER)
        return [NextPageTemplate("inside"), PageBreak(), heading, contents, PageBreak()]

    def beforeDocument(self):
        self.headings = 0  # The story is typeset several times, until all page numbers are right.

    def afterFlowable(self, flowable):
        level = getattr(flowable, "contents_level", None)
        if level is None:
            return
        self.headings += 1
        key = f"heading-{self.headings}"
        self.canv.bookmarkPage(key)
        self.canv.addOutlineEntry(flowable.plain_text, key, level, closed=False)
        self.notify("TOCEntry", (level, marked_up(flowable.plain_text), self.page, key))

    def draw_cover(self, canvas, _):
        canvas.saveState()
        image = ImageReader(self.picture)
        width, height = image.getSize()
        shown = PAGE_WIDTH * height / width
        canvas.setFillColor(style.NIGHT)
        canvas.rect(0, PAGE_HEIGHT - shown, PAGE_WIDTH, shown, stroke=0, fill=1)
        canvas.drawImage(image, 0, PAGE_HEIGHT - shown, PAGE_WIDTH, shown)
        top = PAGE_HEIGHT - shown - 16 * mm
        for text, look, gap in ((self.title_text, style.TITLE, 4 * mm), (self.subtitle, style.SUBTITLE, 0)):
            if text:
                paragraph = Paragraph(marked_up(text), look)
                _, taken = paragraph.wrap(TEXT_WIDTH, top)
                paragraph.drawOn(canvas, MARGIN, top - taken)
                top -= taken + gap
        self.draw_numbers(canvas)
        canvas.restoreState()

    def draw_numbers(self, canvas):
        """A few big numbers at the foot of the cover, with their labels below."""
        if not self.numbers:
            return
        canvas.setStrokeColor(style.RULE)
        canvas.line(MARGIN, 50 * mm, PAGE_WIDTH - MARGIN, 50 * mm)
        step = TEXT_WIDTH / max(3, len(self.numbers))
        for place, number in enumerate(self.numbers):
            canvas.setFillColor(style.ACCENT)
            canvas.setFont(style.BOLD_FONT, 26)
            canvas.drawString(MARGIN + place * step, 36 * mm, number["value"])
            canvas.setFillColor(style.FAINT)
            canvas.setFont(style.TEXT_FONT, 10.5)
            canvas.drawString(MARGIN + place * step, 30 * mm, number["label"])

    def draw_foot(self, canvas, _):
        canvas.saveState()
        canvas.setStrokeColor(style.RULE)
        canvas.line(MARGIN, 17 * mm, PAGE_WIDTH - MARGIN, 17 * mm)
        title = Paragraph(marked_up(self.title_text), style.CAPTION)
        title.wrap(TEXT_WIDTH - 20 * mm, 12)
        title.drawOn(canvas, MARGIN, 12 * mm)
        canvas.setFillColor(style.FAINT)
        canvas.setFont(style.TEXT_FONT, 9)
        canvas.drawRightString(PAGE_WIDTH - MARGIN, 12.6 * mm, str(canvas.getPageNumber()))
        canvas.restoreState()
