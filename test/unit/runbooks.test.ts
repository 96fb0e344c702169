import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { commandOf, flagsOf } from '../../src/cli/help.js';
import described from '../../src/metrics.json' with { type: 'json' };
import { metricsNamedIn } from '../assertions/promql.js';
import { alerts, runbooks } from '../fixtures/monitoring.js';
import { partNames, runbookEntries } from '../fixtures/runbookEntries.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (path: string) => readFileSync(root + path, 'utf8');

/** Incidents that wake an operator. */
const failures = [
  'The rail is down',
  'The bank contradicts itself',
  'An endpoint fails',
  'The rate source is down',
  'Temporal is down',
  "Temporal's data is lost",
  'The database fails over',
  'A batch is stuck',
  'A key is lost',
  'A certificate has expired',
  'A clock is off',
  'The disk is full',
];

const exported = new Set(
  Object.values(described).flatMap((kind) => Object.keys(kind).map((name) => `corridor_${name}`)),
);
const services = new Set(
  Object.keys(
    z
      .object({ services: z.record(z.string(), z.unknown()) })
      .parse(parse(read('docker-compose.yml'), { merge: true })).services,
  ),
);
const tests = readdirSync(`${root}test/e2e`).map((name) => read(`test/e2e/${name}`));

it('there is a runbook for each kind of failure', () => {
  expect(runbookEntries.map(({ title }) => title)).toEqual(failures);
});

describe.each(runbookEntries)('the runbook "$title"', ({ title, parts }) => {
  const shown = Object.values(parts).flatMap((part) => part.shown);
  const commands = [
    ...Object.values(parts).flatMap((part) => part.commands),
    ...shown.map(({ command }) => command),
  ];

  it('has symptoms, a cause, commands, and the signs that they have worked', () => {
    expect(Object.keys(parts)).toEqual([...partNames]);
    for (const { text } of Object.values(parts)) expect(text.trim()).not.toBe('');
    expect(parts['Commands.']?.commands).not.toEqual([]);
    expect(parts['It worked when']?.shown).not.toEqual([]);
  });

  it('names exported metrics, including one of the alert that links to it', () => {
    const { text = '' } = parts['Symptoms.'] ?? {};
    const metrics = [...text.matchAll(/`(corridor_\w+)/g)].map(([, name = '']) => name);
    const families = metrics.map((name) => name.replace(/_(count|sum|bucket)$/, ''));
    expect(families.filter((name) => !exported.has(name))).toEqual([]);
    const linked = [...text.matchAll(/\[(Corridor\w+)\]\((#\w+)\)/g)].map(([, name]) => name);
    const known = alerts.filter(({ alert }) => linked.includes(alert));
    expect(known).toHaveLength(linked.length);
    const alertMetrics = metricsNamedIn(known.map(({ expr }) => expr));
    if (text.includes('there is no alert for it')) expect(linked).toEqual([]);
    else expect(families.filter((name) => alertMetrics.has(name))).not.toEqual([]);
  });

  it('uses only commands and services that exist', () => {
    for (const command of commands) {
      const [, words = ''] = /^corridor (.*)/.exec(command) ?? [];
      if (words !== '') {
        const name = commandOf(words.split(' ')) ?? '';
        expect(name, command).not.toBe('');
        for (const [, flag = ''] of command.matchAll(/ --([a-z-]+)/g))
          expect(flagsOf(name), command).toHaveProperty(flag);
      }
      const [, verb = '', rest = ''] =
        /docker compose (up|stop|ps|logs|exec) (.*)/.exec(command) ?? [];
      const named = rest.split(' ').filter((word) => /^[a-z][a-z-]+$/.test(word));
      const its = verb === 'exec' ? named.slice(0, 1) : named;
      expect(its.filter((service) => !services.has(service))).toEqual([]);
    }
  });

  it('is carried out by an end-to-end test', () => {
    const followed = [`runbook('${title}'`, `followRunbook(shell, "${title}"`];
    expect(tests.filter((text) => followed.some((call) => text.includes(call)))).toHaveLength(1);
  });
});

it('a secret that an operator replaces is readable by the user of its container', () => {
  const moves = [...read('docs/operations.md').matchAll(/(chmod 444 (\S+) && )?mv -f (\S+) /g)];
  expect(moves.length).toBeGreaterThan(6);
  const unreadable = moves.filter(([, , readable, moved]) => readable !== moved);
  // make-secrets.sh has made this one readable.
  expect(unreadable.map(([, , , moved]) => moved)).toEqual([
    'secrets/sandbox_bank_callback_secret',
  ]);
});

it('every link within the guide for operators leads to a heading', () => {
  const links = [...read('docs/operations.md').matchAll(/\]\((#[^)]+)\)/g)].map(([, to]) => to);
  expect(links.filter((to) => !runbooks.has(`docs/operations.md${to}`))).toEqual([]);
});
