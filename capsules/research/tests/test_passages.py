"""Documents in passages, and the search in them; needs no library."""

import tempfile
import unittest
from pathlib import Path

from src.utils.documents import Document
from src.utils.passages import PASSAGE_CHARACTERS_MAX, Library, Passage, pieces_of
from src.utils.search import Index, words_of


def document(name, *pages):
    return Document(name, list(pages), name.endswith(".pdf"))


class Passages(unittest.TestCase):
    def test_ids_are_words_of_the_files_and_numbers(self):
        library = Library.of([
            document("Über uns.pdf", "one", "", "two"), document("x/a.txt", "three"), document("y/A.html", "four"),
            document("年報.txt", "five"),
        ])  # fmt: skip
        passages = [(passage.id, passage.page, passage.text) for passage in library.passages.values()]
        self.assertEqual(passages, [
            ("uber-uns:1", 1, "one"), ("uber-uns:2", 3, "two"), ("a:1", None, "three"), ("a-2:1", None, "four"),
            ("document:1", None, "five"),
        ])  # fmt: skip

    def test_the_same_documents_give_the_same_passages_also_from_a_file(self):
        documents = [document("a.txt", "x " * 3_000), document("a.pdf", "one", "two")]
        library = Library.of(documents)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "library.json"
            library.save(path)
            loaded = Library.load(path)
        self.assertEqual((loaded.sources, loaded.passages), (library.sources, library.passages))
        self.assertEqual(Library.of(documents).passages, library.passages)

    def test_paragraphs_stay_whole_where_they_can(self):
        short, long = "s" * 500, "l" * 1_000
        self.assertEqual(pieces_of("\n\n".join([short, short, long, short])), [f"{short}\n\n{short}", long, short])

    def test_a_long_paragraph_is_cut_between_sentences_and_nothing_is_lost(self):
        sentences = [f"This is sentence number {number} of the paragraph." for number in range(100)]
        pieces = pieces_of(" ".join(sentences))
        self.assertEqual(" ".join(pieces), " ".join(sentences))
        for piece in pieces:
            self.assertLessEqual(len(piece), PASSAGE_CHARACTERS_MAX)
            self.assertTrue(piece.startswith("This") and piece.endswith("."), piece)
        self.assertEqual([len(piece) for piece in pieces_of("x" * 3_000)], [1_200, 1_200, 600])


class Search(unittest.TestCase):
    def setUp(self):
        texts = ["The ferry runs until midnight.", "Price of a month: 38 euros. Prices rise.", "The crane, the crane!"]
        self.index = Index([Passage(f"a:{number}", None, text) for number, text in enumerate(texts, 1)])

    def found(self, query, limit=9):
        return [passage.id for passage in self.index.search(query, limit)]

    def test_the_best_come_first(self):
        self.assertEqual(self.found("crane"), ["a:3"])
        self.assertEqual(self.found("the price of the ferry"), ["a:2", "a:1", "a:3"])
        self.assertEqual(self.found("the price of the ferry", 1), ["a:2"])

    def test_no_word_no_passage(self):
        self.assertEqual(self.found("helicopter"), [])
        self.assertEqual(self.found("?!"), [])
        self.assertEqual(Index([]).search("crane", 3), [])

    def test_words_are_the_same_with_and_without_accents_and_plurals(self):
        self.assertEqual(words_of("Prices, PRICE pricé"), ["price", "price", "price"])
        self.assertEqual(words_of("glass bus 2.40"), ["glass", "bus", "2", "40"])


if __name__ == "__main__":
    unittest.main()
