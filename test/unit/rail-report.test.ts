import { expect, it } from 'vitest';
import {
  type RailReport,
  type RailReportJson,
  reportFromJson,
  reportToJson,
} from '../../src/domain/railReport.js';

const amount = { amountMinor: 90_071_992_547_409_931n, currency: 'EUR' } as const;

it.each<RailReport>([
  { kind: 'accepted', reference: null },
  { kind: 'accepted', reference: 'bank-1' },
  { kind: 'settled', ...amount, at: '2026-11-21T12:00:00.000Z' },
  { kind: 'rejected', code: 'AC04' },
  { kind: 'rejected', ...amount, code: 'AC04' },
  { kind: 'returned', ...amount, code: 'AM04' },
])('a report of kind $kind survives conversion to JSON and back, to the last digit', (report) => {
  const stored: RailReportJson = JSON.parse(JSON.stringify(reportToJson(report)));
  expect(reportFromJson(stored)).toEqual(report);
});
