import synonyms from './synonyms.json' with { type: 'json' };

/** A name further away than this is another name, not a slip of the finger. */
const farthest = 3;

/** Of a short one every letter counts for more, and a code one letter away is another code. */
function reachOf(name: string): number {
  return /[a-z]/.test(name) ? Math.min(farthest, Math.ceil(name.length / 3)) : 0;
}

/** What others call it, and what it may be here; most are of other payment APIs. */
const synonymsOf = new Map<string, readonly string[]>(Object.entries(synonyms));

/** `payout.paid` is `payout.settled` here: the last word decides, and it has to be known. */
function synonymOf(sent: string, known: readonly string[]): string | undefined {
  const [, start = '', last = ''] = /^(.*\.)?([^.]*)$/s.exec(sent.toLowerCase()) ?? [];
  return synonymsOf
    .get(last)
    ?.map((name) => start + name)
    .find((name) => known.includes(name));
}

/** The known name or value that means what was sent, or is nearest to it; undefined without one. */
export function nearestName(sent: string, known: readonly string[]): string | undefined {
  const synonym = synonymOf(sent, known);
  if (synonym !== undefined) return synonym;
  const ranked = known
    // The distance takes time with both lengths, and is never less than their difference.
    .filter((name) => Math.abs(sent.length - name.length) <= reachOf(name))
    .map((name) => ({ name, distance: distanceOf(sent.toLowerCase(), name.toLowerCase()) }))
    .filter(({ name, distance }) => distance <= reachOf(name))
    .sort((a, b) => a.distance - b.distance);
  return ranked[0]?.name;
}

/** Levenshtein's distance, one row at a time. */
function distanceOf(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substituted = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substituted, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
