-- Why: the rates of a pair are listed by their publication. Of a table that is published every minute
-- a year is half a million rows a currency, of which a page must read few.

create index on rates (currency, as_of, id);
