"""Strings that tokenizers get wrong, from a seed: every script, marks, emoji sequences, runs of white space, special
tokens inside text, contractions, numbers, code, and (as bytes) ill-formed UTF-8."""
import random
import unicodedata

WORDS = """the of and to in is was for that with as his on be at by I'm you're THEY'LL it's He'd we've don't DON'T cafe
naïve Straße İstanbul ǅungla ﬁne ofﬁce x² ½ ⅷ ① 東京 こんにちは カタカナ 한국어 สวัสดี ภาษาไทย नमस्ते हिन्दी বাংলা தமிழ் മലയാളം
ગુજરાતી العَرَبِيَّة مرحبا עברית שָׁלוֹם Ελληνικά Привет Ёлка Հայերեն ქართული አማርኛ ខ្មែរ ລາວ བོད་ မြန်မာ සිංහල ᏣᎳᎩ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𒀀 𓀀
zu\u0308rich e\u0301te\u0301 a\u0323\u0302 ﷺ ℌ Å Å ſ K 's 'S ſs '\u017f 3.14159 1234567890 ١٢٣٤ १२३ 100,000 $5 50% foo_bar __init__
x=y+1; if(a<b){return&c;} <html> https://a.b/c?d=e&f=g user@host 👍 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👋🏽 ☺️ ❤ 1️⃣ … — “quoted” «fr» ¿qué? ¡sí! •
\u200d \u200c \u200b \ufeff \u00ad \u180e \u2028 \u2029 \x85 \x1c \x0b \x0c \u3000 \u00a0 \u202f \u2009 ▁ ▁▁a Ġ Ċ \x01 \x7f""".split(" ")
SPACES = [" ", " ", " ", " ", "", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\n  ", "        ", "\t\t", "\u3000", "\u00a0"]
ILL_FORMED = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80"]

# Characters of an old enough Unicode for all libraries to agree on them.
_BLOCKS = [(0x20, 0x7f), (0xa0, 0x250), (0x250, 0x600), (0x600, 0x800), (0x900, 0x1200), (0x1200, 0x1800), (0x1e00, 0x2000),
           (0x2000, 0x2c00), (0x3000, 0x3400), (0x4e00, 0x9fa6), (0xac00, 0xd7a4), (0xf900, 0x10000), (0x10000, 0x10200),
           (0x1d400, 0x1d800), (0x1f300, 0x1f650), (0x20000, 0x20400)]


def assigned(character):
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs")


BLOCKS = [[chr(c) for c in range(*block) if assigned(chr(c))] for block in _BLOCKS]
BLOCKS = [block for block in BLOCKS if block]


def strings(count, specials, seed=1):
    """`count` strings as bytes; some have `specials` in them, one in twenty is no UTF-8."""
    rng = random.Random(seed)

    def part():
        kind = rng.random()
        if kind < 0.55:
            return rng.choice(WORDS)
        if kind < 0.75:
            return "".join(rng.choices(rng.choice(BLOCKS), k=rng.randint(1, 8)))
        if kind < 0.80 and specials:
            return rng.choice(specials)
        if kind < 0.85:
            return rng.choice(" \n\t▁") * rng.randint(1, 40)
        if kind < 0.90:
            return "".join(rng.choices("0123456789", k=rng.randint(1, 12)))
        if kind < 0.95:
            return "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ", k=rng.randint(1, 80)))
        return "".join(rng.choices("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", k=rng.randint(1, 10)))

    for i in range(count):
        text = "".join(part() + rng.choice(SPACES) for _ in range(rng.randint(0, 12))).encode()
        if i % 20 == 19:
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(ILL_FORMED) + text[at:]
        yield text
