-- Why: a reason of a zero-width space alone moved money, and an audit that shows nothing says nothing. What
-- is invisible is refused in what operators write, but for the joiners and variants that scripts and
-- signs need, which need something visible beside them. Rows that stand are not looked at again.
create or replace function is_plain_line(text text) returns boolean language sql immutable
set search_path = pg_catalog, pg_temp as $$
  select text !~
      '[\u0001-\u001F\u007F-\u009F\u00AD\u061C\u115F\u1160\u180E\u200B\u200E\u200F\u2028-\u202E\u2060-\u206F\u2800\u3164\uFEFF\uFFA0\uFFF9-\uFFFB\U000E0000-\U000E0FFF]'
    and text ~ '[^\s\u00A0\u034F\u1680\u2000-\u200D\u202F\u205F\u3000\uFE00-\uFE0F]'
$$;
