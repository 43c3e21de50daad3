"""Where the model hands in its report: it is taken only if its citations hold."""

from aod import CapsuleError, ToolError

from src.utils.citations import cited, problems_of

# How often a report may be handed in; the last one that does not hold ends the run.
REPORTS_MAX = 5
# The model is told as many problems at once.
PROBLEMS_MAX = 20
# Of a passage, in the answer.
OPENING_CHARACTERS = 200


class Desk:
    """Takes reports about a library, and writes the one that holds to the file `report`."""

    def __init__(self, library, report):
        self.library = library
        self.report = report
        self.refused = 0
        self.citations = []

    def write_report(self, markdown: str) -> str:
        """Hands in the report, and answers the name of its file. It is refused, with all that is wrong, unless each
        [doc:3] names a passage that exists, each text in quotation marks stands word for word in a passage that is cited in
        the same paragraph, and each section has a citation. A report that is handed in again replaces the former one.

        Args:
            markdown: The whole report: a heading, and sections in Markdown. Its list of sources is added to it.
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
            message = f"after {REPORTS_MAX} reports the citations still do not hold: {'; '.join(problems[:3])}"
            raise CapsuleError(
                "citations_unsound", message, detail={"problems": problems[:PROBLEMS_MAX]}, retryable=True
            )
        told = problems[:PROBLEMS_MAX]
        if len(problems) > len(told):
            told.append(f"and {len(problems) - len(told)} more")
        lines = "\n".join(f"- {problem}" for problem in told)
        raise ToolError(f"The report is refused. Mend this, and hand in all of it again:\n{lines}")

    def described(self, passage):
        return {
            "passage": passage.id,
            "document": self.library.sources[passage.id.partition(":")[0]].file,
            "page": passage.page,
            "text": passage.text[:OPENING_CHARACTERS],
        }

    def sources(self):
        """The passages that are cited, as a list in Markdown."""
        lines = []
        for citation in self.citations:
            page = f", page {citation['page']}" if citation["page"] else ""
            lines.append(f"- [{citation['passage']}] {citation['document']}{page}")
        return "\n".join(["## Sources", "", *lines])
