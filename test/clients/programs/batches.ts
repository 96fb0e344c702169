import { Corridor } from '@corridor/client';

const corridor = new Corridor();
const { id: beneficiary } = await corridor.beneficiaries.create({
  ...{ type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR' },
  iban: 'DE89370400440532013000',
});

const item = (order: number) => ({
  ...{ beneficiary, source_currency: 'USD', amount: 2_000 + order },
  metadata: { order: String(order) },
});
async function* items() {
  for (const order of [4, 5, 6]) yield item(order);
}
const header = 'beneficiary,source_currency,amount,metadata[order]\n';
const rows = (...orders: readonly number[]) =>
  orders.map((order) => `${beneficiary},USD,${2_000 + order},${order}\n`).join('');
async function* csvInPieces() {
  // Both a character and a line may be split between two pieces.
  const bytes = new TextEncoder().encode(`${header}${beneficiary},USD,2009,Grüße\n`);
  for (const byte of bytes) yield Uint8Array.of(byte);
}

const unknown = { ...item(0), beneficiary: 'bnf_0' };
const payouts = [item(1), item(2), item(3)];
const preview = await corridor.batches.preview({ payouts: [...payouts, unknown] });
const csvPreview = await corridor.batches.previewCsv(header + rows(7, 8));
const batches = [
  await corridor.batches.create({ payouts, mode: 'all_or_nothing' }),
  await corridor.batches.createFrom(items(), { mode: 'all_or_nothing' }),
  await corridor.batches.createFromCsv(header + rows(7, 8)),
  await corridor.batches.createFromCsv(csvInPieces()),
];
const done = await Promise.all(
  batches.map(({ id }) => corridor.batches.wait(id, { timeoutMs: 60_000 })),
);
const orders: string[] = [];
for (const { id } of batches) {
  for await (const { metadata } of corridor.batches.payouts(id, { limit: 2 })) {
    orders.push(metadata['order'] ?? '');
  }
}

const listed: string[] = [];
for await (const { id } of corridor.payouts.list({ limit: 2 })) listed.push(id);
const oldest = listed.at(-1) ?? '';
const backwards: string[] = [];
for await (const { id } of corridor.payouts.list({ limit: 2, ending_before: oldest })) {
  backwards.push(id);
}
const page = await corridor.payouts.list({ limit: 3 });
const filter = { status: ['settled', 'returned'], created: { gte: '2026-01-01' } } as const;
const named = await corridor.payouts.list({ ...filter, metadata: { order: '5' } });
const expanded = await corridor.payouts.list({ expand: ['beneficiary'], limit: 1 });
const [first] = expanded.data;
const isExpanded = typeof first?.beneficiary === 'object' && first.beneficiary.name;
const later = await corridor.payouts.list({ created: { gt: '2100-01-01' } });

console.log(
  JSON.stringify({
    preview: [preview.counts.total, preview.refusals.map(({ code }) => code)],
    csvPreview: csvPreview.counts.accepted,
    modes: batches.map(({ mode }) => mode),
    counts: done.map(({ status, counts }) => [status, counts?.settled]),
    ...{ orders, listed: new Set(listed).size },
    isBackwards: backwards.join() === listed.slice(0, -1).reverse().join(),
    page: [page.data.length, page.has_more],
    filtered: [named.data.length, named.has_more, later.data.length, isExpanded],
  }),
);
