-- Why: payouts to Argentina, Chile, Colombia, Peru, Vietnam, Nigeria, Ghana and Kenya. The ECB has no
-- rates of their currencies, so there are prices where the operator publishes a table of rates.

-- No price can have been computed with them yet, so they hold from the time of the first ones on.
alter table terms disable trigger dated;
insert into terms (currency, fixed_minor, minimum_minor, maximum_minor, spread_basis_points,
  basis_points, valid_from)
select currency, fixed, minimum, maximum, spread, 40, '2026-01-01T00:00:00Z'
  from (values
  ('ARS', 44000, 146000, 146000000000, 200),
  ('CLP', 280, 940, 940000000, 100),
  ('COP', 114000, 380000, 380000000000, 120),
  ('PEN', 100, 340, 340000000, 100),
  ('VND', 7900, 26500, 26500000000, 100),
  ('NGN', 43500, 145000, 145000000000, 200),
  ('GHS', 330, 1100, 1100000000, 180),
  ('KES', 3900, 13000, 13000000000, 150)
) v (currency, fixed, minimum, maximum, spread);
alter table terms enable trigger dated;
