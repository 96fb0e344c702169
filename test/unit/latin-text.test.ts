import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { latinText } from '../../src/domain/latinText.js';

describe('a text in the characters that every rail accepts', () => {
  test.each([
    ['FR', 'Ada Lovelace', 'Ada Lovelace'],
    ['FR', "O'Neill-Müller (Jr.), J/A: 1+1?", "O'Neill-Muller (Jr.), J/A: 1+1?"],
    ['FR', 'Céline Ñandú Çelik', 'Celine Nandu Celik'],
    ['PL', 'Łukasz Żółć', 'Lukasz Zolc'],
    ['DK', 'Søren Ærø', 'Soren Aro'],
    ['IS', 'Þór Guðmundsson', 'Thor Gudmundsson'],
    ['TR', 'İpek Işık', 'Ipek Isik'],
    ['VN', 'Nguyễn Thị Ánh', 'Nguyen Thi Anh'],
    // German-speaking countries write an umlaut as two letters, Finland as one.
    ['DE', 'Jürgen Größer', 'Juergen Groesser'],
    ['DE', 'JÜRGEN GRÖSSER', 'JUERGEN GROESSER'],
    ['AT', 'Ä', 'AE'],
    ['FI', 'Mäkinen', 'Makinen'],
    ['FR', 'Strauß', 'Strauss'],
    // Invisible characters: a joiner, a soft hyphen, a change of direction.
    ['FR', 'Ad\u200da Love\u00adlace\u202e', 'Ada Lovelace'],
    // EPC217-08.
    ['GR', 'Γιώργος Παπαθανασίου', 'Giorgos Papathanasioy'],
    ['GR', 'ΨΥΧΗ', 'PSYCHI'],
    ['BG', 'Щерьо Жълъдов', 'Shteryo Zhaladov'],
    // ICAO Doc 9303-3, section 6.
    ['KZ', 'Хрущёв Юрий', 'Khrushchev Iurii'],
    ['UA', 'Григорій Сковорода', 'Hryhorii Skovoroda'],
    ['RS', 'Жељко Ћирић', 'Zeljko Ciric'],
    ['MK', 'Ѓорѓи Џамбаз', 'Gjorgji Djambaz'],
    ['BY', 'Ігар Фёдараў', 'Ihar Fiodarau'],
    ['FR', 'Smith & Sons “Ltd” – A_B', 'Smith + Sons .Ltd. - A-B'],
    ['FR', 'ＡＢＣ １２', 'ABC 12'],
    ['FR', 'é'.normalize('NFD'), 'e'],
  ])('in %s: %s is %s', (country, text, latin) => {
    expect(latinText(text, country)).toBe(latin);
  });

  test.each(['山田', 'محمد', 'ישראל', 'สมชาย', 'Ada 山', '١٢٣', 'ь', ' ', '', '🙂', '---'])(
    'cannot be made from "%s", which no table covers',
    (text) => {
      expect(latinText(text, 'DE')).toBeUndefined();
    },
  );

  test('contains no other character, and is unchanged by a second conversion', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom('DE', 'BG', 'US'),
        (text, country) => {
          const latin = latinText(text, country);
          if (latin === undefined) return;
          expect(latin).toMatch(/^[A-Za-z0-9/?:().,'+ -]+$/);
          expect(latinText(latin, country)).toBe(latin);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
