import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { taskQueues } from '../../src/workflows/messages.js';
import { processesOf } from '../servers/processes.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const textOf = (file: string) => readFileSync(join(root, file), 'utf8');
const renderings = ['least', 'everything'] as const;
const textsOf = (name: string) => textOf(`test/deploy/rendered/${name}.yaml`);

const document = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string() }),
});
const container = z.looseObject({
  name: z.string(),
  image: z.string(),
  command: z.array(z.string()),
  env: z.array(z.looseObject({ name: z.string(), value: z.string().optional() })),
  ports: z.array(z.object({ name: z.string(), containerPort: z.number() })).default([]),
  volumeMounts: z.array(z.looseObject({ name: z.string(), mountPath: z.string() })),
});
const workload = document.extend({
  spec: z.looseObject({
    template: z.object({
      metadata: z.object({ labels: z.record(z.string(), z.string()) }),
      spec: z.looseObject({
        containers: z.array(container).length(1),
        volumes: z.array(z.looseObject({ name: z.string() })),
      }),
    }),
  }),
});

const documentsOf = (text: string) =>
  parseAllDocuments(text).flatMap((each) => {
    const value: unknown = each.toJS();
    return value === null ? [] : [document.parse(value)];
  });
const workloadsOf = (text: string) =>
  documentsOf(text)
    .filter(({ kind }) => kind === 'Deployment' || kind === 'Job')
    .map((each) => {
      const parsed = workload.parse(each);
      const [only] = parsed.spec.template.spec.containers;
      if (only === undefined) throw new Error(`${parsed.metadata.name} has no container.`);
      return { name: only.name, container: only, pod: parsed.spec.template.spec };
    });

const schemas = z
  .looseObject({ kinds: z.record(z.string(), z.string()) })
  .parse(JSON.parse(textOf('test/deploy/kubernetes-schemas.json')));

/** Violations of the Kubernetes schemas; see test/deploy/kubernetes-schemas.md. */
const schemaErrors = (() => {
  const { kinds, ...definitions } = schemas;
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema({ ...definitions, $id: 'kubernetes' });
  return (each: z.infer<typeof document>): readonly string[] => {
    const kind = kinds[`${each.apiVersion}/${each.kind}`];
    if (kind === undefined) return [`There is no schema of ${each.apiVersion}/${each.kind}.`];
    const validate = ajv.getSchema(`kubernetes#/$defs/${kind}`);
    if (validate === undefined || validate(each)) return [];
    return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
  };
})();

describe('the chart', () => {
  it('matches the committed rendering; if not, run node tools/helm/render.mjs', () => {
    const chart = join(root, 'deploy/helm/corridor');
    const hash = createHash('sha256');
    const names = readdirSync(chart, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .sort();
    for (const name of names) hash.update(name.slice(chart.length)).update(readFileSync(name));
    const digest = hash.digest('hex');
    for (const name of renderings) {
      expect(textsOf(name).split('\n')[0], name).toBe(`# chart ${digest}`);
    }
  });

  it.each(renderings)('renders objects that match the Kubernetes schemas, with %s', (name) => {
    const errors = documentsOf(textsOf(name)).flatMap((each) =>
      schemaErrors(each).map((error) => `${each.kind} ${each.metadata.name}: ${error}`),
    );
    expect(errors).toEqual([]);
  });

  it.each([
    ['replicas', 'revisionHistoryLimit: 5', 'revisionHistoryLimits: 5'],
    ['a type', 'periodSeconds: 10', 'periodSeconds: soon'],
    ['a kind', 'kind: PodDisruptionBudget', 'kind: PodBudget'],
    ['a queue', 'targetQueueSize: "100"', 'targetQueueSize: 100'],
  ])('fails its schemas with a mistake in %s', (_, from, to) => {
    const text = textsOf('everything');
    expect(text).toContain(from);
    const documents = documentsOf(text.replace(from, to));
    expect(documents.flatMap((each) => schemaErrors(each))).not.toEqual([]);
  });

  it('renders every part when all of them are enabled', () => {
    const names = documentsOf(textsOf('everything')).map(
      ({ kind, metadata }) => `${kind} ${metadata.name.replace('corridor-', '')}`,
    );
    expect(names.toSorted()).toEqual([
      ...['api', 'batch-worker', 'codec', 'sign-in', 'worker'].map((part) => `Deployment ${part}`),
      'HorizontalPodAutoscaler api',
      'Ingress api',
      'Job migrate',
      ...['api', 'batch-worker', 'codec', 'migrate', 'sign-in', 'worker'].map(
        (part) => `NetworkPolicy ${part}`,
      ),
      ...['api', 'batch-worker', 'worker'].map((part) => `PodDisruptionBudget ${part}`),
      ...['batch-worker', 'worker'].map((part) => `ScaledObject ${part}`),
      ...['api', 'codec', 'sign-in'].map((part) => `Service ${part}`),
    ]);
  });

  it('scales workers by their task queues where that is enabled, and by CPU otherwise', () => {
    const scaled = documentsOf(textsOf('everything')).filter(({ kind }) => kind === 'ScaledObject');
    const queues = scaled.flatMap((each) => [
      ...JSON.stringify(each).matchAll(/"taskQueue":"([^"]+)"/g),
    ]);
    expect(queues.map(([, queue = '']) => queue).toSorted()).toEqual(
      Object.values(taskQueues).toSorted(),
    );
    const byCpu = documentsOf(textsOf('least')).filter(
      ({ kind }) => kind === 'HorizontalPodAutoscaler',
    );
    expect(byCpu.map(({ metadata }) => metadata.name).toSorted()).toEqual([
      'corridor-api',
      'corridor-batch-worker',
      'corridor-worker',
    ]);
  });

  it.each(renderings)(
    'runs each process without privileges that it does not need, with %s',
    (name) => {
      for (const { pod, container: each } of workloadsOf(textsOf(name))) {
        expect(pod, each.name).toMatchObject({
          automountServiceAccountToken: false,
          securityContext: {
            ...{ runAsNonRoot: true, runAsUser: 1000 },
            seccompProfile: { type: 'RuntimeDefault' },
          },
        });
        expect(each, each.name).toMatchObject({
          securityContext: {
            ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
            capabilities: { drop: ['ALL'] },
          },
          resources: {
            requests: { cpu: expect.anything(), memory: expect.anything() },
            limits: { cpu: expect.anything(), memory: expect.anything() },
          },
        });
      }
    },
  );

  it.each(renderings)(
    'gives migrations of full tables the hours that they need, with %s',
    (name) => {
      const job = documentsOf(textsOf(name)).find(({ kind }) => kind === 'Job');
      const { activeDeadlineSeconds } = z
        .looseObject({ spec: z.looseObject({ activeDeadlineSeconds: z.number() }) })
        .parse(job).spec;
      // A step of a backfill and the pause after it take a fifth of a second.
      const [, steps = ''] = /mostSteps = ([\d_]+)/.exec(textOf('src/db/migrate.ts')) ?? [];
      expect(Number(steps.replaceAll('_', '')) / 5).toBeLessThan(activeDeadlineSeconds);
      // Helm's own patience is five minutes.
      expect(textOf('docs/operations.md')).toContain(
        `\`--timeout ${activeDeadlineSeconds / 3600}h\``,
      );
    },
  );

  it.each(renderings)(
    'lets processes call pods of the cluster and addresses outside it, with %s',
    (name) => {
      const policies = documentsOf(textsOf(name)).filter(({ kind }) => kind === 'NetworkPolicy');
      const calling = policies.filter(({ metadata }) => metadata.name !== 'corridor-codec');
      expect(calling.length).toBeGreaterThan(3);
      for (const each of calling) {
        // Cilium does not match pods against ipBlock, and other plugins do not match receivers against selectors.
        const to = [
          { ipBlock: { cidr: '0.0.0.0/0', except: ['169.254.0.0/16'] } },
          { ipBlock: { cidr: '::/0', except: ['fe80::/10'] } },
          { namespaceSelector: {} },
        ];
        expect(each, each.metadata.name).toMatchObject({ spec: { egress: [{ to }, {}] } });
      }
    },
  );

  it('probes /livez and /readyz of each long-running process', () => {
    for (const { name, container: each } of workloadsOf(textsOf('everything'))) {
      if (name === 'migrate') continue;
      const hasMetrics = !['codec', 'sign-in'].includes(name);
      const port = hasMetrics ? 'metrics' : name;
      const ready = hasMetrics ? '/readyz' : '/livez';
      expect(each, name).toMatchObject({
        startupProbe: { httpGet: { path: '/livez', port } },
        livenessProbe: { httpGet: { path: '/livez', port } },
        readinessProbe: { httpGet: { path: ready, port } },
      });
      expect(each.ports.map((listed) => listed.name)).toContain(port);
    }
  });

  it('starts the processes of docker-compose.yml with the same commands and secrets', () => {
    const compose = z
      .object({
        services: z.record(
          z.string(),
          z.looseObject({
            command: z.array(z.string()).default([]),
            environment: z.record(z.string(), z.string()).default({}),
          }),
        ),
      })
      .parse(parse(textOf('docker-compose.yml'), { merge: true }));
    for (const { name, container: each } of workloadsOf(textsOf('everything'))) {
      const service = compose.services[name];
      expect(each.command, name).toEqual(service?.command);
      const files = each.env.filter(({ name: variable }) => variable.endsWith('_FILE'));
      const secrets = files.filter(({ name: variable }) => !variable.startsWith('TEMPORAL_TLS'));
      expect(Object.fromEntries(secrets.map((file) => [file.name, file.value])), name).toEqual(
        Object.fromEntries(
          Object.entries(service?.environment ?? {}).filter(([key]) => key.endsWith('_FILE')),
        ),
      );
    }
  });

  it.each(['api', 'worker', 'batch-worker'])(
    'starts %s with the command and the variables of the rolling-replacement tests',
    (name) => {
      const found = workloadsOf(textsOf('least')).find((each) => each.name === name);
      const { command: started, env } = processesOf()[name] ?? { command: [], env: [] };
      const command = found?.container.command.filter(
        (word) => !word.startsWith('--max-semi-space'),
      );
      expect(command).toEqual(started);
      const names = found?.container.env.map((each) => each.name.replace(/_FILE$/, ''));
      // Settings for tests only: receivers on this machine, and requests at full speed.
      const ofTestsAlone = /^WEBHOOKS_ALLOW_INSECURE$|LIMIT/;
      const production = env.filter((variable) => !ofTestsAlone.test(variable));
      expect(production.filter((variable) => !names?.includes(variable))).toEqual([]);
    },
  );

  it.each(renderings)('sets only variables that a process reads, with %s', (name) => {
    const config = textOf('src/config.ts');
    for (const { name: part, container: each } of workloadsOf(textsOf(name))) {
      for (const { name: variable } of each.env) {
        // Read by Node itself.
        if (variable === 'NODE_EXTRA_CA_CERTS') continue;
        const setting = variable.replace(/_FILE$/, '');
        expect(config, `${part} sets ${variable}`).toMatch(new RegExp(`\\b${setting}\\b`));
      }
    }
  });

  it('mounts each file that a variable names', () => {
    for (const { container: each, pod } of workloadsOf(textsOf('everything'))) {
      const volumes = JSON.stringify(pod.volumes);
      for (const { name: variable, value = '' } of each.env) {
        if (!variable.endsWith('_FILE')) continue;
        const [, folder, file] = /^(\/run\/\w+)\/([\w.]+)$/.exec(value) ?? [];
        expect(each.volumeMounts.map(({ mountPath }) => mountPath)).toContain(folder);
        if (folder === '/run/secrets') expect(volumes, variable).toContain(`"key":"${file}"`);
      }
    }
  });
});
