r"""What the normalisation of texts does in single languages and scripts, as a table, which docs/corpora.md explains.

A rule is a pattern of `re` and what replaces it. Rules see apostrophes of all kinds as ', and texts in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

# ISO 639-3 and old codes of languages that have rules -> ISO 639-1.
ALIASES = {
    **{"uzb": "uz", "uzn": "uz", "fas": "fa", "per": "fa", "pes": "fa", "urd": "ur", "heb": "he", "iw": "he"},
    **{"yid": "yi", "ydd": "yi", "ji": "yi", "tur": "tr", "aze": "az", "azj": "az", "kor": "ko", "cat": "ca"},
    **{"ell": "el", "gre": "el", "fin": "fi", "swe": "sv", "rus": "ru", "ukr": "uk", "bel": "be", "bul": "bg"},
    **{"ron": "ro", "rum": "ro", "mol": "ro", "mo": "ro", "chv": "cv", "che": "ce", "ava": "av", "mlt": "mt"},
    **{"ton": "to", "smo": "sm", "tah": "ty", "nav": "nv", "hau": "ha", "som": "so", "kas": "ks", "tat": "tt"},
}
# Letters that the lower case of Turkish treats in its own way: I is the capital of ı, and İ that of i.
DOTLESS = frozenset(("tr", "az", "crh", "gag"))
# Languages in which an apostrophe is a letter at the edge of a word too; elsewhere it is a quotation mark there.
OKINA = frozenset(("haw", "to", "sm", "ty", "rar", "wls", "fud"))  # written ʻ (U+02BB) at the edges and inside
AT_EDGES = frozenset(("nv", "ha", "so", "mt", "tzo", "tzh", "quc", "cak", "kek", "mam", "yua", "ttj", "tob", "mbi"))
HEBREW, CYRILLIC = "\u05d0-\u05ea", "\u0400-\u052f"
ARABIC = "\u0620-\u064a\u066e\u066f\u0671-\u06d3\u06d5\u06ee\u06ef\u06fa-\u06fc\u06ff\u0750-\u077f\u08a0-\u08c7"
# General rules change only texts with one of these: Hebrew, Arabic, Thai, Lao, joiners. Looking for them is faster.
SPECIAL = re.compile("[\u0591-\u06ff\u0750-\u077f\u08a0-\u08ff\u0e01-\u0ecd\u200c\u200d]")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
SPACELESS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u17d7\u17dc"
    "\u2e80-\u2fd5\u3005\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\U00020000-\U000323af"
)
SPACED = frozenset(("ko",))  # languages that put spaces between words in these scripts too
# Languages whose words cannot be counted in the writing: their scores are character error rates.
IN_CHARACTERS = frozenset(
    ("zh", "cmn", "yue", "wuu", "hak", "ja", "jpn", "th", "tha", "lo", "km", "khm", "my", "mya", "shn")
)
# Arabic letters that do not join the next letter: a zero-width non-joiner behind them cannot be seen.
NOT_JOINING = (
    "\u0621-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2"
    "\u06d3\u06d5\u06ee\u06ef"
)
VIRAMAS = "".join(
    chr(code)
    for start, end in ((0x900, 0xE00), (0x1B00, 0x1C00), (0xA800, 0xAC00), (0x11000, 0x11900))
    for code in range(start, end)
    if unicodedata.combining(chr(code)) == 9
)
HARAKAT = "\u0610-\u061a\u064b-\u0652\u0656-\u065f\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u08d3-\u08ff"


@dataclass(frozen=True)
class Rule:
    """`pattern` becomes `replacement` in the languages of `only` (None: in all), but not in those of `never`."""

    pattern: str
    replacement: str
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()

    def holds(self, language: str) -> bool:
        """Whether the rule is applied to texts of a language, given as `base` returns it."""
        return language not in self.never and (self.only is None or language in self.only)


def _in(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _letters(pairs: str, only: str) -> list[Rule]:
    """Rules for letters that keyboards confuse: pairs of wrong and right letters."""
    return [Rule(pair[0], pair[1], _in(only)) for pair in pairs.split()]


RULES: tuple[Rule, ...] = (
    # A pair of single quotation marks around words is no letter, whatever the language.
    Rule(r"(?<![^\W_])'(?=\w)([^']*(?:(?<=\w)'(?=\w)[^']*)*)(?<=\S)'(?!\w)", r"\1", OKINA | AT_EDGES | _in("uz he yi")),
    Rule("(?<=[oOgG])['\u02bb]", "\u02bb", _in("uz")),
    Rule("(?<![oOgG])\u02bb", "'", _in("uz")),
    Rule("['\u02bd\ua78c]", "\u02bb", OKINA),
    # Catalan's ela geminada is typed with a point, a bullet, ...
    Rule("(?<=[lL])[\u2022\u2027\u2219\u22c5\u30fb.](?=[lL])", "\u00b7", _in("ca")),
    Rule("\u00b7", " ", _in("el")),  # NFC turns the ano teleia, a semicolon, into a middle dot
    # Hebrew: points; geresh and gershayim, typed as apostrophes and quotation marks.
    Rule("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]", "", never=_in("yi lad")),
    Rule(f"(?<=[{HEBREW}])'", "\u05f3"),
    Rule(f'(?<=[{HEBREW}])["\u201c\u201d\u201e\u2033\u05f4](?=[{HEBREW}])', "\u05f4"),
    Rule(f"(?<![{HEBREW}])[\u05f3\u05f4]|\u05f4(?![{HEBREW}])", " "),
    # Arabic script: vowel marks; Persian's, Urdu's and Sorani's letters typed on Arabic keyboards.
    Rule(f"(?<=[{ARABIC}])[{HARAKAT}]+", "", _in("ur")),  # the superscript alef stays: it belongs to Urdu's spelling
    Rule(f"(?<=[{ARABIC}])[{HARAKAT}\u0670]+", "", never=_in("ks ur")),
    *_letters("\u064aی \u0649ی \u0643ک", "fa ur ckb"),
    *_letters("\u0647\u06c1", "ur"),
    Rule("\u0647\u200c", "\u06d5", _in("ckb")),
    # Indic scripts: sequences that Unicode has since given a letter of their own.
    Rule("\u0d23\u0d4d\u200d", "\u0d7a"),
    Rule("\u0d28\u0d4d\u200d", "\u0d7b"),
    Rule("\u0d30\u0d4d\u200d", "\u0d7c"),
    Rule("\u0d32\u0d4d\u200d", "\u0d7d"),
    Rule("\u0d33\u0d4d\u200d", "\u0d7e"),
    Rule("\u0d15\u0d4d\u200d", "\u0d7f"),
    Rule("\u09a4\u09cd\u200d", "\u09ce"),
    Rule("\u09b0\u200c(?=\u09cd\u09af)", "\u09b0\u200d"),
    Rule("([\u200c\u200d])\\1+", "\\1"),
    # Joiners stay where they can be seen: beside a virama, and between Arabic letters that would join.
    Rule(f"(?<![{VIRAMAS}])(?<![{ARABIC}])\u200c|(?<=[{NOT_JOINING}])\u200c|\u200c(?![^\\W\\d_])", ""),
    Rule(f"(?<![{VIRAMAS}])\u200d(?![{VIRAMAS}])|(?<=[{VIRAMAS}])\u200d(?![^\\W\\d_])", ""),
    # Thai and Lao: vowels of two characters that look like one.
    Rule("\u0e4d([\u0e48-\u0e4b]?)\u0e32", "\\1\u0e33"),
    Rule("\u0ecd([\u0ec8-\u0ecb]?)\u0eb2", "\\1\u0eb3"),
    Rule("\u0e40\u0e40", "\u0e41"),
    # Cyrillic: marks of stress; letters and figures typed for the palochka; Latin letters in Chuvash.
    Rule(f"(?<=[{CYRILLIC}])[\u0300\u0301]", "", _in("ru uk be bg rue")),
    Rule(
        f"(?<=[{CYRILLIC}])[I\u0406l|1](?![0-9])|(?<![0-9])[I\u0406|](?=[{CYRILLIC}])",
        "\u04c0",
        _in("ady kbd ce av inh lez lbe dar"),
    ),
    *_letters("ăӑ ĕӗ çҫ ÿӳ ĂӐ ĔӖ ÇҪ ŸӲ", "cv"),
    # Latin: letters of Kabyle typed in Greek; Romanian's comma below typed as a cedilla.
    *_letters("εɛ γɣ ΓƔ ΣƐ ΕƐ", "kab"),
    *_letters("şș ţț ŞȘ ŢȚ", "ro"),
)


def base(language: str | None) -> str:
    """The language without its region and script, in lower case: zh of zh-CN; "" if it is not known."""
    code = re.split("[-_]", language or "")[0].lower()
    return ALIASES.get(code, code)


def is_code(language: str) -> bool:
    """Whether the text has the form of a language's code: uz, zh-CN, cmn_hans_cn."""
    return re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*", language) is not None
