import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { z } from 'zod';

const service = z.object({
  image: z.string().default(''),
  user: z.string().default(''),
  read_only: z.boolean().default(false),
  cap_drop: z.array(z.string()).default([]),
  security_opt: z.array(z.string()).default([]),
  cpus: z.number().optional(),
  mem_limit: z.string().optional(),
  pids_limit: z.number().optional(),
  logging: z.object({ options: z.record(z.string(), z.string()) }).optional(),
  container_name: z.string().optional(),
  command: z.array(z.string()).default([]),
  environment: z.record(z.string(), z.string()).default({}),
  restart: z.string(),
  profiles: z.array(z.string()).default([]),
  ports: z.array(z.string()).default([]),
  // By name, or as an object with an address.
  networks: z.union([
    z.array(z.string()),
    z.record(z.string(), z.unknown()).transform((all) => Object.keys(all)),
  ]),
  secrets: z.array(z.string()).default([]),
  configs: z.array(z.object({ source: z.string(), target: z.string() })).default([]),
  volumes: z.array(z.string()).default([]),
  depends_on: z.record(z.string(), z.object({ condition: z.string() })).default({}),
  healthcheck: z.object({ test: z.array(z.string()) }).optional(),
});
const fromFile = z.record(z.string(), z.object({ file: z.string() }));
const compose = z.object({
  services: z.record(z.string(), service),
  networks: z.record(
    z.string(),
    z.object({
      internal: z.boolean().default(false),
      ipam: z.object({ config: z.array(z.object({ gateway: z.string().optional() })) }).optional(),
    }),
  ),
  volumes: z.record(z.string(), z.unknown()),
  configs: fromFile,
  secrets: fromFile,
});

/** The parts of a Compose file that are checked, with lists and objects in the form that our file uses. */
export type Compose = z.infer<typeof compose>;
export type ComposeService = z.infer<typeof service>;

/** Reads a Compose file with every variable at its default (`${NAME:-…}`) or unset (`${NAME:?…}`). */
export function parseCompose(text: string): { readonly raw: unknown; readonly compose: Compose } {
  const filled = text.replace(/\$\{\w+:(?:-([^}]*)|\?[^}]*)\}/g, '$1');
  const raw: unknown = parse(filled, { merge: true });
  return { raw, compose: compose.parse(raw) };
}

/** Violations of the Compose Specification's schema; see compose-spec.md. */
export function schemaErrors(raw: unknown): readonly string[] {
  const file = fileURLToPath(new URL('./compose-spec.json', import.meta.url));
  const schema: object = JSON.parse(readFileSync(file, 'utf8'));
  // The schema has documentation keywords of its own, and union types.
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  const validate = ajv.compile(schema);
  if (validate(raw)) return [];
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** Referenced services, secrets and so on that the file does not define. */
export function danglingNames({ services, ...parts }: Compose): readonly string[] {
  return Object.entries(services).flatMap(([name, its]) => {
    const used = [
      ...its.networks.map((network) => ['networks', network] as const),
      ...its.secrets.map((secret) => ['secrets', secret] as const),
      ...its.configs.map(({ source }) => ['configs', source] as const),
      ...its.volumes.map((volume) => ['volumes', volume.split(':')[0] ?? ''] as const),
    ];
    return used
      .filter(([kind, part]) => parts[kind][part] === undefined)
      .map(([kind, part]) => `${name} uses ${part}, which is not one of the ${kind}`);
  });
}

/** Conditions that can never hold: there is no health check, or the service restarts for ever. */
export function vainConditions({ services }: Compose): readonly string[] {
  return Object.entries(services).flatMap(([name, { depends_on }]) =>
    Object.entries(depends_on)
      .filter(([needed, { condition }]) => !canBecome(services[needed], condition))
      .map(([needed, { condition }]) => `${name} waits for ${needed}: ${condition}`),
  );
}

function canBecome(needed: ComposeService | undefined, condition: string): boolean {
  if (needed === undefined) return false;
  if (condition === 'service_healthy') return needed.healthcheck !== undefined;
  return condition === 'service_completed_successfully' && /^on-failure/.test(needed.restart);
}

/** Variables `…_FILE` that do not point to a secret mounted into their service. */
export function unmountedSecrets({ services }: Compose): readonly string[] {
  return Object.entries(services).flatMap(([name, { environment, secrets }]) =>
    Object.entries(environment)
      .filter(([variable]) => variable.endsWith('_FILE'))
      .filter(([, path]) => !secrets.some((secret) => path === `/run/secrets/${secret}`))
      .map(([variable, path]) => `${name}: ${variable} names ${path}`),
  );
}
