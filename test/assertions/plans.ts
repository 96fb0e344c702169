import postgres from 'postgres';
import { z } from 'zod';
import type { Database } from '../../src/db/client.js';

/** How a statement was executed: the number of rows read, and the tables scanned sequentially. */
export type Plan = {
  readonly text: string;
  readonly rowsRead: number;
  readonly wholeTables: readonly string[];
};

type Node = {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string | undefined;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number | undefined;
  readonly 'Rows Removed by Index Recheck'?: number | undefined;
  readonly Plans?: readonly Node[] | undefined;
};
const node: z.ZodType<Node> = z.lazy(() =>
  z.object({
    'Node Type': z.string(),
    'Relation Name': z.string().optional(),
    'Actual Rows': z.number(),
    'Actual Loops': z.number(),
    'Rows Removed by Filter': z.number().optional(),
    'Rows Removed by Index Recheck': z.number().optional(),
    Plans: z.array(node).optional(),
  }),
);
const explained = z.object({ 'Query Text': z.string(), Plan: node });

const marker = 'select 1 as marker';

export type PlanReader = {
  /** A connection with the service's settings, which also reports the plan of each statement. */
  readonly database: Database;
  /** Returns the plans of the statements that `work` ran. */
  readonly plansOf: (work: () => Promise<unknown>) => Promise<readonly Plan[]>;
  readonly close: () => Promise<void>;
};

/** Opens a connection that captures the plans of executed statements through auto_explain. */
export async function openPlanReader(url: string): Promise<PlanReader> {
  let plans: Plan[] = [];
  const database: Database = postgres(url, {
    max: 1,
    types: { bigint: postgres.BigInt },
    transform: { column: { from: postgres.toCamel }, undefined: null },
    connection: {
      plan_cache_mode: 'force_custom_plan',
      random_page_cost: 1.1,
      timezone: 'UTC',
    },
    onnotice: ({ message = '' }) => {
      const json = message.indexOf('{');
      if (message.startsWith('duration:') && json > 0) plans.push(planOf(message.slice(json)));
    },
  });
  await database.unsafe(`
    load 'auto_explain';
    set auto_explain.log_min_duration = 0;
    set auto_explain.log_analyze = on;
    set auto_explain.log_timing = off;
    set auto_explain.log_format = 'json';
    set client_min_messages = log`);
  return {
    database,
    plansOf: async (work) => {
      plans = [];
      await work();
      // A plan arrives when its statement is closed, after the rows; this statement forces that.
      await database.unsafe(marker);
      return plans.filter(({ text }) => !text.startsWith(marker));
    },
    close: () => database.end({ timeout: 5 }),
  };
}

function planOf(json: string): Plan {
  const { 'Query Text': text, Plan: root } = explained.parse(JSON.parse(json));
  // The rows of a subquery scan are counted at the scan below it.
  const scans = nodesOf(root).filter((scan) => /(?<!Subquery) Scan$/.test(scan['Node Type']));
  return {
    text: `${text}\n${json}`,
    rowsRead: scans.reduce((sum, scan) => sum + rowsOf(scan), 0),
    wholeTables: scans
      .filter((scan) => scan['Node Type'] === 'Seq Scan')
      .map((scan) => scan['Relation Name'] ?? ''),
  };
}

function nodesOf(root: Node): readonly Node[] {
  return [root, ...(root.Plans ?? []).flatMap(nodesOf)];
}

function rowsOf(scan: Node): number {
  const removed =
    (scan['Rows Removed by Filter'] ?? 0) + (scan['Rows Removed by Index Recheck'] ?? 0);
  return (scan['Actual Rows'] + removed) * scan['Actual Loops'];
}
