const withArticle = /^(United|Netherlands|Dominican|Vatican|Philippines)|Islands$|Territories$/;
const countryNames = new Intl.DisplayNames(['en'], { type: 'region' });

/** Returns the English name of a country (ISO 3166-1 alpha-2) for use in a sentence: "the United States". */
export function nameOf(country: string): string {
  const name = (countryNames.of(country) ?? country).replace(' SAR China', '');
  return withArticle.test(name) ? `the ${name}` : name;
}
