import { describe, expect, it } from 'vitest';
import { metricsNamedIn, readPromql } from '../assertions/promql.js';
import { alerts, alertTests, dashboardQueries, runbooks } from '../fixtures/monitoring.js';

const [healthy, ...firing] = alertTests;
const names = alerts.map(({ alert }) => alert);

describe('an alert', () => {
  it.each(alerts)('$alert can be evaluated, and leads to an entry of the runbook', (rule) => {
    expect(readPromql(rule.expr).mistakes).toEqual([]);
    expect(metricsNamedIn([rule.expr]).size + Number(rule.expr.includes('up{'))).toBeGreaterThan(0);
    expect(rule.annotations.runbook).toBe(`docs/operations.md#${rule.alert.toLowerCase()}`);
    expect(runbooks).toContain(rule.annotations.runbook);
  });

  it('has a unique name and one test in which it fires, and is silent in the healthy hour', () => {
    expect(new Set(names).size).toBe(names.length);
    expect(firing.map(({ name }) => name)).toEqual(names);
    for (const {
      name,
      alert_rule_test: [test],
    } of firing) {
      expect(test).toMatchObject({ alertname: name, exp_alerts: [expect.anything()] });
    }
    const silent = names.map((alertname) => ({ alertname, exp_alerts: [] }));
    expect(healthy?.alert_rule_test).toEqual(silent);
  });
});

describe('the dashboard', () => {
  it.each(dashboardQueries)('has a valid query: %s', (query) => {
    expect(readPromql(query).mistakes).toEqual([]);
  });
});

it('the check finds queries that Prometheus would refuse', () => {
  expect(readPromql('max by job) (up)').mistakes).not.toEqual([]);
  expect(metricsNamedIn(['sum(rate(a_bucket{b="c"}[5m])) / up > 1 and on (d) e_total'])).toEqual(
    new Set(['a', 'e_total']),
  );
});
