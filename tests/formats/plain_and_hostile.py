"""Random texts that documents read: URLs, dates and times, most of them plain, many nearly so, some hostile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

Texts = Iterator[str | None]

_LABELS = ("www", "example", "com", "a", "B2", "shop-eu", "9gag", "xn--bcher-kva", "x--y", "localhost", "7", "co", "uk")
_IN_PATH = "abcXYZ019-_.!~*'():@&=+$,;/"
_ESCAPES = ("%20", "%C3%A4", "%2f", "%7E")
_ODD = (
    *"%:/?#[]@!$&'()*+,;=-._~ |\\\"<>^`{}\t\n\r\x00\x7f0123456789abzAZ",
    *("%zz", "%4", "%", "é", "ß", "٣", "\u00a0", "\u2028", "\u0080", "😀", "//", "::", "..", "--", "-.", ".-"),
)
_HOSTILE_URLS = """
: :// http http: http:/ http:// http:/// http:///p //h/p /p?q#f ?q #f mailto:a@b.c urn:isbn:1 file:///etc/hosts
jar:file:/a!/b 1http://h -a://h h+t.t-p://h/p HTTP://H.COM/P http://%41.com/ http://h;p http://h@
http://[::1]/p http://[::1]:8080/p?q http://[1080::8:800:200C:417A] http://[fe80::1%25en0]/ http://[x] http://[::1
http://u@h/ http://u:p@h:1/p?q#f http://u:p%40@h/ http://@h/ http://u@@h http://u@h@i/ http://u@1.2.3.4:5/p
http://1.2.3.4 http://1.2.3.4:80/p http://1.2.3 http://256.1.1.1 http://1.2.3.4.com http://123 http://a.1/p
http://a_b.com/p http://a.b. http://.a http://a..b http://-a.b http://a-.b http://a.-b/p http://a.b- http://a.1b
http://h: http://h:/p http://h:80a http://h:-1 http://h:0 http://h:0000000080/p http://h:80?q http://h:80#f
http://h:999999999 http://h:2147483647 http://h:2147483648/p http://h:99999999999
http://h?q http://h#f http://h# http://h? http://h/?# http://h/#a#b http://h/p?a?b http://h/[p] http://h/p?[q]
http://h/#[f] http://h/% http://h/%a http://h/%ag http://h?% http://h#%g0 http://ü.de/ http://h/ü?ü#ü http://h/😀
""".split()
_HOSTILE_URLS += ["", " ", " http://h/", "http://h/ ", "http://h /", "http://h/\x00", "http://h\x00", "http://h/\u00a0"]


def urls(seed: int, count: int) -> Texts:
    """URLs: half of them plain, a third one or two changes away from that, the rest hostile or null."""
    return _texts(Random(seed), count, _plain_url, _HOSTILE_URLS)


def _plain_url(draw: Random) -> str:
    def run(characters: str, most: int) -> str:
        length = draw.randint(0, most)
        return "".join(draw.choice(_ESCAPES if draw.random() < 0.05 else characters) for _ in range(length))

    url = f"{draw.choice(('https', 'http', 'HTTP', 'ftp', 's3a', 'git+ssh'))}://"
    url += ".".join(draw.choice(_LABELS) for _ in range(draw.randint(1, 4)))
    url += f":{draw.choice((0, 1, 80, 8080, 65536, 999999999, 1000000000, 2147483648))}" if draw.random() < 0.2 else ""
    url += f"/{run(_IN_PATH, 20)}" if draw.random() < 0.8 else ""
    url += f"?{run(_IN_PATH + '?[]', 20)}" if draw.random() < 0.5 else ""
    return url + (f"#{run(_IN_PATH + '?[]', 8)}" if draw.random() < 0.2 else "")


_AFTER_DATE = (*[""] * 5, "T10:11:12Z", " 10:11:12.123456", "T", " ", "Tx", "T25:61", "t10", "x", "+01:00", "Z", "-01")
_HOSTILE_DATES = """
- -- T now epoch today null NaN 0 1 20260131 2026 2026-01 2026-1-1 2026-1-31 2026-01-1 +2026-01-31 -2026-01-31
+12026-01-31 12026-01-31 02026-01-31 9999999-12-31 99999999-01-01 26-01-31 026-01-31 2026/01/31 2026.01.31
2026-01/31 2026:01-31 31-01-2026 01/31/2026 ٢٠٢٦-٠١-٣١ ２０２６-01-31 2026-01-3１ 2026-01-31é 2026-01--1
2026-01-31T 2026-01-31T10:00:00+14:00 2026-01-31T10:00:00[Europe/Berlin] 2026-01-31- 2026-01-311 2026-011-31
1769817600 1769817600000 2026-W05-6 2026-031 0000-00-00
""".split()
_HOSTILE_DATES += ["", " ", " 2026-01-31", "2026-01-31 ", "\t2026-01-31\n", "\x002026-01-31", "2026-01-31\x00"]
_HOSTILE_DATES += ["\u00a02026-01-31", "2026-01-31\u00a0", "2026-01-31\n", "2026-01-31 T", "2026-01-31\t10:00"]


def dates(seed: int, count: int) -> Texts:
    """Dates, alone or before something: half of them of plain form, valid or not; the others as of ``urls``."""
    return _texts(Random(seed), count, _plain_date, _HOSTILE_DATES)


def _plain_date(draw: Random) -> str:
    year = draw.choice((draw.randint(0, 9999), draw.randint(1995, 2030), 0, 1, 1582, 1900, 2000, 2024, 2100, 9999))
    month = draw.choice((*range(1, 13), 2, 0, 13))
    day = draw.choice((*range(1, 32), 28, 29, 30, 31, 0, 32))
    return f"{year:04}-{month:02}-{day:02}{draw.choice(_AFTER_DATE)}"


_ZONES = (*["", "Z"] * 6, "+00:00", "-00:00", "+05:30", "-17:59", "+18:00", "-18:00", "+18:01", "+24:00", "+01:60")
_ZONES += ("+1:00", "+0100", "+01", "z", "UTC", " Europe/Berlin", "[UTC]", "--01:00", "+01:00:30")
_HOSTILE_TIMES = """
T10:00:00Z 10:00:00 2026-01-31T10:00Z 2026-01-31T10 2026-01-31T1:2:3 2026-01-31T10:00:00.Z 2026-01-31T10:00:00,5Z
2026-01-31T10:00:0 2026-01-31T10:00:000 2026-01-31T10-00:00 2026-01-31T10:00.00 2026-01-31t10:00:00Z
2026-01-31T10:00:00.1234567Z 2026-01-31T10:00:00.123456789+02:00 2026-01-31T10:00:00.1234560Z 2026-01-31T10:00:00+
2026-01-31T10:00:00.0000000000000000000000001Z 2026-01-31T10:00:00-23:59 +2026-01-31T10:00:00Z 2026-031T10:00:00Z
-2026-01-31T10:00:00Z 12026-01-31T10:00:00Z 294247-01-10T04:00:54.775807Z 294247-01-10T04:00:54.775808Z
20260131T100000Z 1769817600 1769817600.5
""".split()
_HOSTILE_TIMES += ["2026-01-31  10:00:00", " 2026-01-31T10:00:00Z ", "2026-01-31T10:00:00Z\x00"]
_HOSTILE_TIMES += ["2026-01-31T10:00:00 Z"]


def times(seed: int, count: int) -> Texts:
    """Dates with times: half of them of plain form, valid or not; the others as of ``urls``."""
    return _texts(Random(seed), count, _plain_time, [*_HOSTILE_TIMES, *_HOSTILE_DATES])


def _plain_time(draw: Random) -> str:
    hour, minute, second = (draw.choice((*[draw.randrange(most)] * 20, 0, most)) for most in (24, 60, 60))
    digits = draw.choice((0, 0, 3, 3, 6, draw.randint(1, 9)))
    fraction = f".{draw.randrange(10**digits):0{digits}}" if digits else ""
    day = _plain_date(draw)[:10]
    return f"{day}{draw.choice('TT ')}{hour:02}:{minute:02}:{second:02}{fraction}{draw.choice(_ZONES)}"


def _texts(draw: Random, count: int, plain: Callable[[Random], str], hostile: Sequence[str]) -> Texts:
    yield from hostile
    for _ in range(count - len(hostile)):
        text, kind = plain(draw), draw.random()
        if kind < 0.35:
            text = _changed(draw, text, times=draw.randint(1, 2))
        elif kind < 0.45:
            text = _changed(draw, draw.choice(hostile), times=draw.randint(0, 2))
        yield None if kind > 0.99 else text


def _changed(draw: Random, text: str, *, times: int) -> str:
    """The text with characters replaced, put in, left out, or all behind one cut off."""
    for _ in range(times):
        at, how = draw.randint(0, len(text)), draw.randrange(10)
        rest = "" if how == 0 else text[at + (how % 3 > 0) :]
        text = text[:at] + (draw.choice(_ODD) if how % 3 < 2 else "") + rest
    return text
