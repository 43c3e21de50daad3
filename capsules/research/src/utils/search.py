"""Finds passages by words: ranked by Okapi BM25, ignoring accents."""

import math
import re
import unicodedata
from collections import Counter

# Saturation of repeated words, and normalization of long passages.
# Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, section 3.4: 1.2 to 2, and 0.5 to 0.8.
SATURATION, LENGTH_WEIGHT = 1.2, 0.75


class Index:
    """An index of passages."""

    def __init__(self, passages):
        self.passages = list(passages)
        self.counts = [Counter(words_of(passage.text)) for passage in self.passages]
        self.lengths = [count.total() for count in self.counts]
        self.mean_length = max(1, sum(self.lengths) / max(1, len(self.lengths)))
        self.spread = Counter(word for count in self.counts for word in count)

    def search(self, query, limit):
        """The best `limit` passages with a word of `query`, best first."""
        words = set(words_of(query))
        scores = [(self.score(place, words), -place) for place in range(len(self.passages))]
        best = sorted((score for score in scores if score[0] > 0), reverse=True)
        return [self.passages[-place] for _, place in best[:limit]]

    def score(self, place, words):
        count, length = self.counts[place], self.lengths[place] / self.mean_length
        return sum(self.rarity(word) * saturated(count[word], length) for word in words if word in count)

    def rarity(self, word):
        spread = self.spread[word]
        return math.log(1 + (len(self.passages) - spread + 0.5) / (spread + 0.5))


def saturated(count, length):
    return count * (SATURATION + 1) / (count + SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length))


def words_of(text):
    """The words of `text` in lower case; 'Prices', 'price' and 'pricé' are the same word."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return [stem(word) for word in re.findall(r"\w+", plain.casefold())]


def stem(word):
    """`word` without the s of a plural."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
