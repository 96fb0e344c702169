"""Generates src/domain/bankCalendars.json: when the banks of each currency are open.

    python3 -m venv /tmp/calendars && /tmp/calendars/bin/pip install holidays==0.109 QuantLib==1.44
    /tmp/calendars/bin/python tools/bankCalendars.py [--from YYYY-MM-DD]

Reads two independent libraries, `holidays` (MIT) and QuantLib (BSD). Where they disagree, the day
counts as closed, because an arrival is promised "at the latest". TARGET, the Federal Reserve Banks, CHAPS
and Zengin are exact: test/unit/arrival.test.ts compares them with their operators' publications.

An edition in the file is never changed, so that the estimates of existing payouts never change. Without
`--from`, changed calendars are only listed. `--from` adds an edition for payouts accepted from that day on,
00:00 UTC. That day must be later than the release of the change.
"""

import json
import sys
from datetime import date, timedelta
from pathlib import Path

import holidays
import QuantLib as ql

YEARS = (2026, 2027, 2028)
TABLE = Path(__file__).parent.parent / "src/domain/bankCalendars.json"
NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEK = (0, 1, 2, 3, 4)
# The week of SAMA and the central banks of Kuwait and Israel. The weekend of the United Arab Emirates has
# been Saturday and Sunday since 2022.
SUNDAY_TO_THURSDAY = (6, 0, 1, 2, 3)

P, B, H, G, O = "public", "bank", "half_day", "government", "optional"
# By currency: the scheme, its time zone, our cut-off in local time, and the maximum number of business days
# until the beneficiary has the money (EUR: one, Directive (EU) 2015/2366, article 83). The cut-offs are
# cautious, earlier than banks' usual ones; the paying bank's own cut-off should replace them. Then the
# sources of the closed days: countries and categories in `holidays`, and a QuantLib calendar.
SCHEMES = {
    "AED": ("UAEFTS", "Asia/Dubai", "11:00", 1, [("AE", None, (P, G))], None),
    "ARS": ("COELSA", "America/Argentina/Buenos_Aires", "13:00", 1, [("AR", None, (P, B))], ql.Argentina()),
    "AUD": ("BECS", "Australia/Sydney", "14:00", 1, [("AU", "NSW", (P, B))], ql.Australia()),
    "BRL": ("TED", "America/Sao_Paulo", "15:00", 0, [("BR", None, (P,))], ql.Brazil()),
    "CAD": ("AFT", "America/Toronto", "14:00", 1, [("CA", "ON", (P, G))], ql.Canada()),
    "CHF": ("SIC", "Europe/Zurich", "14:00", 1, [("CH", "ZH", (P, O))], ql.Switzerland()),
    "CLP": ("TEF", "America/Santiago", "13:00", 1, [("CL", None, (P, B))], ql.Chile()),
    "CNY": ("CNAPS", "Asia/Shanghai", "14:00", 1, [("CN", None, (P,))], ql.China(ql.China.IB)),
    "COP": ("ACH Colombia", "America/Bogota", "13:00", 1, [("CO", None, (P,))], None),
    "CZK": ("CERTIS", "Europe/Prague", "14:00", 1, [("CZ", None, (P,))], ql.CzechRepublic()),
    "DKK": ("Intradagclearing", "Europe/Copenhagen", "14:00", 1, [], ql.Denmark()),
    "EUR": ("SEPA Credit Transfer", "Europe/Brussels", "14:00", 1, [("XECB", None, None)], ql.TARGET()),
    "GBP": ("CHAPS", "Europe/London", "15:00", 0, [("GB", "ENG", (P,))], ql.UnitedKingdom()),
    "GHS": ("Mobile money", "Africa/Accra", "13:00", 1, [("GH", None, (P,))], None),
    "HKD": ("CHATS", "Asia/Hong_Kong", "15:00", 0, [("HK", None, (P, O))], ql.HongKong()),
    "HUF": ("GIRO", "Europe/Budapest", "14:00", 1, [("HU", None, (P,))], ql.Hungary()),
    "IDR": ("SKNBI", "Asia/Jakarta", "12:00", 1, [("ID", None, (P, G))], ql.Indonesia()),
    "ILS": ("Masav", "Asia/Jerusalem", "12:00", 1, [("IL", None, (P,))], ql.Israel()),
    "INR": ("NEFT", "Asia/Kolkata", "14:00", 1, [("IN", "MH", (P,))], ql.India()),
    "ISK": ("MBK", "Atlantic/Reykjavik", "14:00", 1, [("IS", None, (P, H))], ql.Iceland()),
    "JPY": ("Zengin", "Asia/Tokyo", "14:00", 0, [("JP", None, (P, B))], ql.Japan()),
    "KES": ("Mobile money", "Africa/Nairobi", "13:00", 1, [("KE", None, (P,))], None),
    "KRW": ("BOK-Wire+", "Asia/Seoul", "14:00", 1, [("KR", None, (P, B))], ql.SouthKorea()),
    "KWD": ("KASSIP", "Asia/Kuwait", "11:00", 1, [("KW", None, (P,))], None),
    "MXN": ("SPEI", "America/Mexico_City", "15:00", 0, [("MX", None, (P,))], ql.Mexico()),
    "MYR": ("IBG", "Asia/Kuala_Lumpur", "14:00", 1, [("MY", "KUL", (P,))], None),
    "NGN": ("NEFT", "Africa/Lagos", "12:00", 1, [("NG", None, (P,))], None),
    "NOK": ("NICS", "Europe/Oslo", "13:00", 1, [("NO", None, (P,))], ql.Norway()),
    "NZD": ("SBI", "Pacific/Auckland", "14:00", 1, [("NZ", "WGN", (P,))], ql.NewZealand()),
    "PEN": ("CCE", "America/Lima", "13:00", 1, [("PE", None, (P,))], None),
    "PHP": ("PESONet", "Asia/Manila", "13:00", 1, [("PH", None, (P,))], None),
    "PLN": ("Elixir", "Europe/Warsaw", "13:00", 1, [("PL", None, (P,))], ql.Poland()),
    "RON": ("SENT", "Europe/Bucharest", "13:00", 1, [("RO", None, (P,))], ql.Romania()),
    "SAR": ("SARIE", "Asia/Riyadh", "12:00", 1, [("SA", None, (P,))], ql.SaudiArabia()),
    "SEK": ("Bankgirot", "Europe/Stockholm", "12:00", 1, [("SE", None, (P, B))], ql.Sweden()),
    "SGD": ("GIRO", "Asia/Singapore", "14:00", 1, [("SG", None, (P,))], ql.Singapore()),
    "THB": ("BAHTNET", "Asia/Bangkok", "14:00", 1, [("TH", None, (P, B))], ql.Thailand()),
    "TRY": ("EFT", "Europe/Istanbul", "14:00", 1, [("TR", None, (P, H))], ql.Turkey()),
    "USD": ("ACH", "America/New_York", "15:00", 1, [("XFED", None, None)],
            ql.UnitedStates(ql.UnitedStates.FederalReserve)),
    "VND": ("IBPS", "Asia/Ho_Chi_Minh", "14:00", 1, [("VN", None, (P,))], None),
    "ZAR": ("EFT", "Africa/Johannesburg", "14:00", 1, [("ZA", None, (P,))], ql.SouthAfrica()),
}
OTHER_WEEKS = {"ILS": SUNDAY_TO_THURSDAY, "KWD": SUNDAY_TO_THURSDAY, "SAR": SUNDAY_TO_THURSDAY}
# Closed days that neither library has, as the first day and the number of consecutive days.
ADDED = {
    # Announced each November for the next year. Until then the longest usual periods: eight days at the
    # Spring Festival, five at Labour Day, eight in October, and the Monday before a Tuesday.
    "CNY": [("2027-02-05", 8), ("2027-05-01", 5), ("2027-10-01", 7), ("2028-01-25", 8), ("2028-04-03", 1),
            ("2028-05-01", 5), ("2028-10-01", 8)],
    # On the eve of a festival banks are open only for a few hours.
    "ILS": [("2026-04-01", 1), ("2026-05-21", 1), ("2026-09-20", 1), ("2027-04-21", 1), ("2027-06-10", 1),
            ("2027-10-10", 1), ("2028-04-10", 1), ("2028-05-30", 1), ("2028-09-20", 1)],
    # Banks close their books (Reserve Bank of India).
    "INR": [("2026-04-01", 1), ("2027-04-01", 1), ("2028-04-01", 1)],
}
DAY = timedelta(days=1)


def days_of_libraries(sources, calendar):
    found = set()
    for code, part, kinds in sources:
        if kinds is None:
            days = holidays.financial_holidays(code, years=YEARS)
        else:
            days = holidays.country_holidays(code, subdiv=part, categories=kinds, years=YEARS)
        for day, name in days.items():
            # Dates that depend on sighting the moon may be one day earlier or later.
            found |= {day - DAY, day, day + DAY} if "estimated" in name else {day}
    if calendar is not None:
        for year in YEARS:
            start, end = ql.Date(1, 1, year), ql.Date(31, 12, year)
            found |= {date(d.year(), d.month(), d.dayOfMonth()) for d in calendar.holidayList(start, end)}
    return found


def edition(currency, since):
    scheme, zone, cut_off, days, sources, calendar = SCHEMES[currency]
    week = OTHER_WEEKS.get(currency, WEEK)
    found = days_of_libraries(sources, calendar)
    for first, count in ADDED.get(currency, []):
        found |= {date.fromisoformat(first) + i * DAY for i in range(count)}
    closed = sorted(day for day in found if day.weekday() in week)
    return {
        "from": since,
        "scheme": scheme,
        "zone": zone,
        "cut_off": cut_off,
        "settlement_days": days,
        "business_days": [NAMES[day] for day in week],
        "closed": {str(y): " ".join(f"{d:%m-%d}" for d in closed if d.year == y) for y in YEARS},
    }


def main():
    since = sys.argv[2] if sys.argv[1:2] == ["--from"] else None
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    changed = []
    for currency in sorted(SCHEMES):
        editions = table.setdefault(currency, [])
        made = edition(currency, since or "2026-01-01")
        if editions and {**editions[-1], "from": made["from"]} == made:
            continue
        changed.append(currency)
        if editions and since is None:
            continue
        if editions and since <= editions[-1]["from"]:
            sys.exit(f"{currency} has an edition from {editions[-1]['from']}; a new one is later.")
        editions.append(made)
        TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")
    if changed:
        print("Changed:", *changed)


main()
