"""Regular expression of cron expressions, for clients that validate before they send.

It matches all that `model.cron_parsing.parse` accepts. It also matches reversed ranges and dates that never occur, such as 31
February, which a regular expression cannot exclude.
"""

from noonday.model.cron_parsing import ALIASES


def _any_case(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in word)


def _names(words: str) -> str:
    return "|".join(_any_case(word) for word in words.split())


def _field(value: str, step: str, *others: str) -> str:
    term = rf"(?:\*|(?:{value})(?:-(?:{value}))?)(?:/(?:{step}))?"
    term = f"(?:{'|'.join([term, *others])})"
    return f"{term}(?:,{term})*"


_MINUTE = _field("0*[0-5]?[0-9]", "0*(?:[1-9]|[1-5][0-9]|60)")
_HOUR = _field("0*(?:1?[0-9]|2[0-3])", "0*(?:[1-9]|1[0-9]|2[0-4])")
_DAY = _field("0*(?:[1-9]|[12][0-9]|3[01])", "0*(?:[1-9]|[12][0-9]|3[01])", "[Ll][Ww]?")
_MONTH = _field(f"0*(?:[1-9]|1[0-2])|{_names('jan feb mar apr may jun jul aug sep oct nov dec')}", "0*(?:[1-9]|1[0-2])")
_WEEKDAY_VALUE = f"0*[0-7]|{_names('sun mon tue wed thu fri sat')}"
_WEEKDAY = _field(_WEEKDAY_VALUE, "0*[1-8]", f"(?:{_WEEKDAY_VALUE})[Ll]", f"(?:{_WEEKDAY_VALUE})#0*[1-5]")

_FIVE = r"\s+".join([_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY])
_ALIAS = "|".join(_any_case(alias) for alias in ALIASES)

CRON = rf"^\s*(?:{_ALIAS}|(?:{_MINUTE}\s+)?{_FIVE})\s*$"
