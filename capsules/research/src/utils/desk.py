"""Accepts the model's report only if its citations are valid."""

from aod import CapsuleError, ToolError

from src.utils.citations import cited, problems_of

# Maximum submissions of a report; the run fails if the last one is invalid.
REPORTS_MAX = 5
# Maximum problems in one message to the model.
PROBLEMS_MAX = 20
# Characters of a passage in the answer.
OPENING_CHARACTERS = 200


class Desk:
    """Accepts reports about a library, and writes a valid one to the file `report`."""

    def __init__(self, library, report):
        self.library = library
        self.report = report
        self.refused = 0
        self.citations = []

    def write_report(self, markdown: str) -> str:
        """Submits the report, and returns the name of its file. The report is rejected, with all problems, unless each
        [doc:3] names an existing passage, each text in quotation marks is a verbatim part of a passage cited in the
        same paragraph, and each section has a citation. A new submission replaces the previous report.

        Args:
            markdown: The whole report: a heading, and sections in Markdown. A list of sources is appended.
        """
        problems = problems_of(markdown, self.library)
        if problems:
            self.refuse(problems)
        self.citations = [self.described(self.library.passages[id]) for id in cited(markdown)]
        self.report.write_text(f"{markdown.strip()}\n\n{self.sources()}\n", "utf-8")
        return self.report.name

    def refuse(self, problems):
        self.refused += 1
        if self.refused == REPORTS_MAX:
            message = f"the citations are invalid after {REPORTS_MAX} reports: {'; '.join(problems[:3])}"
            raise CapsuleError(
                "citations_unsound", message, detail={"problems": problems[:PROBLEMS_MAX]}, retryable=True
            )
        told = problems[:PROBLEMS_MAX]
        if len(problems) > len(told):
            told.append(f"and {len(problems) - len(told)} more")
        lines = "\n".join(f"- {problem}" for problem in told)
        raise ToolError(f"The report is rejected. Fix these problems, and submit the whole report again:\n{lines}")

    def described(self, passage):
        return {
            "passage": passage.id,
            "document": self.library.sources[passage.id.partition(":")[0]].file,
            "page": passage.page,
            "text": passage.text[:OPENING_CHARACTERS],
        }

    def sources(self):
        """The cited passages, as a list in Markdown."""
        lines = []
        for citation in self.citations:
            page = f", page {citation['page']}" if citation["page"] else ""
            lines.append(f"- [{citation['passage']}] {citation['document']}{page}")
        return "\n".join(["## Sources", "", *lines])
