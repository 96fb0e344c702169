import synonyms from './synonyms.json' with { type: 'json' };

/** Maximum edit distance. A name further away is another name, not a typo. */
const maxDistance = 3;

/**
 * Returns the maximum distance for a name. It is less for a short name, where every letter counts for more,
 * and 0 for a code in capitals: a code with one letter changed is another code.
 */
function maxDistanceOf(name: string): number {
  return /[a-z]/.test(name) ? Math.min(maxDistance, Math.ceil(name.length / 3)) : 0;
}

/** Names used elsewhere, mostly by other payment APIs, each with the names that it may mean here. */
const synonymsOf = new Map<string, readonly string[]>(Object.entries(synonyms));

/** Finds a known name that is a synonym by its last word: `payout.paid` is `payout.settled` here. */
function synonymOf(sent: string, known: readonly string[]): string | undefined {
  const [, start = '', last = ''] = /^(.*\.)?([^.]*)$/s.exec(sent.toLowerCase()) ?? [];
  return synonymsOf
    .get(last)
    ?.map((name) => start + name)
    .find((name) => known.includes(name));
}

/** Returns the known name or value that is a synonym of what was sent or is nearest to it, or undefined. */
export function nearestName(sent: string, known: readonly string[]): string | undefined {
  const synonym = synonymOf(sent, known);
  if (synonym !== undefined) return synonym;
  const ranked = known
    // Filtered first, because the cost of the distance grows with both lengths, and it is never less than
    // their difference.
    .filter((name) => Math.abs(sent.length - name.length) <= maxDistanceOf(name))
    .map((name) => ({ name, distance: distanceOf(sent.toLowerCase(), name.toLowerCase()) }))
    .filter(({ name, distance }) => distance <= maxDistanceOf(name))
    .sort((a, b) => a.distance - b.distance);
  return ranked[0]?.name;
}

/** Returns the Levenshtein distance, computed row by row. */
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
